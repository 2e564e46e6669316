"""The command ``discover``: shows the devices that a configuration would find on this node, as text or data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..declaration import Device, Resource
from ..declaration.serialise import resources_to_data
from ..devices.discovery import Discovered
from ..devices.health import CdiNames, problem_of
from ..support.tables import table

_HEAD = ("RESOURCE", "DEVICE", "NODES", "NUMA", "STATE")


def to_data(resources: Sequence[Resource], found: Mapping[str, Discovered], names: CdiNames) -> dict[str, Any]:
    """The devices, ready for JSON. names: other programs' CDI specs.

    ``problem``: why a device is unhealthy, or why a resource has no device. ``reason``: why a device is left out.
    """
    listed = []
    for resource in resources:
        ours = found.get(resource.name)
        discovered, left_out = ours or Discovered((), ())
        devices = [("declared", each) for each in resource.devices] + [("discovered", each) for each in discovered]
        listed.append(
            {
                "name": resource.name,
                "devices": [_device(resource, device, origin, names) for origin, device in devices],
                "left_out": [{"id": device.id, "reason": reason} for device, reason in left_out],
                "problem": _unmatched(resource) if ours is not None and not (discovered or left_out) else None,
            }
        )
    return {"resources": listed}


def _unmatched(resource: Resource) -> str:
    """The problem of a resource whose discovery finds no device."""
    (declared,) = resources_to_data([resource])
    wanted = (f"{key}: {json.dumps(declared['discover'][key])}" for key in resource.discover.methods)
    beside = ", or exclude leaves it out" if resource.discover.exclude else ""
    return f"nothing on this node matches {' or '.join(wanted)}{beside}"


def _device(resource: Resource, device: Device, origin: str, names: CdiNames) -> dict[str, Any]:
    return {
        "id": device.id,
        "origin": origin,
        "nodes": [{"path": node.path, "host_path": node.host_path} for node in device.nodes],
        "properties": dict(device.properties),
        "attributes": device.attributes.known(),
        "numa_node": device.numa_node,
        "problem": problem_of(resource, device, names),
    }


def shown_nodes(nodes: Sequence[Mapping[str, str]]) -> str:
    """The nodes of a device as text. A path that differs on the host is behind an arrow."""
    return ", ".join(
        node["path"] if node["path"] == node["host_path"] else "{path} -> {host_path}".format(**node) for node in nodes
    )


def to_text(data: Mapping[str, Any]) -> str:
    """The result of to_data as a table."""
    if not data["resources"]:
        return "the configuration has no resource, so there is nothing to find"
    rows: list[tuple[str, ...]] = []
    for resource in data["resources"]:
        for device in resource["devices"]:
            numa = "-" if device["numa_node"] is None else str(device["numa_node"])
            state = device["problem"] or device["origin"]
            rows.append((resource["name"], device["id"], shown_nodes(device["nodes"]) or "-", numa, state))
        for device in resource["left_out"]:
            rows.append((resource["name"], device["id"], "-", "-", "left out: " + device["reason"]))
        if resource["problem"] or not (resource["devices"] or resource["left_out"]):
            rows.append((resource["name"], "none", "-", "-", resource["problem"] or "no device found"))
    return table(_HEAD, rows)
