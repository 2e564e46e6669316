"""Measures a play: the times of its tasks, the executions on hosts, and the controller's memory."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
#: As in ansible.cfg. While a fork runs, it has its own copy of most of what the controller knows of all hosts.
FORKS = 10
# Seconds between two readings of the memory.
_PAUSE = 0.5


class Run(NamedTuple):
    """One play. seconds: from its first task to its end. tasks: each with ``task`` and ``seconds``, in order.

    executions: one line for each, ``task: what``. pss: the peak memory of the controller's processes in bytes, without
    the ProxyCommand of ssh, which only throwaway nodes need. cpu: seconds of the same processes.
    """

    seconds: float
    tasks: list[dict[str, Any]]
    executions: list[str]
    pss: int
    cpu: float


class Unreachable(RuntimeError):
    """No host answered."""


def play(
    playbook: pathlib.Path, inventory: pathlib.Path, settings: Mapping[str, str] | None = None, may_change: bool = False
) -> Run:
    """Run a playbook that changes nothing, unless it may change something.

    inventory: a directory inside a writable directory. settings: more environment variables of Ansible. Raises
    RuntimeError if a host fails or changes, Unreachable if no host answers.
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
        # Disable colours, because their codes would separate the words of the recap.
        ANSIBLE_FORCE_COLOR="0",
        ANSIBLE_NOCOLOR="1",
        NODE_DEVICES_TASK_TIMES=str(times),
        NODE_DEVICES_EXECUTIONS=str(executed),
    )
    environment.update(settings or {})
    program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
    with open(inventory.parent / "log", "w+") as log:
        process = subprocess.Popen(
            [program, "-i", str(inventory), str(playbook)], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        with watched(process.pid) as most:
            # The usage of all processes of the play, because each of them waits for its children.
            _, status, usage = os.wait4(process.pid, 0)
        code = process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        said = log.read()
    recap = [line for line in said.splitlines() if "unreachable=" in line]
    if recap and all("unreachable=0" not in line for line in recap):
        raise Unreachable("no node answers: run make lab first")
    if code or not (may_change or all("changed=0" in line for line in recap)):
        raise RuntimeError("%s failed or changed something:\n%s" % (playbook.name, said[-3000:]))
    tasks = json.loads(times.read_text())
    executions = [line for path in executed.iterdir() for line in path.read_text().splitlines()]
    return Run(sum(task["seconds"] for task in tasks), tasks, executions, most[0], usage.ru_utime + usage.ru_stime)


@contextlib.contextmanager
def watched(root: int) -> Iterator[list[int]]:
    """Yield a list with the peak memory (PSS, bytes) of a process and its descendants, read twice a second."""
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
    """Return a process and its descendants, except ssh's: the lab's ProxyCommand needs 20 MB for each connection."""
    parents: list[tuple[int, int]] = []
    clients = set()
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The line has the pid, the program's name in parentheses, a letter, and the parent's pid, see proc(5).
            before, _, after = path.read_text().rpartition(")")
            parents.append((int(after.split()[1]), int(path.parent.name)))
            if before.endswith("(ssh"):
                clients.add(int(path.parent.name))
    found = [root]
    for pid in found:
        found += [child for parent, child in parents if parent == pid and parent not in clients]
    return found


def _pss(pid: int) -> int:
    """Return the proportional set size in bytes, see proc(5); 0 for a process that has ended."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
