"""Threads that take other work when theirs is done."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time

from node_device_plugin.support import threads

FORK = """
import os, threading, time
from node_device_plugin.support import threads
threads.start(lambda: None)
while not threads._idle:
    time.sleep(0.001)
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done = threading.Event()
threads.start(done.set)
os._exit(0 if done.wait(10) else 1)
"""


def run(number: int = 1) -> set[int]:
    """Let this number of calls run at the same time; returns their threads, once some wait for other work."""
    found: queue.SimpleQueue[int] = queue.SimpleQueue()
    together = threading.Barrier(number)

    def work() -> None:
        together.wait(10)
        found.put(threading.get_native_id())

    for _ in range(number):
        threads.start(work)
    began = time.monotonic()
    ran = {found.get(timeout=10) for _ in range(number)}
    while len(threads._idle) < threads._MOST_IDLE:
        assert time.monotonic() < began + 10
        time.sleep(0.001)
    return ran


def test_a_thread_takes_other_work_and_only_a_few_wait_for_it() -> None:
    many = 4 * threads._MOST_IDLE
    assert len(run(many)) == many
    # Two that end at the same moment may both stay.
    assert len(threads._idle) < many / 2
    first = run()
    assert run() == first


def test_a_forked_process_starts_threads_of_its_own() -> None:
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", FORK], check=True, env=path)
