# SPDX-License-Identifier: Apache-2.0
"""Checks the variables of the role host_devices."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..module_utils.udev_rules import Rule

#: The role's variables, without their prefix. The role creates what they list.
MAKERS = ("modules", "udev_rules", "nodes")
_MODULE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_USER = re.compile(r"[a-z_][a-z0-9_-]*|\d+")
_MODE = re.compile(r"0?[0-7]{3}")
# Directories whose content the kernel and udev create.
_MADE = ("/dev/", "/proc/", "/run/", "/sys/", "/var/run/")
# Matches a rule of udev(7): assignments (KEY, operator, quoted value), separated by commas or white space.
_RULE = re.compile(r'\s*([A-Z_]+(\{[^}]+\})?\s*(==|!=|=|\+=|-=|:=)\s*(e|i)?"([^"\\]|\\.)*"\s*,?\s*)+')


def problems(
    modules: Sequence[Mapping[str, Any]], udev_rules: Sequence[str], nodes: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return one line for each mistake, with variable and position."""
    return [
        *_module_problems(modules),
        *(
            f'host_devices_udev_rules[{position}]: must be a udev rule on one line (KEY=="value", …), not {rule!r}'
            for position, rule in enumerate(udev_rules)
            if not _RULE.fullmatch(rule) or "\n" in rule
        ),
        *_node_problems(nodes),
    ]


def _module_problems(modules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for position, module in enumerate(modules):
        where = f"host_devices_modules[{position}]"
        if not _MODULE.fullmatch(module["name"]):
            yield f"{where}.name: must be the name of a kernel module, not {module['name']!r}"
        if module["name"].replace("-", "_") in seen:
            yield f"{where}.name: {module['name']} is listed twice: remove one entry"
        seen.add(module["name"].replace("-", "_"))
        if "\n" in (module.get("options") or ""):
            yield f"{where}.options: must be one line"


def _node_problems(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for position, node in enumerate(nodes):
        where, path = f"host_devices_nodes[{position}]", node["path"]
        if not path.startswith("/dev/") or posixpath.normpath(path) != path or re.search(r"[\s%\"'\\]", path):
            yield (
                f"{where}.path: must be a path below /dev, in its shortest form, without spaces, quotes or %, not "
                f"{path!r}"
            )
        if path in seen:
            yield f"{where}.path: {path} is listed twice: remove one entry"
        seen.add(path)
        # The kernel limits the numbers to 12 and 20 bits (include/linux/kdev_t.h).
        for key, bits in (("major", 12), ("minor", 20)):
            if not 0 <= node[key] < 1 << bits:
                yield f"{where}.{key}: must be from 0 to {(1 << bits) - 1}, not {node[key]}"
        for key in ("owner", "group"):
            if not _USER.fullmatch(str(node.get(key) or "root")):
                yield f"{where}.{key}: must be a name or a number, not {node[key]!r}"
        if not _MODE.fullmatch(str(node.get("mode") or "0600")):
            yield f'{where}.mode: must be three octal digits in quotes such as "0660", not {node["mode"]!r}'


def may_make(path: str, modules: Sequence[Any], udev_rules: Sequence[str], nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the role may create a path. Nobody knows beforehand what a kernel module creates."""
    if any(isinstance(node, Mapping) and node.get("path") == path for node in nodes):
        return True
    return path.startswith(_MADE) and (bool(modules) or any(Rule(str(rule)).may_make(path) for rule in udev_rules))
