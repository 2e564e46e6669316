"""A fleet that is measured: its inventory, what is made of a run, and what fails a scenario."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from bench import fleet
from bench.plays import CHECKOUT, Run, Unreachable

READ, PROVE = "nodedevices.kubernetes.cdi_runtime : Look: node_preflight", "verification : Ask the runtime: command"


def a_run(executions=2, proofs=1, hosts=2, seconds=3.0, pss=500e6):
    return Run(seconds, [], ([READ] * executions + [PROVE] * proofs) * hosts, int(pss), 1.0)


@pytest.fixture
def nodes(tmp_path):
    """Two nodes, which are this machine; the second one has a variable of its own."""
    inventory = tmp_path / "nodes"
    (inventory / "group_vars").mkdir(parents=True)
    (inventory / "host_vars").mkdir()
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "of": "both"}
    (inventory / "group_vars" / "lab_nodes.yml").write_text(json.dumps(local))
    (inventory / "host_vars" / "a-node2").mkdir()
    (inventory / "host_vars" / "a-node2" / "own.yml").write_text('{"own": "second"}')
    (inventory / "hosts.yml").write_text("lab_nodes: {hosts: {a-node1: {}, a-node2: {}}}")
    return fleet.nodes_of(inventory)


def test_each_host_is_one_of_the_nodes_and_has_its_variables(nodes, tmp_path):
    directory = fleet.inventory_of(nodes, tmp_path / "scratch", 5)
    program = os.path.join(os.path.dirname(sys.executable), "ansible-inventory")
    said = subprocess.run(
        [program, "-i", directory, "--list"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg")},
    )
    hosts = json.loads(said.stdout)["_meta"]["hostvars"]
    assert {name: host["ansible_host"] for name, host in hosts.items()} == {
        "bench-0": "a-node1",
        "bench-1": "a-node2",
        "bench-2": "a-node1",
        "bench-3": "a-node2",
        "bench-4": "a-node1",
    }
    assert {name for name, host in hosts.items() if host.get("own") == "second"} == {"bench-1", "bench-3"}
    assert {host["of"] for host in hosts.values()} == {"both"}
    # One node under two names is refused otherwise.
    assert {host["node_devices_lock_break"] for host in hosts.values()} == {True}
    # A connection each, which outlasts a task of them all.
    assert all("ControlPersist=600s" in host["ansible_ssh_args"] for host in hosts.values())
    assert (
        len({host["ansible_control_path"].replace("{{ inventory_hostname }}", name) for name, host in hosts.items()})
        == 5
    )


def test_the_executions_of_the_verification_are_told_from_the_rest(nodes):
    figures = fleet.figures_of(a_run(executions=2, proofs=1, hosts=2, seconds=3.0, pss=500e6), 2, 0.25)
    assert [(figure.ours, figure.floor, figure.most) for figure in figures] == [
        (2, None, 2),
        (1, None, 1),
        (3.0, 3 * 0.25, 1.5 * 3 * 0.25),
        (500, None, 1000),
    ]
    assert fleet.missed(figures) == []


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (a_run(executions=3), ["no change, 2 hosts: executions a host: 3, the limit is 2"]),
        (a_run(proofs=2), ["no change, 2 hosts: executions a host for verification: 2, the limit is 1"]),
        (
            a_run(pss=1.2e9),
            ["no change, 2 hosts: the controller's memory (PSS), 10 forks: 1.2e+03 MB, the limit is 1e+03"],
        ),
        # A busy machine.
        (a_run(seconds=1000.0), []),
    ],
)
def test_what_fails_a_scenario(run, says):
    assert fleet.missed(fleet.figures_of(run, 2, 0.25)) == says


def playing(monkeypatch, *runs):
    """site.yml and the pings, as given."""
    left, asked = list(runs), []

    def play(playbook, inventory):
        hosts = json.loads((inventory / "hosts.json").read_text())["lab_nodes"]["children"].values()
        asked.append((playbook.name, sum(len(group["hosts"]) for group in hosts)))
        if playbook.name == "ping.yml":
            return Run(1.0, [{"task": "Ping", "seconds": seconds} for seconds in (9.0, 0.5)], [], 0, 0.0)
        run = left.pop(0)
        if isinstance(run, Exception):
            raise run
        return run

    monkeypatch.setattr(fleet, "play", play)
    return asked


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet, "CHECKOUT", tmp_path)
    return tmp_path / ".bench"


def test_a_scenario_measures_its_nodes(nodes, written, monkeypatch, capsys):
    asked = playing(monkeypatch, a_run(hosts=4, seconds=4.0), a_run(hosts=8, seconds=12.0))
    assert fleet.main([str(nodes.inventory), "4", "8"]) == 0
    assert asked == [("ping.yml", 4), ("site.yml", 4), ("ping.yml", 8), ("site.yml", 8)]
    said = " ".join(capsys.readouterr().out.split())
    # The floor goes without the ping that opened the connections.
    assert "no change, 4 hosts: time; floor: as many pings 4 s 1.5 s" in said
    assert "no change, 8 hosts: time; floor: as many pings 12 s 1.5 s" in said
    assert "no change: time a host, 8 hosts against 4 1.5 times" in said
    assert sorted(path.name for path in written.iterdir()) == ["fleet-4.json", "fleet-8.json"]


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (a_run(executions=3), "executions a host: 3, the limit is 2"),
        (RuntimeError("site.yml changed something"), "site.yml changed something"),
        (Unreachable("no node answers"), "no node answers"),
    ],
)
def test_a_scenario_fails_and_says_why(nodes, written, monkeypatch, capsys, outcome, says):
    playing(monkeypatch, outcome)
    assert fleet.main([str(nodes.inventory), "2"]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["/nowhere", "10"], ["inventories/lab"], ["inventories/lab", "many"]])
def test_usage(arguments, capsys):
    assert fleet.main([str(CHECKOUT / each) if "/" in each else each for each in arguments]) == 2
    assert "Usage: python -m bench.fleet INVENTORY HOSTS ..." in capsys.readouterr().err
