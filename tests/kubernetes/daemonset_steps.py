"""What the tests of the DaemonSet's steps have in common; against a real API server."""

from __future__ import annotations

import itertools
import types
import urllib.error

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import daemonset

LABEL = "nodedevices.kubernetes/device-plugin"
IMAGINARY = {
    "name": "myplugin.io/mydevice-1",
    "devices": [{"id": "dev1-1", "properties": {"value": "/node1/dev1/1"}}],
    "env": {"MYDEVICE_{index}": "{value}"},
}
_numbers = itertools.count()


@pytest.fixture
def namespace(cluster):
    """One of its own; of an earlier test no DaemonSet is left in the cluster, which would be refused to be beside."""
    yield f"devices-{next(_numbers)}"
    for each in cluster.ask("GET", "/apis/apps/v1/daemonsets")["items"]:
        metadata = each["metadata"]
        cluster.ask("DELETE", f"/apis/apps/v1/namespaces/{metadata['namespace']}/daemonsets/{metadata['name']}")


@pytest.fixture
def run(cluster, namespace, monkeypatch):
    """Brings about a state: run(state, node object or None, *resources, check=, inventory=, **arguments).

    inventory: hosts and their variables.
    """
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_state(
        state,
        node=None,
        *resources,
        check=False,
        deployment=None,
        api_only=False,
        profile=False,
        inventory=None,
        **given,
    ):
        action = object.__new__(daemonset.ActionModule)
        arguments = {
            "state": state,
            "kubeconfig": cluster.kubeconfig(),
            "deployment": {"image": "example.com/plugin:1", "namespace": namespace, **(deployment or {})},
            **({"node_name": node.name} if node else {}),
            **({"declaration": {"configuration": {"resources": list(resources)}}} if resources else {}),
            **given,
        }
        action._task = types.SimpleNamespace(args=arguments, check_mode=check)
        action._templar = templar = types.SimpleNamespace(template=lambda value: value)
        variables = {"node_devices_api_only": api_only, "node_devices_profile": profile}
        hosts = {
            host: {
                "node_devices_kubeconfig": cluster.kubeconfig(),
                "device_plugin_deployment": arguments["deployment"],
                **of,
            }
            for host, of in (inventory or {}).items()
        }
        of_all = {"hostvars": hosts, "groups": {"all": list(hosts)}}
        task_vars = {"inventory_hostname": "gpu-pool" if profile else "worker1", **of_all, **variables}
        result = action.run(None, task_vars)
        if "changed" in result and not check:
            # What is done is done: the same state again has nothing to do.
            again = object.__new__(daemonset.ActionModule)
            again._task = types.SimpleNamespace(args=arguments, check_mode=False)
            again._templar = templar
            assert again.run(None, task_vars)["changed"] is False
        return result

    return run_state


@pytest.fixture
def read(cluster, namespace):
    """An object of the namespace, or the namespace itself; None where it is not there."""

    def read_object(group="", kinds="", name="node-device-plugin"):
        path = f"{group}/namespaces/{namespace}" + (f"/{kinds}/{name}" if kinds else "")
        try:
            return cluster.ask("GET", path)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None

    return read_object


def deployed(run, *nodes, resources=(IMAGINARY,), **given):
    """Both steps, for several nodes."""
    pending = [run("configured", node, *resources, **given) for node in nodes]
    return pending, run("deployed", pending=pending, nodes=[node.name for node in nodes], **given)


def labels(node):
    return node.read()["metadata"].get("labels") or {}
