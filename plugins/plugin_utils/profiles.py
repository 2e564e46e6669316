# SPDX-License-Identifier: Apache-2.0
"""Checks a profile: a host of the inventory that stands for all nodes of a DaemonSet that have no host of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ...plugin.node_device_plugin.declaration.problems import shown
from ...plugin.node_device_plugin.declaration.variables import FAILED, worked_out
from . import host_devices
from .declaration import DeclarationProblems, needs_facts

#: The variable that makes a host a profile.
VARIABLE = "node_devices_profile"
#: Why a variable has no meaning for nodes that no inventory lists, and what to do.
_OF_ONE_NODE = {
    "node_devices_node_name": "names one node, but a profile stands for many: set it to '' for the profile, and name "
    "the node in a host of its own",
    "node_devices_gather_facts": "reads one node, but a profile stands for many: set it to false for the profile, and "
    "write its values without facts",
    **{
        f"host_devices_{name}": "is written on a node, but nobody connects to a profile's nodes: set it to [] for the "
        "profile, and prepare the image of these nodes, or give each node a host of its own"
        for name in host_devices.MAKERS
    },
}
_READ = (*_OF_ONE_NODE, "device_plugin_mode", "device_plugin_deployment", "verification_sample")


def problems(
    variables: Mapping[str, Any], template: Callable[[Any], Any], capacities: Mapping[str, int]
) -> Iterator[str]:
    """Yield one line for each variable that a profile must not have.

    variables: of the host. template: evaluates their expressions. capacities: the declared static capacities.
    """
    # An expression that fails counts as set, because only a node's facts could make it work.
    values = {name: worked_out(variables[name], name, template)[0] for name in _READ if name in variables}
    if values.get("device_plugin_mode") == "service":
        yield "device_plugin_mode: is service, but a profile's plugin runs as a DaemonSet: set it to daemonset"
    for name, why in _OF_ONE_NODE.items():
        value = values.get(name)
        # A switch that -e sets is a text.
        if value if name != "node_devices_gather_facts" else value is FAILED or boolean(value or False, strict=False):
            yield f"{name}: {why}"
    deployment = values.get("device_plugin_deployment")
    if isinstance(deployment, Mapping) and deployment.get("node_selector") and not deployment.get("name"):
        yield (
            "device_plugin_deployment.name: not set, but each profile with a node_selector has a DaemonSet of its own: "
            "set a name, for example that of the node pool"
        )
    sample = values.get("verification_sample")
    # The role's argument spec reports a text that is no number.
    if isinstance(sample, int) or (isinstance(sample, str) and sample.strip().lstrip("-").isdecimal()):
        yield from sample_problem(sample, "verification_sample")
    if capacities:
        yield (
            f"the static capacity of {', '.join(sorted(capacities))} is a part of one node's object, but a profile "
            "stands for many: declare it for a host of its own"
        )


def sample_problem(value: Any, where: str) -> Iterator[str]:
    """Yield a line if a sample has no valid size. where: the field."""
    if not (str(value).strip().isdecimal() and int(value) > 0):
        yield f"{where}: must be a whole number, 1 or more, not {shown(value)}: to prove no device, skip tag verify"


def sample_size(arguments: Mapping[str, Any]) -> int:
    """Return a task's option ``sample``. Raises DeclarationProblems."""
    value = arguments.get("sample", 3)
    problems = list(sample_problem(value, "sample"))
    if problems:
        raise DeclarationProblems(problems)
    return int(value)


def failed_expression(where: str, error: Exception) -> str:
    """Return the message for an expression that fails. where: the field."""
    hint = "; a profile stands for many nodes, so it has no facts: write the value without facts"
    return f"{where}: {error}{hint if needs_facts(error) else ''}"
