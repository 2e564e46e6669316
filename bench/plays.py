"""A play as it is measured: how long its tasks took, what was executed on hosts, and the controller's memory."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
FORKS = 20
# Seconds between two looks at the memory.
_PAUSE = 0.5


class Run(NamedTuple):
    """One play. seconds: from its first task to its end. pss: of all the controller's processes, in bytes, at most;
    without those through which ssh reaches a throwaway node, which no other node has.

    tasks: each with ``task`` and ``seconds``, in their order. executions: a line for each, ``task: what``.
    """

    seconds: float
    tasks: list[dict[str, Any]]
    executions: list[str]
    pss: int


class Unreachable(RuntimeError):
    """No host answered."""


def play(playbook: pathlib.Path, inventory: pathlib.Path) -> Run:
    """Run a playbook that changes nothing.

    inventory: a folder of its own in a folder that is written to. Raises RuntimeError where a host failed or changed,
    Unreachable where none answers.
    """
    times, executed = inventory.parent / "times.json", inventory.parent / "executions"
    for path in [times, *(executed.iterdir() if executed.exists() else ())]:
        path.unlink(missing_ok=True)
    environment = dict(
        os.environ,
        ANSIBLE_CONFIG=str(CHECKOUT / "ansible.cfg"),
        ANSIBLE_CALLBACK_PLUGINS="%s:%s"
        % (CHECKOUT / "bench" / "callback", CHECKOUT / "molecule" / "shared" / "callback"),
        ANSIBLE_CALLBACKS_ENABLED="task_times,executions",
        ANSIBLE_FORKS=str(FORKS),
        # A recap with colours has them between its words.
        ANSIBLE_FORCE_COLOR="0",
        ANSIBLE_NOCOLOR="1",
        NODE_DEVICES_TASK_TIMES=str(times),
        NODE_DEVICES_EXECUTIONS=str(executed),
    )
    program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
    with open(inventory.parent / "log", "w+") as log:
        process = subprocess.Popen(
            [program, "-i", str(inventory), str(playbook)], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        with watched(process.pid) as most:
            code = process.wait()
        log.seek(0)
        said = log.read()
    recap = [line for line in said.splitlines() if "unreachable=" in line]
    if recap and all("unreachable=0" not in line for line in recap):
        raise Unreachable("no node answers")
    if code or any("changed=0" not in line for line in recap):
        raise RuntimeError("%s changed something, or failed:\n%s" % (playbook.name, said[-3000:]))
    tasks = json.loads(times.read_text())
    executions = [line for path in executed.iterdir() for line in path.read_text().splitlines()]
    return Run(sum(task["seconds"] for task in tasks), tasks, executions, most[0])


@contextlib.contextmanager
def watched(root: int) -> Iterator[list[int]]:
    """The most that a process and its descendants have in memory (PSS, bytes), looked at twice a second."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(_PAUSE):
            most[0] = max(most[0], sum(map(_pss, _descendants(root))))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def _descendants(root: int) -> list[int]:
    """A process and all below it, but for what ssh started: the lab's ProxyCommand, an engine of 20 MB a connection."""
    parents: list[tuple[int, int]] = []
    clients = set()
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The pid, the program's name in brackets, a letter, and the parent's pid, proc(5).
            before, _, after = path.read_text().rpartition(")")
            parents.append((int(after.split()[1]), int(path.parent.name)))
            if before.endswith("(ssh"):
                clients.add(int(path.parent.name))
    found = [root]
    for pid in found:
        found += [child for parent, child in parents if parent == pid and parent not in clients]
    return found


def _pss(pid: int) -> int:
    """Proportional set size in bytes, proc(5); 0 for a process that has ended."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
