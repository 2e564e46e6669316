"""Starts threads that do not delay the exit."""

from __future__ import annotations

import _thread
import os
import queue
from typing import Callable

_Work = Callable[[], None]

#: Most threads that wait for other work. Reuse matters: a busy node starts a thread late.
_MOST_IDLE = 4
#: What each idle thread takes its next work from.
_idle: list[queue.SimpleQueue[_Work]] = []
# A forked process has no other thread.
os.register_at_fork(after_in_child=_idle.clear)


def start(work: _Work) -> None:
    """Run ``work``, which raises nothing, in a thread. Raises RuntimeError at the process's thread limit (TasksMax=).

    Unlike ``threading.Thread.start``, returns before the thread has begun. On a busy machine, a thread may begin only
    after some milliseconds, and the event loop must not wait for that long.
    """
    try:
        own = _idle.pop()
    except IndexError:
        own = queue.SimpleQueue()
        _thread.start_new_thread(_run, (own,))
    own.put(work)


def _run(own: queue.SimpleQueue[_Work]) -> None:
    while True:
        work = own.get()
        work()
        # Keep nothing alive while there is no work.
        del work
        if len(_idle) >= _MOST_IDLE:
            return
        _idle.append(own)
