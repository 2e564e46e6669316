# SPDX-License-Identifier: Apache-2.0
"""Checks combinations of a host's variables, which the inventory alone shows, before any node is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean

from ...plugin.node_device_plugin.declaration.names import node_name_problem
from ...plugin.node_device_plugin.declaration.variables import FAILED, worked_out
from . import asked
from .kubernetes.deployed import NO_TAINT
from .kubernetes.drain import NO_CLUSTER

# Variables of the playbooks with a number of minutes.
_MINUTES = ("node_devices_lock_minutes", "node_devices_drain_minutes", "node_devices_in_use_minutes")
#: The message for a service on a node that only the API reaches.
NO_SERVICE = (
    "device_plugin_mode: is service, but node_devices_api_only means that only the Kubernetes API reaches the node, so "
    "no service can run there: set it to daemonset"
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

    def value(name: str, default: Any = None) -> Any:
        # An expression that fails counts as set. The roles' argument specs report its error.
        return worked_out(variables[name], name, template)[0] if name in variables else default

    def is_set(name: str) -> bool:
        return boolean(value(name) or False, strict=False)

    has_cluster, api_only = bool(value("node_devices_kubeconfig")), is_set("node_devices_api_only")
    if capacities and not has_cluster:
        yield without_cluster(capacities)
    if by_claims and not has_cluster:
        yield without_classes(by_claims)
    if is_set("node_devices_drain") and not has_cluster:
        yield NO_CLUSTER
    is_service, deployment = value("device_plugin_mode", "service") == "service", value("device_plugin_deployment")
    if is_service and not has_cluster and isinstance(deployment, Mapping) and deployment.get("startup_taint"):
        yield NO_TAINT
    if api_only and is_service:
        yield NO_SERVICE
    if api_only and capacities and is_set("extended_resources_restore"):
        yield (
            "extended_resources_restore: needs a timer on the node, but node_devices_api_only means that only the "
            "Kubernetes API reaches the node: set it to false for this host"
        )
    node = value("node_devices_node_name")
    if node and isinstance(node, str) and (problem := node_name_problem(node)):
        yield f"node_devices_node_name: {problem}"
    for name in _MINUTES:
        minutes = value(name, FAILED)
        if minutes is not FAILED:
            try:
                asked.minutes({"minutes": minutes}, name)
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
