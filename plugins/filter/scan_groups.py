# SPDX-License-Identifier: Apache-2.0
"""Groups nodes for which a scan suggests the same resources."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ...plugin.node_device_plugin.diagnostics import scan
from ...plugin.node_device_plugin.support.tables import printable


def scan_groups(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the suggestions for ``hosts`` as one text. A host without a scan has a line with the reason.

    hostvars: the variables of all hosts, with the result of module node_scan in ``node_devices_scan``. Each group of
    nodes is a part of the text, and its declaration is a variable for the inventory.
    """
    groups: dict[str, dict[str, Mapping[str, Any]]] = {}
    failed = []
    for host in hosts:
        result = hostvars[host].get("node_devices_scan") or {}
        if "scan" not in result:
            failed.append(f"# {host}: not scanned: {_why(result, hostvars[host])}")
            continue
        data = result["scan"]
        try:
            _group({host: data})
            key = json.dumps([each["declaration"] for each in data["resources"]])
        # A wrong answer of one node must not hide the others'.
        except (AttributeError, LookupError, TypeError, ValueError):
            failed.append(f"# {host}: not scanned: the command scan printed something else")
            continue
        groups.setdefault(key, {})[host] = data
    parts = [_group(scans) for scans in groups.values()]
    return "\n\n\n".join([*parts, "\n".join(failed)] if failed else parts)


def _group(scans: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a group's part of the text. scans: of the group's nodes, which have the same declarations."""
    first = next(iter(scans.values()))
    entries = [
        (_by_host({host: _devices(data["resources"][number]) for host, data in scans.items()}), resource)
        for number, resource in enumerate(first["resources"])
    ]
    remarks = _by_host({host: scan.remarks(data) for host, data in scans.items()})
    return f"# {', '.join(scans)}\n{scan.inventory(entries, remarks)}"


def _devices(resource: Mapping[str, Any]) -> list[str]:
    """Return a line for each kind of device, with the number of devices."""
    counts = collections.Counter(
        ": ".join(filter(None, (resource["class"], device["what"]))) for device in resource["devices"]
    )
    return [f"{count} x {text}" for text, count in counts.items()]


def _by_host(lines: Mapping[str, Sequence[str]]) -> list[str]:
    """Return each line once. If only some hosts have a line, the line begins with these hosts."""
    hosts: dict[str, list[str]] = collections.defaultdict(list)
    for host, texts in lines.items():
        for text in texts:
            hosts[text].append(host)
    return [text if len(of) == len(lines) else f"{', '.join(of)}: {text}" for text, of in hosts.items()]


def _why(result: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    if result.get("skipped"):
        if boolean(variables.get("node_devices_profile") or False, strict=False):
            return "a profile stands for nodes that no inventory lists, so scan one of these nodes as a host of its own"
        return "Ansible does not connect to this host, because only the Kubernetes API reaches it"
    reason = str(result.get("msg") or "the play ended for this host before").removeprefix("Task failed: ")
    return printable(" ".join(reason.split()))


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Return the filters' functions by name."""
        return {"scan_groups": scan_groups}
