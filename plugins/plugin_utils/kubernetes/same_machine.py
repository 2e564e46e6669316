# SPDX-License-Identifier: Apache-2.0
"""Checks that a host is the machine of the node that it names. Otherwise a run would change another machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster.api import Api, LacksRights, Place
from ....plugin.node_device_plugin.cluster.extended_resources import info_of
from ..remembered import remembered

#: The ids of a machine: in the facts of node_preflight, and in a node object's ``nodeInfo``.
_IDS = {"machine_id": "machineID", "system_uuid": "systemUUID"}
#: The maximum length of an object's name.
_LONGEST = 253
_SET = "set node_devices_node_name of this host"


class Checked(NamedTuple):
    """The result. problem: why the host is another machine. unknown: why nobody knows. Both empty: it is the node's."""

    problem: str = ""
    unknown: str = ""


def check(api: Api, kubeconfig: str, name: str, found: Mapping[str, Any] | None, identity: Any) -> Checked:
    """Check whether a host is the machine of a node object. Raises ApiError. found: None if it does not exist.

    kubeconfig: path of the file of ``api``.
    identity: ``identity`` of the host's node_preflight. The kubelet's certificate decides. Without its name, all ids
    that both sides know must be equal, and no other node may have them. A missing node object has no ids to compare.
    """
    host = _of_host(identity)
    kubelet = host.pop("name", "")
    if kubelet and kubelet != name:
        return Checked(
            f"this host is the node {kubelet}, as its kubelet's certificate says, and not {name}: {_SET} to {kubelet}"
        )
    if found is None:
        return Checked()
    node = _of_node(found)
    differing = _differing(host, node)
    if kubelet:
        # A kubelet in a container may have a machine id of its own, so a single id proves nothing here.
        if len(differing) == len(_IDS):
            return Checked(
                f"this cluster's node {name} is another machine than this host ({_told(differing, host, node)}): set "
                "node_devices_kubeconfig of this host to a kubeconfig of its own cluster"
            )
        return Checked()
    if not host.keys() & node.keys():
        return Checked(
            unknown=f"node {name} has not joined yet, or does not report the ids of its machine, so the play could not "
            "check that this host is that node"
        )
    try:
        # The list may be older than this node.
        nodes = {**_all_nodes(api, kubeconfig), name: node}
        same = sorted(each for each, ids in nodes.items() if _fits(host, ids))
    except LacksRights as error:
        same, unknown = [], f"cannot check whether another node has the ids of this host's machine: {error}"
    else:
        unknown = ""
    if len(same) > 1:
        return Checked(
            f"the ids of this host's machine fit several nodes ({', '.join(same)}), as of cloned machines: give "
            "each machine its own /etc/machine-id, and restart its kubelet"
        )
    if not differing:
        return Checked(unknown=unknown)
    remedy = f"{_SET} to {same[0]}" if same else f"{_SET}, or restart its kubelet if its ids have changed"
    return Checked(f"node {name} is another machine than this host ({_told(differing, host, node)}): {remedy}")


def _all_nodes(api: Api, kubeconfig: str) -> dict[str, dict[str, str]]:
    """Return the ids of each node. Hosts that ask after the first answer of this run read that answer."""

    def listed() -> str:
        return json.dumps({each["metadata"]["name"]: _of_node(each) for each in api.list(Place("nodes"))})

    nodes: dict[str, dict[str, str]]
    nodes = json.loads(remembered(listed, "nodes", kubeconfig))
    return nodes


def _of_host(identity: Any) -> dict[str, str]:
    """Return the host's ids, and ``name``. A node may answer anything, so only short texts count."""
    given = identity if isinstance(identity, Mapping) else {}
    found = {key: given.get(key) for key in ("name", *_IDS)}
    return {key: str(text) for key, text in found.items() if isinstance(text, str) and 0 < len(text) <= _LONGEST}


def _of_node(node: Mapping[str, Any]) -> dict[str, str]:
    return {key: found for key, field in _IDS.items() if (found := info_of(node, field))}


def _differing(host: Mapping[str, str], node: Mapping[str, str]) -> list[str]:
    """Return the ids that differ, of those that both sides know. Firmware and kernels write a UUID in either case."""
    return [key for key in _IDS if key in host and key in node and host[key].lower() != node[key].lower()]


def _fits(host: Mapping[str, str], node: Mapping[str, str]) -> bool:
    return bool(host.keys() & node.keys()) and not _differing(host, node)


def _told(differing: list[str], host: Mapping[str, str], node: Mapping[str, str]) -> str:
    return ", ".join(f"{_IDS[key]} {node[key]}, but this host has {host[key]}" for key in differing)
