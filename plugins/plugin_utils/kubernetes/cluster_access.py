# SPDX-License-Identifier: Apache-2.0
"""Checks a kubeconfig and its permissions before a run writes anything, and finds a node's DRA drivers."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import extended_resources
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    Api,
    ApiError,
    NotFound,
    Place,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import DeclarationError

from . import deployed

_VARIABLE = "node_devices_kubeconfig"
# The API versions of ResourceSlices, newest first. Kubernetes 1.34, 1.33 and 1.32 introduced them.
_DRA_VERSIONS = ("resource.k8s.io/v1", "resource.k8s.io/v1beta2", "resource.k8s.io/v1beta1")


def problems(
    path: str, node: str, must_exist: bool, patches: bool, deployment: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Yield one message, with variable and file, if the run cannot work with the kubeconfig.

    node: the node's name in the cluster.
    must_exist: whether the node object must exist. An uninstall accepts its absence, and so does a run that skips the
        node then.
    patches: whether the run will patch the node's status. deployment: device_plugin_deployment in mode daemonset, or
    None.
    """
    try:
        # In a dry run, the API server checks the requests and the permissions, and stores nothing.
        api = Api.of(path, dry_run=True)
        if must_exist:
            api.node(node)
        elif api.get(Place("nodes", node)) is None:
            return
        if patches:
            api.patch_node_status(node, [{"op": "test", "path": "/metadata/name", "value": node}])
        if deployment is not None:
            # The deployment reports errors.
            with contextlib.suppress(ApiError, DeclarationError):
                yield from filter(None, [deployed.without_slot(api, node, deployed.parse(deployment))])
    except ApiError as error:
        yield failure(path, error)


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


def removed(path: str, node: str, capacities: Mapping[str, int], served: Collection[str] | None = None) -> set[str]:
    """Return the resources of ours that the node object has and the declaration does not have.

    capacities: the declared static resources. served: the declared resources of the plugin, if only the API shows
    those of the node; else None. ``problems`` reports an error of the API.
    """
    try:
        shown = Api.of(path).node(node)
        memory = extended_resources.remembered(shown)
    except (ApiError, extended_resources.CapacityConflict):
        return set()
    ours = set(memory.patched)
    if served is not None:
        ours |= extended_resources.registered_by(shown).intersection(memory.served)
    return ours.difference(capacities, served or ())


def dra_drivers(path: str, node: str) -> tuple[list[str], str]:
    """Return the DRA drivers whose ResourceSlices offer devices of a node, and a message if the drivers are unknown.

    A cluster without the API for ResourceSlices has no drivers.
    """
    try:
        api = Api.of(path)
        for version in _DRA_VERSIONS:
            with contextlib.suppress(NotFound):
                slices = api.list(Place("resourceslices", group=version), fieldSelector=f"spec.nodeName={node}")
                return sorted({each["spec"]["driver"] for each in slices}), ""
        return [], ""
    except ApiError as error:
        said = " ".join(str(error).split())
        return [], f"cannot check whether a DRA driver offers this node's devices in ResourceSlices: {said}"
