"""The command ``discover``: shows the devices that a configuration would find on this node, as text or data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..declaration import Device, Resource
from ..declaration.patterns import wildcards
from ..devices.discovery import Discovered
from ..devices.health import unhealthy_reason
from ..support.tables import table

_HEAD = ("RESOURCE", "DEVICE", "NODES", "NUMA", "STATE")


def to_data(resources: Sequence[Resource], found: Mapping[str, Discovered]) -> dict[str, Any]:
    """The devices, ready for JSON. ``problem``: why a device is unhealthy. ``reason``: why a device is left out."""
    nothing = Discovered((), ())
    return {
        "resources": [
            {
                "name": resource.name,
                "devices": [
                    *(_device(device, "declared") for device in resource.devices),
                    *(_device(device, "discovered") for device in found.get(resource.name, nothing).devices),
                ],
                "left_out": [
                    *(
                        {"id": device.id, "reason": reason}
                        for device, reason in found.get(resource.name, nothing).left_out
                    ),
                    *_directories(resource),
                ],
            }
            for resource in resources
        ]
    }


def _directories(resource: Resource) -> Iterator[dict[str, str]]:
    """The configured paths that are directories, as left-out devices: other plugins would add every file in them."""
    for path in resource.discover.paths:
        if not wildcards(path) and os.path.isdir(path):
            yield {"id": path, "reason": f"is a directory, not a device: set a pattern such as {path}/*"}


def _device(device: Device, origin: str) -> dict[str, Any]:
    return {
        "id": device.id,
        "origin": origin,
        "nodes": [{"path": node.path, "host_path": node.host_path} for node in device.nodes],
        "properties": dict(device.properties),
        "attributes": device.attributes.known(),
        "numa_node": device.numa_node,
        "problem": unhealthy_reason(device),
    }


def to_text(data: Mapping[str, Any]) -> str:
    """The result of to_data as a table."""
    if not data["resources"]:
        return "the configuration has no resource, so there is nothing to find"
    rows: list[tuple[str, ...]] = []
    for resource in data["resources"]:
        for device in resource["devices"]:
            nodes = [
                node["host_path"] if node["path"] == node["host_path"] else "{path} -> {host_path}".format(**node)
                for node in device["nodes"]
            ]
            numa = "-" if device["numa_node"] is None else str(device["numa_node"])
            state = device["problem"] or device["origin"]
            rows.append((resource["name"], device["id"], ", ".join(nodes) or "-", numa, state))
        for device in resource["left_out"]:
            rows.append((resource["name"], device["id"], "-", "-", "left out: " + device["reason"]))
        if not resource["devices"] and not resource["left_out"]:
            rows.append((resource["name"], "none", "-", "-", "no device found"))
    return table(_HEAD, rows)
