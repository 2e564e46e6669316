"""What an action takes from its task, and from its host where the task leaves it out."""

from __future__ import annotations

import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.node_action import NodeAction

HOST = {
    "node_devices_kubeconfig": "{{ file }}",
    "node_devices_node_name": "worker1",
    "node_devices_cri_socket": "{{ nothing }}",
}


@pytest.fixture
def taken(monkeypatch):
    """What the action gets: taken(the task's arguments, the host's variables, options of the host)."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    values = {"{{ file }}": "~/.kube/config", "{{ nothing }}": None}

    def run(arguments, host, *options):
        given = []
        made = type("Action", (NodeAction,), {"act": lambda self, each: given.append(each) or {}})
        made.of_the_host = options
        action = object.__new__(made)
        action._task = types.SimpleNamespace(args=arguments, check_mode=False)
        action._templar = types.SimpleNamespace(template=lambda value: values.get(str(value), value))
        action.run(None, host)
        return given[0]

    return run


@pytest.mark.parametrize(
    ("arguments", "host", "expected"),
    [
        ({}, HOST, {"kubeconfig": "~/.kube/config", "node_name": "worker1"}),
        ({"kubeconfig": "a", "node_name": "worker2"}, HOST, {"kubeconfig": "a", "node_name": "worker2"}),
        ({"kubeconfig": None}, HOST, {"kubeconfig": "~/.kube/config", "node_name": "worker1"}),
        # An empty argument is an argument.
        ({"kubeconfig": ""}, HOST, {"kubeconfig": "", "node_name": "worker1"}),
        ({"state": "absent"}, {}, {"state": "absent"}),
        ({}, None, {}),
    ],
)
def test_the_host_gives_what_the_task_leaves_out(taken, arguments, host, expected):
    assert taken(arguments, host, "kubeconfig", "node_name", "cri_socket") == expected


def test_how_the_plugin_runs_comes_from_the_host(taken):
    host = {
        "node_devices_cri_socket": "/a",
        "device_plugin_mode": "daemonset",
        "device_plugin_deployment": {"image": "b"},
    }
    expected = {"cri_socket": "/a", "mode": "daemonset", "deployment": {"image": "b"}}
    assert taken({}, host, *expected) == expected


def test_an_action_takes_only_the_options_that_it_has(taken):
    assert taken({}, HOST, "node_name") == {"node_name": "worker1"}
    assert taken({}, HOST) == {}
