# SPDX-License-Identifier: Apache-2.0
"""Helps the actions that deploy the plugin's DaemonSet or report on it."""

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

#: The message if no kubeconfig is set.
NO_CLUSTER = (
    "node_devices_kubeconfig: not set, but a DaemonSet needs the Kubernetes API: set it to a kubeconfig file on the "
    "controller"
)
# The image that `make image` builds.
_IMAGE = "localhost/node-devices/node-device-plugin"


def parse(deployment: Mapping[str, Any]) -> manifests.Deployment:
    """Parse ``device_plugin_deployment``. Raises DeclarationError."""
    return manifests.parse_deployment(
        {"image": f"{_IMAGE}:{wheels.version()}", **deployment, "select_nodes": "by_label"},
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


def ask_on_node(action: Any, command: str) -> Running:
    """Return the running plugin's report from its status socket. Raises PluginCliError. command: the plugin's."""
    said = plugin_cli.answer(action, [command, "status", "-o", "json"])
    plugin = said["plugin"]
    if plugin is None:
        return Running("", (said["problem"],))
    configuration = plugin["configuration"]
    not_ready, problems = tuple(plugin["not_ready"]), tuple(configuration["problems"])
    return Running(configuration["sha256"], not_ready, problems, plugin.get("version", ""))
