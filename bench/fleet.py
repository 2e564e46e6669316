"""Measures a run of site.yml that changes nothing, on many hosts: its time, executions and controller memory.

Each host is one of several names of a running node. `make bench` uses the lab's nodes (`make lab`). A molecule scenario
uses its own nodes with ``python -m bench.fleet INVENTORY HOSTS ...``. The hosts of one node break each other's node
lock. If no node answers, the module prints a message and measures nothing. For each number of hosts, the module writes
the tasks' times to a file in .bench/.
"""

from __future__ import annotations

import configparser
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml

from .figures import Figure, median, table
from .plays import CHECKOUT, FORKS, Run, Unreachable, play

HOSTS = tuple(int(count) for count in os.environ.get("BENCH_HOSTS", "10,20,40,200").split(","))
#: Limits of the executions on each host, if a run changes nothing: without verification, and with verification.
EXECUTIONS = (2, 3)
# Use the checkout's ssh settings, because the throwaway nodes' inventory has other settings.
_SETTINGS = configparser.ConfigParser()
_SETTINGS.read(CHECKOUT / "ansible.cfg")
_SSH_ARGS = _SETTINGS["ssh_connection"]["ssh_args"]
# Every task name of role verification contains this text.
_VERIFICATION = "verif"


class Nodes(NamedTuple):
    """Running nodes. inventory: the directory with their variables."""

    inventory: pathlib.Path
    names: Sequence[str]


def measure() -> list[Figure]:
    """Measure the lab's nodes. Raises RuntimeError if a host fails or changes."""
    nodes = nodes_of(CHECKOUT / "inventories" / "lab")
    try:
        return measured(nodes, HOSTS)
    except Unreachable:
        print(
            "bench: fleet: left out: %s do not answer; run make lab first" % " and ".join(nodes.names), file=sys.stderr
        )
        return []


def nodes_of(inventory: pathlib.Path) -> Nodes:
    """Return the nodes of an inventory of throwaway nodes. inventory: a directory with hosts.yml."""
    inventory = inventory.resolve()
    hosts = yaml.safe_load((inventory / "hosts.yml").read_text())
    return Nodes(inventory, list(hosts["lab_nodes"]["hosts"]))


def measured(nodes: Nodes, counts: Sequence[int], pings: int = 5) -> list[Figure]:
    """Measure each number of hosts. Raises RuntimeError if a host fails or changes, Unreachable if no host answers.

    pings: the number of pings for the median.
    """
    figures: list[Figure] = []
    a_host: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        try:
            for count in counts:
                inventory = inventory_of(nodes, pathlib.Path(scratch), count)
                ping = _ping(inventory, pings)
                print("bench: fleet: %d hosts ..." % count, file=sys.stderr, flush=True)
                run = play(CHECKOUT / "playbooks" / "site.yml", inventory)
                _write(run, count)
                figures += figures_of(run, count, ping)
                a_host.append(run.seconds / count)
        finally:
            _hang_up(pathlib.Path(scratch))
    if len(counts) > 1:
        name = "no change: time a host, %d hosts against %d" % (counts[-1], counts[0])
        figures.append(Figure(name, "times", a_host[-1] / a_host[0]))
    return figures


def figures_of(run: Run, count: int, ping: float) -> list[Figure]:
    """Return a run's figures. ping: seconds for one ping of all hosts."""
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


def missed(figures: Sequence[Figure]) -> list[str]:
    """Return a sentence for each figure above its limit, except times, which depend on the machine's load."""
    return [
        "%s: %.3g%s, the limit is %.3g" % (figure.name, figure.ours, figure.unit and " " + figure.unit, figure.most)
        for figure in figures
        if figure.unit != "s" and figure.most is not None and figure.reached is False
    ]


def inventory_of(nodes: Nodes, scratch: pathlib.Path, count: int) -> pathlib.Path:
    """Write an inventory of ``count`` hosts, distributed over the nodes, with their variables. Returns its path."""
    directory = scratch / str(count)
    variables = directory / "group_vars"
    variables.mkdir(parents=True)
    for path in (nodes.inventory / "group_vars").iterdir():
        (variables / path.name).symlink_to(path)
    groups: dict[str, Any] = {}
    for number, node in enumerate(nodes.names):
        group = node.replace("-", "_")
        of_node = nodes.inventory / "host_vars" / node
        if of_node.exists():
            (variables / group).symlink_to(of_node)
        names = ["bench-%d" % each for each in range(number, count, len(nodes.names))]
        # Give each host its own connection, as for separate machines.
        host = {
            "ansible_host": node,
            "ansible_ssh_args": _SSH_ARGS,
            "ansible_control_path": str(scratch / "{{ inventory_hostname }}"),
            # Other hosts of the same play lock the same node.
            "node_devices_lock_break": True,
        }
        groups[group] = {"hosts": dict.fromkeys(names, host)}
    inventory_groups = {"lab_nodes": {"children": groups}, "node_devices": {"children": {"lab_nodes": {}}}}
    (directory / "hosts.json").write_text(json.dumps(inventory_groups))
    return directory


def _hang_up(scratch: pathlib.Path) -> None:
    """End the ssh connections, because each keeps a process in the node and a process of the engine for minutes."""
    for path in scratch.iterdir():
        if path.is_socket():
            subprocess.run(
                ["ssh", "-F", "none", "-S", str(path), "-O", "exit", "node"], stderr=subprocess.DEVNULL, check=False
            )


def _ping(inventory: pathlib.Path, count: int) -> float:
    """Return the seconds for one ping of all hosts. Raises Unreachable."""
    tasks = [{"name": "Ping %d" % number, "ansible.builtin.ping": {}} for number in range(count + 1)]
    book = {"name": "Ping", "hosts": "all", "gather_facts": False, "tasks": tasks}
    playbook = inventory.parent / "ping.yml"
    playbook.write_text(json.dumps([book]))
    # The first ping opens the connections.
    return median([task["seconds"] for task in play(playbook, inventory).tasks[1:]])


def _write(run: Run, count: int) -> None:
    directory = CHECKOUT / ".bench"
    directory.mkdir(exist_ok=True)
    by_time = sorted(run.tasks, key=lambda task: -task["seconds"])
    (directory / ("fleet-%d.json" % count)).write_text(json.dumps(by_time, indent=1) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Measure a scenario's nodes and print the table. Returns 1 if a figure except times is above its limit."""
    try:
        inventory, counts = pathlib.Path(arguments[0]), [int(count) for count in arguments[1:]]
        nodes = nodes_of(inventory)
        if not counts:
            raise ValueError
    except (IndexError, ValueError, OSError, KeyError):
        print("Usage: python -m bench.fleet INVENTORY HOSTS ... (INVENTORY: directory with hosts.yml)", file=sys.stderr)
        return 2
    problems: list[str]
    try:
        figures = measured(nodes, counts, pings=1)
        print(table(figures))
        problems = missed(figures)
    except RuntimeError as error:
        problems = [str(error)]
    for problem in problems:
        print("bench: fleet: %s" % problem, file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
