# SPDX-License-Identifier: Apache-2.0
"""Checks a profile: a host of the inventory that stands for all nodes of a DaemonSet that have no host of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import host_devices
from .declaration import needs_facts

#: The variable that makes a host a profile.
VARIABLE = "node_devices_profile"
#: Why a variable has no meaning for nodes that nobody named.
_OF_ONE_NODE = {
    "node_devices_node_name": "names one node, but a profile stands for many: name the node in a host of its own",
    "node_devices_gather_facts": "needs one node, but a profile stands for many: write the values without facts",
    "node_devices_api_only": "is implied by node_devices_profile",
    **{
        f"host_devices_{name}": "is written on a node, but nobody connects to a profile's nodes: prepare the image of "
        "these nodes, or give each node a host of its own"
        for name in host_devices.MAKERS
    },
}


def problems(variable: Callable[[str], Any], capacities: Mapping[str, int]) -> Iterator[str]:
    """Yield one line for each variable that a profile must not have.

    variable: returns the value of a host's variable, or None. capacities: the declared static capacities.
    """
    if variable("device_plugin_mode") == "service":
        yield "device_plugin_mode: is service, but a profile's plugin runs as a DaemonSet: set it to daemonset"
    for name, why in _OF_ONE_NODE.items():
        if variable(name):
            yield f"{name}: {why}: remove the variable from the profile"
    if capacities:
        yield (
            f"the static capacity of {', '.join(sorted(capacities))} is a part of one node's object, but a profile "
            "stands for many: declare it for a host of its own"
        )


def failed_expression(where: str, error: Exception) -> str:
    """Return the message for an expression that fails. where: the field."""
    hint = "; a profile stands for many nodes, so it has no facts: write the value without facts"
    return f"{where}: {error}{hint if needs_facts(error) else ''}"
