"""What an action takes from its task, and from its host where the task leaves it out."""

from __future__ import annotations

import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import task_arguments

HOST = {
    "node_devices_kubeconfig": "{{ file }}",
    "node_devices_node_name": "worker1",
    "node_devices_api_only": True,
}


@pytest.fixture
def action():
    """An action without arguments; its templar knows one expression."""
    templar = types.SimpleNamespace(template=lambda value: "~/.kube/config" if value == "{{ file }}" else value)
    return types.SimpleNamespace(_task=types.SimpleNamespace(args={}), _templar=templar)


@pytest.mark.parametrize(
    ("arguments", "host", "taken"),
    [
        ({}, HOST, {"kubeconfig": "~/.kube/config", "node_name": "worker1", "api_only": True}),
        (
            {"kubeconfig": "other", "node_name": "worker2", "api_only": False},
            HOST,
            {"kubeconfig": "other", "node_name": "worker2", "api_only": False},
        ),
        ({"kubeconfig": None}, HOST, {"kubeconfig": "~/.kube/config", "node_name": "worker1", "api_only": True}),
        # An empty argument is an argument.
        ({"kubeconfig": ""}, {**HOST, "node_devices_api_only": None}, {"kubeconfig": "", "node_name": "worker1"}),
        ({"state": "absent"}, {}, {"state": "absent"}),
        ({}, None, {}),
    ],
)
def test_the_host_gives_what_the_task_leaves_out(action, arguments, host, taken):
    action._task.args = arguments
    assert task_arguments.of(action, host, "kubeconfig", "node_name", "api_only") == taken


def test_how_the_plugin_runs_comes_from_the_host(action):
    host = {
        "node_devices_cri_socket": "/a",
        "device_plugin_mode": "daemonset",
        "device_plugin_deployment": {"image": "b"},
    }
    taken = {"cri_socket": "/a", "mode": "daemonset", "deployment": {"image": "b"}}
    assert task_arguments.of(action, host, *taken) == taken


def test_an_action_takes_only_the_options_that_it_has(action):
    assert task_arguments.of(action, HOST, "node_name") == {"node_name": "worker1"}
    assert task_arguments.of(action) == {}
