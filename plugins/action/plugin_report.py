# SPDX-License-Identifier: Apache-2.0
"""Reports whether a node's plugin runs as declared. See plugins/modules/plugin_report.py."""

from __future__ import annotations

import time

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig, manifests, quantity
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.extended_resources import (
    capacities_of,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import DeclarationError
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import plugin_cli, task_arguments
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import deployed, rollout
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction

AS_DECLARED = "as declared"
_ERRORS = (DeclarationError, DeploymentError, ApiError, kubeconfig.KubeconfigError, plugin_cli.PluginCliError)
_KINDS = {"service": "service", "pod": "daemonset"}
# Seconds between two reads of a node object.
_PAUSE = 1.0


class ActionModule(HidingAction):
    """Changes nothing on the node or in the cluster."""

    only_shown = True

    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        host = (task_vars or {}).get("inventory_hostname", "")
        arguments = task_arguments.of(self, task_vars, "kubeconfig", "node_name")
        result.update(changed=False, runs_as="-", configuration="-", problems=[])
        try:
            api = Api(kubeconfig.read(arguments["kubeconfig"])) if arguments.get("kubeconfig") else None
            node = arguments.get("node_name") or host
            running, trouble = self._look(arguments, api, node, result)
            state = _state(arguments, running, trouble)
            shown = _shown_by(api, node, arguments) if api else []
        except _ERRORS as error:
            state, shown = " ".join(str(error).split()), []
        result["state"] = state
        result["problems"] = [f"{host}: {line}" for line in [*([] if state == AS_DECLARED else [state]), *shown]]
        return result

    def _look(self, arguments, api, node, result):
        """Return the running plugin's report, and in mode daemonset why the node's pod does not run."""
        pod, trouble, command = None, None, arguments.get("command")
        if arguments["mode"] == "daemonset":
            if api is None:
                raise DeploymentError(
                    "node_devices_kubeconfig: not set, but the DaemonSet is read through the Kubernetes API: set it "
                    "to a kubeconfig file on the controller"
                )
            cluster = DaemonSet(api, deployed.parse(arguments.get("deployment", {})))
            pod, seen = rollout.newest(cluster, node), rollout.look(cluster, node)
            trouble = seen["reason"]
            if seen["name"]:
                result["runs_as"] = f"pod {seen['name']}"
        if trouble:
            running = rollout.Running("")
        elif command:
            running = deployed.ask_on_node(self, command)
            if (arguments.get("instance") or {}).get("mode") == "service":
                result["runs_as"] = "service"
        elif pod is not None:
            running = rollout.ask_through_api(api, pod)
        else:
            running = rollout.Running(
                "", ("only the Kubernetes API reaches the node, so a plugin that runs as a service cannot be queried",)
            )
        result["configuration"] = running.sha256[:12] or "-"
        return running, trouble


def _state(arguments, running, trouble):
    mode = arguments["mode"]
    there = _KINDS.get((arguments.get("instance") or {}).get("mode"), mode)
    if there != mode:
        return f"it runs as a {there}, but device_plugin_mode is {mode}: run site.yml with device_plugin_takeover: true"
    if trouble:
        return trouble
    if not running.sha256:
        return "; ".join(running.not_ready)
    if running.problems:
        return f"it refuses its configuration and runs with an older one: {'; '.join(running.problems)}"
    if mode == "daemonset":
        wanted = manifests.sha256_of(deployed.configuration_text(arguments["declaration"]))
        if running.sha256 != wanted:
            return f"it does not run with the declared configuration {wanted[:12]}: run site.yml"
    return "; ".join(running.not_ready) or AS_DECLARED


def _shown_by(api, node, arguments):
    """Return one message for each resource whose allocatable quantity differs from the kubelet's after the timeout."""
    healthy, deadline = arguments.get("healthy", {}), time.monotonic() + float(arguments.get("timeout", 30))
    while True:
        allocatable = capacities_of(api.node(node), "allocatable") if healthy else {}
        wrong = [name for name, count in healthy.items() if not quantity.same(allocatable.get(name), count)]
        if not wrong or time.monotonic() >= deadline:
            return [
                f"{name}: the kubelet lists {healthy[name]} healthy, but the node object shows "
                f"{allocatable.get(name, 'none')} allocatable"
                for name in wrong
            ]
        time.sleep(_PAUSE)
