"""Hosts of a play that are one node, as Ansible works their variables out."""

from __future__ import annotations

import pathlib
import subprocess
import types

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.nodedevices.kubernetes.plugins.action import node_names
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import duplicate_nodes

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]
A, B = "a.example.com", "worker-1.example.com"
SAYS = (
    "hosts {} and {} both have the node name {} in this cluster: set node_devices_node_name of each host to its own "
    "node's name"
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the action for the hosts of an inventory: run(hosts, kubeconfig of those that name none)."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_action(hosts, kubeconfig=None, role=None):
        path = tmp_path / "hosts.yml"
        path.write_text(yaml.safe_dump({"all": {"hosts": hosts}}, sort_keys=False))
        loader = DataLoader()
        inventory = InventoryManager(loader, [str(path)])
        hostvars = HostVars(inventory, VariableManager(loader, inventory), loader)
        action = object.__new__(node_names.ActionModule)
        action._task = types.SimpleNamespace(args={"kubeconfig": kubeconfig}, _role=role)
        result = action.run(None, {"ansible_play_hosts_all": list(hosts), "hostvars": hostvars})
        head, *lines = result.get("msg", "").splitlines() or [""]
        # A role comes after others, which may have written.
        assert head == (
            "" if not result.get("failed") else "This task wrote nothing." if role else "No node was touched."
        )
        return lines

    return run_action


def named(name, **variables):
    return {"node_devices_node_name": name, "node_devices_kubeconfig": "/kubeconfig", **variables}


def test_two_hosts_that_are_one_node(run):
    hosts = {"a": named(B), "b": named("{{ 'worker-1' }}.example.com")}
    assert run(hosts) == run(hosts, role="device_plugin") == [SAYS.format("a", "b", B)]


def test_a_name_of_the_inventory_counts_where_none_is_said(run):
    assert run({B: {}, "b": {"node_devices_node_name": B}}, "/kubeconfig") == [SAYS.format(B, "b", B)]
    assert run({B: {"node_devices_node_name": ""}, "b": {"node_devices_node_name": B}}, "/kubeconfig") != []


def test_each_further_host_is_said(run):
    assert run({host: named(B) for host in "abc"}) == [SAYS.format("a", "b", B), SAYS.format("a", "c", B)]


def test_hosts_without_a_cluster_are_no_duplicates(run):
    assert run({"a": {"node_devices_node_name": B}, "b": {"node_devices_node_name": B}}) == []


def test_a_name_that_nobody_can_work_out_is_said_elsewhere(run):
    fact = "{{ ansible_facts.nodename }}"
    assert run({"a": named(fact), "b": named(fact)}) == []


def test_different_names(run):
    assert run({"a": named(A), "b": named(B)}) == []


@pytest.mark.parametrize(("of_b", "found"), [("one", [SAYS.format("a", "b", B)]), ("another", [])])
def test_kubeconfigs_of_one_cluster_or_of_two(run, monkeypatch, of_b, found):
    asked = []

    def identity(path):
        asked.append(path)
        return {"/a": "one", "/b": of_b}[path]

    monkeypatch.setattr(duplicate_nodes, "identity", identity)
    hosts = {"a": named(B, node_devices_kubeconfig="/a"), "b": named(B, node_devices_kubeconfig="/b")}
    assert run(hosts) == found
    assert sorted(asked) == ["/a", "/b"]
    # Nobody is asked about hosts that have names of their own.
    asked.clear()
    run({"a": hosts["a"], "b": named(A, node_devices_kubeconfig="/b")})
    assert asked == []


@pytest.mark.parametrize(
    ("playbook", "next_task"),
    [
        (str(CHECKOUT / "playbooks" / "site.yml"), "PLAY [Give the nodes their devices"),
        ("extended_resources", "TASK [nodedevices.kubernetes.extended_resources : Read the declaration"),
        ("device_plugin", "TASK [nodedevices.kubernetes.device_plugin : Read the declaration"),
    ],
)
def test_it_is_refused_before_anything_is_written(tmp_path, playbook, next_task):
    hosts = {host: {"ansible_connection": "local", **named(B)} for host in ("a", "b")}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"node_devices": {"hosts": hosts}}))
    if not playbook.endswith(".yml"):
        role = {"name": f"nodedevices.kubernetes.{playbook}"}
        play = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.import_role": role}]}
        playbook = str(tmp_path / "play.yml")
        pathlib.Path(playbook).write_text(yaml.safe_dump([play]))
    command = ["ansible-playbook", "-i", str(tmp_path / "hosts.yml"), playbook]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert SAYS.format("a", "b", B) in ended.stdout
    assert next_task not in ended.stdout
