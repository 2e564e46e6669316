# SPDX-License-Identifier: Apache-2.0
"""What the actions that deploy the plugin and that report it have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import parse_configuration
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import tool, wheels

from .rollout import Running

# What `make image` makes.
_IMAGE = "localhost/node-devices/node-device-plugin"


def parse(deployment: Mapping[str, Any]) -> manifests.Deployment:
    """``device_plugin_deployment``. Raises DeclarationError."""
    return manifests.parse_deployment(
        {"image": f"{_IMAGE}:{wheels.version()}", **deployment, "select_nodes": "by_label"},
        where="device_plugin_deployment.",
    )


def configuration_text(declared: Mapping[str, Any]) -> str:
    """The configuration file of a node. declared: the result of the action declaration."""
    return manifests.configuration_text(parse_configuration(declared["configuration"]))


def ask_on_node(action: Any, command: str) -> Running:
    """What the running plugin says of itself over its own socket, by the plugin's command there. Raises ToolError."""
    said = tool.ask(action, command, "status")
    plugin = said["plugin"]
    if plugin is None:
        return Running("", (said["problem"],))
    configuration = plugin["configuration"]
    not_ready, problems = tuple(plugin["not_ready"]), tuple(configuration["problems"])
    return Running(configuration["sha256"], not_ready, problems, plugin.get("version", ""))
