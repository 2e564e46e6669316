"""What a node's plugin is, and whether that is what was declared."""

from __future__ import annotations

import json
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig
from ansible_collections.nodedevices.kubernetes.plugins.action import plugin_report
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import framed
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import deployed, rollout

DECLARED = {"configuration": {"resources": [{"name": "a.example/b", "devices": []}]}}
WANTED = plugin_report.manifests.sha256_of(deployed.configuration_text(DECLARED))
POD = {
    "metadata": {"name": "plugin-x", "namespace": "node-devices"},
    "spec": {"containers": [{"name": "plugin", "ports": [{"containerPort": 9819}]}]},
    "status": {"containerStatuses": [{"ready": True}]},
}
SERVICE, IN_POD = ({"mode": mode, "resources": []} for mode in ("service", "pod"))


def status(sha256=WANTED, not_ready=(), problems=()):
    configuration = {"path": "/x.yaml", "sha256": sha256, "problems": list(problems)}
    plugin = {"version": "0.1.0", "started": 1.0, "ready": not not_ready, "resources": []}
    plugin.update(configuration=configuration, not_ready=list(not_ready))
    return {"plugin": plugin, "problem": "", "source": "kubelet", "held": [], "allocatable": {}}


@pytest.fixture
def report(monkeypatch):
    """What is reported: report(what the plugin's command says, its pod, why that does not run, **arguments)."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(kubeconfig, "read", lambda _path: None)
    monkeypatch.setattr(plugin_report, "_PAUSE", 0.001)

    def run(said, pod=None, trouble=None, allocatable=(), **arguments):
        monkeypatch.setattr(rollout, "newest", lambda _cluster, _node: pod)
        name = "node-devices/plugin-x" if pod or trouble else None
        seen = {"name": name, "state": "Running", "reason": trouble}
        monkeypatch.setattr(rollout, "look", lambda _cluster, _node: seen)
        text = f'node_device_plugin_configuration_info{{sha256="{WANTED}"}} 1\n'
        node = {"status": {"allocatable": dict(allocatable)}}
        api = types.SimpleNamespace(node=lambda _name: node, text=lambda _place: text)
        monkeypatch.setattr(plugin_report, "Api", lambda _access: api)
        action = object.__new__(plugin_report.ActionModule)
        arguments = {"declaration": DECLARED, "command": "/x/node-device-plugin", "timeout": 0.01, **arguments}
        action._task = types.SimpleNamespace(args=arguments, check_mode=False)
        answer = framed.Said(0, json.dumps(said), "")
        monkeypatch.setattr(framed, "run", lambda _action, _line, _given=None: answer)
        return action.run(None, {"inventory_hostname": "worker1"})

    return run


def test_a_service(report):
    result = report(status(), mode="service", instance=SERVICE)
    assert (result["runs_as"], result["configuration"], result["state"]) == ("service", WANTED[:12], "as declared")
    assert result["problems"] == []
    assert result["changed"] is False


def test_a_thousand_devices_which_the_api_server_writes_in_another_way(report):
    given = {"mode": "service", "instance": SERVICE, "kubeconfig": "x", "healthy": {"a.example/b": 1000}}
    assert report(status(), allocatable={"a.example/b": "1k"}, **given)["problems"] == []
    assert report(status(), allocatable={"a.example/b": "1"}, **given)["problems"] == [
        "worker1: a.example/b: the kubelet lists 1000 healthy, but the node object shows 1 allocatable"
    ]


def test_a_pod(report):
    result = report(status(), pod=POD, mode="daemonset", instance=IN_POD, kubeconfig="x")
    assert (result["runs_as"], result["state"]) == ("pod node-devices/plugin-x", "as declared")


def test_a_pod_that_only_the_api_reaches(report):
    result = report(None, pod=POD, mode="daemonset", kubeconfig="x", command=None)
    assert (result["configuration"], result["state"]) == (WANTED[:12], "as declared")


@pytest.mark.parametrize(
    ("said", "arguments", "state"),
    [
        ({**status(), "plugin": None, "problem": "no plugin answers"}, {"mode": "service"}, "no plugin answers"),
        (status(not_ready=["a: no stream"]), {"mode": "service", "instance": SERVICE}, "a: no stream"),
        (
            status(problems=["resources: is missing"]),
            {"mode": "service", "instance": SERVICE},
            "it refuses its configuration and runs with an older one: resources: is missing",
        ),
        (
            status(),
            {"mode": "service", "instance": IN_POD},
            "it runs as a daemonset, but device_plugin_mode is service: run site.yml with device_plugin_takeover: true",
        ),
        (
            status(),
            {"mode": "daemonset", "kubeconfig": "x", "trouble": "pod node-devices/plugin-x does not run: ErrImagePull"},
            "pod node-devices/plugin-x does not run: ErrImagePull",
        ),
        (
            status(),
            {"mode": "daemonset", "kubeconfig": "x", "trouble": "there is none", "instance": SERVICE},
            "it runs as a service, but device_plugin_mode is daemonset: run site.yml with device_plugin_takeover: true",
        ),
        (
            status("b" * 64),
            {"mode": "daemonset", "kubeconfig": "x", "pod": POD, "instance": IN_POD},
            f"it does not run with the declared configuration {WANTED[:12]}: run site.yml",
        ),
        (
            status(),
            {"mode": "daemonset"},
            "node_devices_kubeconfig: not set, but the DaemonSet is read through the Kubernetes API: set it to a "
            "kubeconfig file on the controller",
        ),
    ],
)
def test_what_is_not_as_declared(report, said, arguments, state):
    result = report(said, **arguments)
    assert result["state"] == state
    assert result["problems"] == [f"worker1: {state}"]
    assert "failed" not in result


def test_a_node_object_that_shows_something_else(report):
    healthy = {"a.example/b": 2, "a.example/c": 0}
    arguments = {"mode": "service", "instance": SERVICE, "kubeconfig": "x", "healthy": healthy}
    assert report(status(), allocatable={"a.example/b": "2", "a.example/c": "0"}, **arguments)["problems"] == []
    result = report(status(), allocatable={"a.example/b": "1"}, **arguments)
    assert result["state"] == "as declared"
    assert result["problems"] == [
        "worker1: a.example/b: the kubelet lists 2 healthy, but the node object shows 1 allocatable",
        "worker1: a.example/c: the kubelet lists 0 healthy, but the node object shows none allocatable",
    ]
