# SPDX-License-Identifier: Apache-2.0
"""Checks combinations of a host's variables, which the inventory alone shows, before any node is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.names import node_name_problem
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.variables import (
    FAILED,
    worked_out,
)

from . import asked
from .kubernetes.deployed import NO_TAINT
from .kubernetes.drain import NO_CLUSTER

# Variables of the playbooks with a number of minutes.
_MINUTES = ("node_devices_lock_minutes", "node_devices_drain_minutes", "node_devices_in_use_minutes")
_DEPLOYMENT = "device_plugin_deployment"
#: The message for a service on a node that only the API reaches.
NO_SERVICE = (
    "device_plugin_mode: is service, but node_devices_api_only means that only the Kubernetes API reaches the node, so "
    "no service can run there: set it to daemonset"
)
_VARIABLES = (
    "node_devices_kubeconfig",
    "node_devices_api_only",
    "node_devices_node_name",
    "node_devices_drain",
    "device_plugin_mode",
    _DEPLOYMENT,
    "extended_resources_restore",
    *_MINUTES,
)


def problems(
    variables: Mapping[str, Any],
    template: Callable[[Any], Any],
    capacities: Mapping[str, int],
    by_claims: Iterable[str] = (),
) -> Iterator[str]:
    """Yield one message for each combination with which a later task would fail.

    variables: of the host. template: evaluates their expressions. capacities: the declared static capacities.
    by_claims: the resources that pods get by ResourceClaims.
    """
    # An expression that fails counts as set. The roles' argument specs report its error.
    values = {name: worked_out(variables[name], name, template)[0] for name in _VARIABLES if name in variables}
    has_cluster, api_only = bool(values.get("node_devices_kubeconfig")), _is(values, "node_devices_api_only")
    if capacities and not has_cluster:
        yield without_cluster(capacities)
    if by_claims and not has_cluster:
        yield without_classes(by_claims)
    if _is(values, "node_devices_drain") and not has_cluster:
        yield NO_CLUSTER
    is_service, deployment = values.get("device_plugin_mode", "service") == "service", values.get(_DEPLOYMENT)
    if is_service and not has_cluster and isinstance(deployment, Mapping) and deployment.get("startup_taint"):
        yield NO_TAINT
    if api_only and is_service:
        yield NO_SERVICE
    if api_only and capacities and _is(values, "extended_resources_restore"):
        yield (
            "extended_resources_restore: needs a timer on the node, but node_devices_api_only means that only the "
            "Kubernetes API reaches the node: set it to false for this host"
        )
    node = values.get("node_devices_node_name")
    if node and isinstance(node, str) and (problem := node_name_problem(node)):
        yield f"node_devices_node_name: {problem}"
    for name in _MINUTES:
        if values.get(name, FAILED) is not FAILED:
            try:
                asked.minutes({"minutes": values[name]}, name)
            except AnsibleError as error:
                yield str(error)


def without_cluster(capacities: Mapping[str, int]) -> str:
    """Return the message for static capacities without a kubeconfig."""
    names = ", ".join(sorted(capacities))
    return asked.without_kubeconfig(f"the capacity of {names} is patched through the Kubernetes API")


def without_classes(resources: Iterable[str]) -> str:
    """Return the message for resources that pods get by ResourceClaims without a kubeconfig."""
    names = ", ".join(sorted(resources))
    return asked.without_kubeconfig(f"the DeviceClass of {names} (api: dra) is created through the Kubernetes API")


def _is(values: Mapping[str, Any], name: str) -> bool:
    return boolean(values.get(name) or False, strict=False)
