# SPDX-License-Identifier: Apache-2.0
"""Checks a kubeconfig and its permissions before a run writes anything, and finds a node's DRA drivers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster import extended_resources, manifests
from ....plugin.node_device_plugin.cluster.api import Api, ApiError, NotFound, Place
from ....plugin.node_device_plugin.declaration import DeclarationError, parse_configuration
from ....plugin.node_device_plugin.declaration.model import DRA
from ..asked import Asked
from . import deployed, device_classes

_VARIABLE = "node_devices_kubeconfig"
# The API versions of ResourceSlices, newest first. Kubernetes 1.34, 1.33 and 1.32 introduced them.
_DRA_VERSIONS = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1")


# The objects that give pods rights, and that can be created without the others.
_TRIED = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "ClusterRole": "clusterroles",
}


class Answer(NamedTuple):
    """The cluster's answer. problems: why the run cannot do its work on the node, one message each.

    warnings: why the drivers are unknown, if they are relevant.
    drivers: the other DRA drivers whose ResourceSlices offer devices of the node; an empty list if there are none.
    removed: the resources of an earlier run that the node object has and the declaration does not have.
    """

    problems: list[str]
    warnings: list[str]
    drivers: list[str]
    removed: set[str]


def ask(asked: Asked, api_only: bool) -> Answer:
    """Ask the API server about a node, and whether it would do what the run needs. Without a kubeconfig, ask nothing.

    api_only: whether only the API reaches the node.
    """
    if not asked.kubeconfig:
        return Answer([], [], [], set())
    try:
        return _answered(asked, asked.kubeconfig, api_only)
    except ApiError as error:
        return Answer([failure(asked.kubeconfig, error)], [], [], set())


def _answered(asked: Asked, path: str, api_only: bool) -> Answer:
    """Return the answer of the API server. Raises ApiError."""
    # In a dry run, the API server checks the requests and the permissions, and stores nothing.
    api, name, declared = Api.of(path, dry_run=True), asked.node_name, asked.declared or {}
    needs_drivers = asked.mode and not asked.takeover and declared.get("foreign_kinds")
    # Also while no resource is served by DRA any longer: its slices may still be there.
    configuration = declared.get("configuration")
    ours = parse_configuration(configuration).dra.name if configuration else ""
    drivers, warnings = _dra_drivers(api, name, ours) if needs_drivers else ([], [])
    # An uninstall accepts the absence of a node, and the play skips a node that only the API reaches.
    must_exist = bool(declared or asked.drain) and not api_only
    node = api.node(name) if must_exist else api.get(Place("nodes", name))
    if node is None:
        return Answer([], warnings, drivers, set())
    if declared.get("capacities"):
        api.patch_node_status(name, [{"op": "test", "path": "/metadata/name", "value": name}])
    problems = []
    if declared.get("dra"):
        problems += require_dra(api, declared, asked.deployment if asked.mode == "daemonset" else None, node)
    if asked.mode == "daemonset":
        # The deployment reports errors.
        with contextlib.suppress(ApiError, DeclarationError):
            problems += filter(None, [deployed.without_slot(api, node, deployed.parse(asked.deployment))])
    is_removing = declared and asked.mode and not problems
    return Answer(problems, warnings, drivers, removed(node, declared, api_only) if is_removing else set())


def require_dra(
    api: Api, declared: Mapping[str, Any], deployment: Any = None, node: Mapping[str, Any] | None = None
) -> list[str]:
    """Return why a node cannot have the driver, one message each.

    Raises ApiError if the cluster has no DRA, or if the user may not create what the driver needs. api: with dry runs
    only. declared: the declaration as data. deployment: of the DaemonSet, whose pods need rights; None for a service.
    node: its object; None for a profile.
    """
    driver = declared["dra"]["name"]
    by_claims = [each["name"] for each in declared["resources"] if each.get("api") == DRA]
    obstacles = device_classes.require_rights(api, driver, by_claims, node)
    if deployment is None:
        return obstacles
    # The deployment reports errors of its settings.
    with contextlib.suppress(DeclarationError):
        for manifest in manifests.rights(deployed.parse(deployment), [driver]):
            kinds = _TRIED.get(manifest.content["kind"])
            if kinds:
                # Kubernetes lets a user grant only rights that the user has.
                metadata = {"generateName": "nodedevices-trial-"}
                group = manifest.content["apiVersion"]
                api.create(Place(kinds, group=group), {**manifest.content, "metadata": metadata})
    return obstacles


def not_joined(path: str, node: str) -> str:
    """Return a message if the cluster has no such node; empty also if the API cannot tell."""
    try:
        Api.of(path).node(node)
    except NotFound as error:
        return f"{error}. Until then, the play skips this host"
    except ApiError:
        # The task that needs the API reports the error.
        pass
    return ""


def failure(path: str, error: Exception) -> str:
    """Return the message for a kubeconfig with which the API server does not do what the run needs."""
    said = " ".join(str(error).split())
    where = "" if path in said else f" ({path})"
    return f"{_VARIABLE}{where}: {said}"


def removed(node: Mapping[str, Any], declared: Mapping[str, Any], api_only: bool) -> set[str]:
    """Return the resources of ours that a node object has and the declaration does not have.

    api_only: whether only the node object shows the plugin's resources of the node.
    """
    try:
        memory = extended_resources.remembered(node)
    except extended_resources.CapacityConflict:
        # The task that changes the capacities reports the error.
        return set()
    ours, names = set(memory.patched), {resource["name"] for resource in declared["resources"]}
    if api_only:
        ours = (ours | extended_resources.registered_by(node).intersection(memory.served)) - names
    return ours.difference(declared["capacities"])


def _dra_drivers(api: Api, node: str, ours: str) -> tuple[list[str], list[str]]:
    """Return the DRA drivers of a node except ours, and one message if they are unknown.

    A cluster without the API for ResourceSlices has no drivers.
    """
    try:
        for version in _DRA_VERSIONS:
            with contextlib.suppress(NotFound):
                slices = api.list(Place("resourceslices", group=version), fieldSelector=f"spec.nodeName={node}")
                return sorted({each["spec"]["driver"] for each in slices} - {ours}), []
    except ApiError as error:
        said = " ".join(str(error).split())
        return [], [f"cannot check whether a DRA driver offers this node's devices in ResourceSlices: {said}"]
    return [], []
