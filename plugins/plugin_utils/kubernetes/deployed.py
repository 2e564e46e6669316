# SPDX-License-Identifier: Apache-2.0
"""What the actions that deploy the plugin and that report it have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import (
    Configuration,
    DeclarationError,
    parse_configuration,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import plugin_cli, wheels

from .rollout import Running

#: Where no kubeconfig is given.
NO_CLUSTER = (
    "a DaemonSet is deployed through the Kubernetes API: set node_devices_kubeconfig to a kubeconfig file on the "
    "controller"
)
# What `make image` makes.
_IMAGE = "localhost/node-devices/node-device-plugin"


def parse(deployment: Mapping[str, Any]) -> manifests.Deployment:
    """``device_plugin_deployment``. Raises DeclarationError."""
    return manifests.parse_deployment(
        {"image": f"{_IMAGE}:{wheels.version()}", **deployment, "select_nodes": "by_label"},
        where="device_plugin_deployment.",
    )


def problems(deployment: Any, kubeconfig: Any, configuration: Configuration) -> list[str]:
    """Why a host can have no DaemonSet, as far as that can be told without the cluster and other hosts; a line each.

    deployment: device_plugin_deployment. kubeconfig: node_devices_kubeconfig, empty where none is set.
    """
    lines = [] if kubeconfig else [NO_CLUSTER]
    try:
        parse(deployment)
    except DeclarationError as error:
        lines += map(str, error.problems)
    try:
        manifests.common_ground({"": configuration})
    except DeclarationError as error:
        # Its places begin with the node's name, which whoever says them has said already.
        lines += [str(problem).removeprefix(": ") for problem in error.problems]
    return lines


def configuration_text(declared: Mapping[str, Any]) -> str:
    """The configuration file of a node. declared: the result of the action declaration."""
    return manifests.configuration_text(parse_configuration(declared["configuration"]))


def ask_on_node(action: Any, command: str) -> Running:
    """What the running plugin says of itself over its own socket, by its command there. Raises PluginCliError."""
    said = plugin_cli.ask(action, command, "status")
    plugin = said["plugin"]
    if plugin is None:
        return Running("", (said["problem"],))
    configuration = plugin["configuration"]
    not_ready, problems = tuple(plugin["not_ready"]), tuple(configuration["problems"])
    return Running(configuration["sha256"], not_ready, problems, plugin.get("version", ""))
