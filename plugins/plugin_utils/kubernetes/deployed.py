# SPDX-License-Identifier: Apache-2.0
"""Reads the settings of the plugin's DaemonSet, and checks that nodes can have its pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....plugin.node_device_plugin.cluster import manifests, pods
from ....plugin.node_device_plugin.cluster.api import Api
from ....plugin.node_device_plugin.declaration import Configuration, DeclarationError, parse_configuration
from .. import asked, wheels

#: The message if no kubeconfig is set.
NO_CLUSTER = asked.without_kubeconfig("a DaemonSet needs the Kubernetes API")
#: The same for a startup taint that the play removes, because the plugin is a service.
NO_TAINT = asked.without_kubeconfig("device_plugin_deployment.startup_taint is removed through the Kubernetes API")
# The image that `make image` builds.
_IMAGE = "localhost/node-devices/node-device-plugin"


def parse(deployment: Mapping[str, Any]) -> manifests.Deployment:
    """Parse ``device_plugin_deployment``. Raises DeclarationError."""
    return manifests.parse_deployment(
        {"image": f"{_IMAGE}:{wheels.version()}", **deployment},
        where="device_plugin_deployment.",
    )


def problems(deployment: Any, kubeconfig: Any, configuration: Configuration) -> list[str]:
    """Return one line for each reason why a host cannot have a DaemonSet. Queries neither cluster nor other hosts.

    deployment: device_plugin_deployment. kubeconfig: node_devices_kubeconfig; empty if not set.
    """
    lines = [] if kubeconfig else [NO_CLUSTER]
    try:
        parse(deployment)
    except DeclarationError as error:
        lines += map(str, error.problems)
    try:
        manifests.common_ground({"": configuration})
    except DeclarationError as error:
        # The key "" replaces the node's name, because callers prepend the name to each line.
        lines += [str(problem).removeprefix(": ") for problem in error.problems]
    return lines


def configuration_text(declared: Mapping[str, Any]) -> str:
    """Return the configuration file of a node. declared: the result of the action declaration."""
    return manifests.configuration_text(parse_configuration(declared["configuration"]))


def without_slot(api: Api, node: Mapping[str, Any], deployment: manifests.Deployment) -> str:
    """Return why a node must not get the DaemonSet's pod yet; empty if the node may get the pod. Raises ApiError."""
    # A labelled node already has a slot for the pod, or another DaemonSet of ours frees a slot.
    if not deployment.priority_class or manifests.NODE_LABEL in (node["metadata"].get("labels") or {}):
        return ""
    slots = pods.of_node(api, node)
    if slots is None or slots.free:
        return ""
    name = node["metadata"]["name"]
    return (
        f"node {name} has no free pod slot (its kubelet accepts {slots.total} pods), so the DaemonSet's pod, with "
        f"priority class {deployment.priority_class}, would preempt another pod: free a slot, raise the kubelet's "
        "maxPods, or set device_plugin_deployment.priority_class: '' to let the pod wait"
    )
