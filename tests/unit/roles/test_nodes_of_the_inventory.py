"""Which nodes the role device_plugin finds in an inventory, by its own expressions and Ansible's templating."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager

ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles" / "device_plugin"
VARIABLES = ROLE / "vars" / "main.yml"
PRUNE = {"device_plugin_prune_nodes": True}


@pytest.fixture
def found(tmp_path):
    """Works out a variable of the role: found(hosts of an inventory, its name, **more variables)."""
    own = yaml.safe_load(VARIABLES.read_text())

    def work_out(hosts, name, **given):
        path = tmp_path / "hosts.yml"
        path.write_text(yaml.safe_dump({"all": {"hosts": hosts}}, sort_keys=False))
        loader = DataLoader()
        inventory = InventoryManager(loader, [str(path)])
        manager = VariableManager(loader, inventory)
        variables = {
            "groups": inventory.get_groups_dict(),
            "hostvars": HostVars(inventory, manager, loader),
            **given,
        }
        return Templar(loader, variables=variables).template(trust_as_template(own[name]))

    return work_out


HOSTS = {
    "said": {"node_devices_node_name": "worker-1.example.com"},
    "worker-2": {},
    "worker-3": {"node_devices_node_name": ""},
    "worked-out": {"node_devices_node_name": "{{ 'worker-' ~ 4 }}"},
    "by-a-fact": {"node_devices_node_name": "{{ ansible_facts.nodename }}"},
}


def test_the_inventory_s_name_unless_another_is_said(found):
    named = {name: given for name, given in HOSTS.items() if name != "by-a-fact"}
    assert found(named, "device_plugin_nodes", **PRUNE) == ["worker-1.example.com", "worker-2", "worker-3", "worker-4"]


def test_while_the_name_of_a_host_is_unknown_nobody_has_left(found):
    """A node that no host seems to have may be the node of that host."""
    assert found(HOSTS, "device_plugin_nodes", omit="(omitted)", **PRUNE) == "(omitted)"


def test_a_limited_play_does_not_say_who_has_left(found):
    named = {"worker-1": {}, "worker-2": {}}
    nodes = found(named, "device_plugin_nodes", ansible_limit="worker-2", omit="(omitted)", **PRUNE)
    assert nodes == "(omitted)"


def test_another_inventory_may_have_nodes_too_unless_it_is_said_that_none_does(found):
    by_default = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())["device_plugin_prune_nodes"]
    named = {"worker-1": {}}
    assert found(named, "device_plugin_nodes", omit="(omitted)", device_plugin_prune_nodes=by_default) == "(omitted)"


@pytest.mark.parametrize(
    ("tasks", "state", "option"), [("daemonset", "deployed", "nodes"), ("daemonset_left", "absent", "nodes")]
)
def test_the_steps_that_take_nodes_out_are_told_which_there_are(tasks, state, option):
    modules = [task.get("nodedevices.kubernetes.daemonset", {}) for task in _tasks(tasks)]
    (step,) = [module for module in modules if module.get("state") == state]
    assert step[option] == "{{ device_plugin_nodes }}"


def _tasks(name):
    for task in yaml.safe_load((ROLE / "tasks" / f"{name}.yml").read_text()):
        yield task
        yield from task.get("block", ())
