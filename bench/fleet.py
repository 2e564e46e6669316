"""A run of site.yml that changes nothing, over more and more hosts: time, executions, and the controller's memory.

The hosts are the lab's nodes (`make lab`), each of them many times under other names. Where there is no lab, nothing is
measured, and that is said. How long each task took is written to .bench/, a file for each number of hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from typing import Any, Dict, Iterator, List, NamedTuple, Tuple

from .figures import Figure, median
from .lab_kubelet import NODES

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
HOSTS = tuple(int(count) for count in os.environ.get("BENCH_HOSTS", "10,20,40,200").split(","))
FORKS = 20
#: The executions of a run without a change that are asked for, without and with those of the verification.
EXECUTIONS = (12, 18)
PINGS = 5
# Like verification, whose tasks all have it in their names.
_VERIFICATION = "verif"


class Run(NamedTuple):
    """One play. seconds: from its first task to its end. pss: of all the controller's processes, in bytes, at most."""

    seconds: float
    tasks: List[Dict[str, Any]]
    executions: List[str]
    pss: int


def measure() -> List[Figure]:
    """Raises RuntimeError where a host failed or changed."""
    figures: List[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for count in HOSTS:
            inventory = _inventory(pathlib.Path(scratch), count)
            ping = _ping(inventory)
            if ping is None:
                print(
                    "bench: %s do not answer (make lab), so no fleet was measured" % " and ".join(NODES),
                    file=sys.stderr,
                )
                return []
            print("bench: fleet: %d hosts ..." % count, file=sys.stderr, flush=True)
            run = _play(CHECKOUT / "playbooks" / "site.yml", inventory)
            _write(run, count)
            figures += _figures(run, count, ping)
    return figures


def _figures(run: Run, count: int, ping: float) -> List[Figure]:
    verification = sum(_VERIFICATION in line for line in run.executions) / count
    rest = len(run.executions) / count - verification
    name = "no change, %d hosts" % count
    floor = (rest + verification) * ping
    return [
        Figure(name + ": executions a host", "", rest, most=EXECUTIONS[0]),
        Figure(name + ": executions a host for verification", "", verification, most=EXECUTIONS[1] - EXECUTIONS[0]),
        Figure(name + ": time; floor: as many pings", "s", run.seconds, floor, most=1.5 * floor),
        Figure(name + ": the controller's memory (PSS), %d forks" % FORKS, "MB", run.pss / 1e6, most=1000),
    ]


def _inventory(scratch: pathlib.Path, count: int) -> pathlib.Path:
    """An inventory of so many hosts, which are the lab's nodes in turn."""
    folder = scratch / str(count)
    variables = folder / "group_vars"
    variables.mkdir(parents=True)
    lab = CHECKOUT / "inventories" / "lab"
    (variables / "lab_nodes").symlink_to(lab / "group_vars" / "lab_nodes")
    groups: Dict[str, Any] = {}
    for node in NODES:
        group = node.replace("-", "_")
        (variables / group).symlink_to(lab / "host_vars" / node)
        names = ["bench-%d" % number for number in range(count) if NODES[number % len(NODES)] == node]
        # A connection each, as other machines have.
        host = {"ansible_host": node, "ansible_control_path": str(scratch / "{{ inventory_hostname }}")}
        groups[group] = {"hosts": dict.fromkeys(names, host)}
    (folder / "hosts.json").write_text(json.dumps({"lab_nodes": {"children": groups}}))
    return folder


def _ping(inventory: pathlib.Path) -> Any:
    """How long one ping of all hosts takes, in seconds; None where a node does not answer."""
    tasks = [{"name": "Ping %d" % number, "ansible.builtin.ping": {}} for number in range(PINGS + 1)]
    play = {"name": "Ping", "hosts": "all", "gather_facts": False, "tasks": tasks}
    playbook = inventory.parent / "ping.yml"
    playbook.write_text(json.dumps([play]))
    try:
        run = _play(playbook, inventory)
    except Unreachable:
        return None
    # The first one opens the connections.
    return median([task["seconds"] for task in run.tasks[1:]])


class Unreachable(RuntimeError):
    """No host answered."""


def _play(playbook: pathlib.Path, inventory: pathlib.Path) -> Run:
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
        NODE_DEVICES_TASK_TIMES=str(times),
        NODE_DEVICES_EXECUTIONS=str(executed),
    )
    program = os.path.join(os.path.dirname(sys.executable), "ansible-playbook")
    with open(inventory.parent / "log", "w+") as log:
        process = subprocess.Popen(
            [program, "-i", str(inventory), str(playbook)], env=environment, stdout=log, stderr=subprocess.STDOUT
        )
        with _watched(process.pid) as most:
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
def _watched(root: int) -> Iterator[List[int]]:
    """The most that a process and its descendants have in memory, looked at twice a second."""
    most, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            most[0] = max(most[0], sum(map(_pss, _descendants(root))))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def _descendants(root: int) -> List[int]:
    """A process and all below it."""
    parents: List[Tuple[int, int]] = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.append((int(path.read_text().rpartition(")")[2].split()[1]), int(path.parent.name)))
    found = [root]
    for pid in found:
        found += [child for parent, child in parents if parent == pid]
    return found


def _pss(pid: int) -> int:
    """Proportional set size in bytes, proc(5); 0 for a process that has ended."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/%d/smaps_rollup" % pid).read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _write(run: Run, count: int) -> None:
    folder = CHECKOUT / ".bench"
    folder.mkdir(exist_ok=True)
    by_time = sorted(run.tasks, key=lambda task: -task["seconds"])
    (folder / ("fleet-%d.json" % count)).write_text(json.dumps(by_time, indent=1) + "\n")
