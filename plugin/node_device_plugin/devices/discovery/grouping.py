"""Groups nodes into one device and sets their paths in a container."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence

from ...declaration.model import Discovery, GroupedNode
from ...declaration.patterns import compiled, fill, placeholders, wildcards
from .method import Found, Node
from .root import Root


def grouped(found: Found, discovery: Discovery, root: Root) -> tuple[tuple[Node, ...], str]:
    """All nodes of a device, its own first, and why the device cannot be offered, or empty."""
    if not discovery.nodes and discovery.container_path is None:
        return found.own, ""
    nodes: list[Node] = []
    if not (found.on_bus and discovery.nodes):
        nodes.extend(_inside(node, discovery.container_path, found.properties) for node in found.own)
    for wanted in discovery.nodes:
        there = _matching(wanted, found, root)
        lack = _lack(wanted, there, found)
        if lack:
            return (), lack
        for node in there:
            inside = _inside(node, wanted.container_path, found.properties)._replace(placeholder=wanted.placeholder)
            if all(inside.path != other.path for other in nodes):
                nodes.append(inside)
    return tuple(nodes), ""


def _matching(wanted: GroupedNode, found: Found, root: Root) -> list[Node]:
    """The nodes that exist at a path of ``discover.nodes``, for this finding."""
    escaped = {name: glob.escape(value) for name, value in _in_paths(found.properties).items()}
    filled = fill(wanted.path, escaped)
    if found.on_bus and not found.cdi_name and wildcards(wanted.path):
        return [node for node in found.own if compiled(filled).match(node.path)]
    # A property such as a serial number is the device's own text: ".." must not lead to other devices.
    paths = [(path, root.device_node(path)) for path in root.glob(filled) if os.path.normpath(path) == path]
    return [Node(path, host_path, wanted.is_common) for path, host_path in paths if host_path is not None]


def _lack(wanted: GroupedNode, there: Sequence[Node], found: Found) -> str:
    """Why the device cannot be offered with these nodes at the path, or empty."""
    if not there and not wanted.optional:
        # A wildcard of a path may match nothing, but a bus that does not tell a property has no such node.
        empty = [name for name in placeholders(wanted.path) if found.on_bus and not found.properties[name]]
        path = fill(wanted.path, _in_paths(found.properties))
        return found.without(f"{empty[0]} for {wanted.path}" if empty else path)
    if wanted.placeholder and len(there) > 1:
        paths = ", ".join(node.path for node in there)
        return f"{found.known_as[0]} matched, but {{{wanted.placeholder}}} could be any of {paths}"
    return ""


def _inside(node: Node, template: str | None, properties: Mapping[str, str]) -> Node:
    """The node with its path in a container."""
    if template is None:
        return node
    path = fill(template, {**_in_paths(properties), "name": os.path.basename(node.path)})
    return node._replace(path=path) if os.path.normpath(path) == path else node


def _in_paths(properties: Mapping[str, str]) -> dict[str, str]:
    """The values for paths: a '/' in a property (such as a serial number) makes no directories."""
    return {name: value.replace("/", "_") for name, value in properties.items()}
