"""Measures the controller's own CPU time and memory for a run of site.yml that changes nothing, on many hosts.

The hosts exist only in their answers (connection/simulated_node.py), so that no node's work is in the figure, and no
lab is necessary. BENCH_CONTROLLER_HOSTS lists the numbers of hosts. BENCH_AGAINST names a commit: its runs alternate
with the checkout's runs, and its figure is the floor.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

from .figures import Figure, median
from .fleet import EXECUTIONS
from .plays import CHECKOUT, FORKS, Run, play

HOSTS = tuple(int(count) for count in os.environ.get("BENCH_CONTROLLER_HOSTS", "40").split(","))
RUNS = int(os.environ.get("BENCH_CONTROLLER_RUNS", "5"))
_CONFIG = CHECKOUT / "tests" / "runtimes" / "configurations" / "default-1.7.toml"


def measure() -> list[Figure]:
    """Measure the checkout, and the commit BENCH_AGAINST beside it. Raises RuntimeError if a run changes a host."""
    commit = os.environ.get("BENCH_AGAINST")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, contextlib.ExitStack() as stack:
        checkouts = [CHECKOUT]
        if commit:
            checkouts.append(stack.enter_context(_checkout_of(commit, pathlib.Path(scratch) / "commit")))
        for count in HOSTS:
            figures += measured(checkouts, pathlib.Path(scratch) / ("hosts-%d" % count), count, RUNS)
    return figures


def measured(checkouts: list[pathlib.Path], scratch: pathlib.Path, hosts: int, runs: int) -> list[Figure]:
    """Measure checkouts in turn. scratch: a writable directory. Raises RuntimeError if a run changes a host."""
    simulated = [Simulated(checkout, scratch / str(number), hosts) for number, checkout in enumerate(checkouts)]
    for each in simulated[1:]:
        # An earlier release's controller compares what it wrote. So its first run has to write it.
        each.run(may_change=True)
    found = [[each.run() for each in simulated] for _ in range(runs)]
    seconds, *others = [median([run.cpu for run in of_one]) for of_one in zip(*found)]
    name = "no change, %d simulated hosts: the controller's" % hosts
    return [
        Figure("%s CPU time, median of %d" % (name, runs), "s", seconds, *others),
        Figure(
            "%s memory (PSS), %d forks" % (name, FORKS), "MB", max(of_all[0].pss for of_all in found) / 1e6, most=1200
        ),
    ]


class Simulated:
    """A checkout with an inventory of simulated hosts, which have the lab's variables. scratch: a new directory."""

    def __init__(self, checkout: pathlib.Path, scratch: pathlib.Path, count: int) -> None:
        self._count = count
        self._checkout, self._inventory, lab = checkout, scratch / "inventory", checkout / "inventories" / "lab"
        shutil.copytree(lab / "group_vars", self._inventory / "group_vars")
        (self._inventory / "group_vars" / "lab_nodes" / "connection.yml").unlink()
        shutil.copytree(lab / "host_vars" / "lab-node1", self._inventory / "group_vars" / "node_devices")
        host = {"ansible_connection": "simulated_node", "ansible_python_interpreter": "/usr/bin/python3"}
        hosts = dict.fromkeys(["bench-%d" % number for number in range(count)], host)
        groups = {"lab_nodes": {"hosts": hosts}, "node_devices": {"children": {"lab_nodes": {}}}}
        (self._inventory / "hosts.json").write_text(json.dumps(groups))
        nodes = scratch / "nodes"
        nodes.mkdir()
        (nodes / "config.toml").write_text(_CONFIG.read_text().replace("enable_cdi = false", "enable_cdi = true"))
        collections = scratch / "collections" / "ansible_collections" / "nodedevices"
        collections.mkdir(parents=True)
        (collections / "kubernetes").symlink_to(checkout)
        self._environment = {
            "ANSIBLE_COLLECTIONS_PATH": str(scratch / "collections"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_CONNECTION_PLUGINS": str(CHECKOUT / "bench" / "connection"),
            "NODE_DEVICES_SIMULATED": str(nodes),
        }

    def run(self, may_change: bool = False) -> Run:
        """Run the checkout's site.yml. Raises RuntimeError if a host fails, or changes and may not."""
        run = play(self._checkout / "playbooks" / "site.yml", self._inventory, self._environment, may_change=may_change)
        if not may_change and len(run.executions) > EXECUTIONS[1] * self._count:
            raise RuntimeError("a run that changes nothing executed: %s" % ", ".join(sorted(set(run.executions))))
        return run


@contextlib.contextmanager
def _checkout_of(commit: str, directory: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield a checkout of a commit. Raises RuntimeError if the repository does not have the commit."""
    git = ["git", "-C", str(CHECKOUT), "worktree"]
    add = [*git, "add", "--detach", str(directory), commit]
    done = subprocess.run(add, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError("BENCH_AGAINST=%s: %s" % (commit, done.stderr.strip()))
    try:
        yield directory
    finally:
        subprocess.run([*git, "remove", "--force", str(directory)], check=True)
