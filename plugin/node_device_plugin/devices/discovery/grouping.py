"""Groups nodes into one device and sets their paths in a container."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

from ...declaration.model import Discovery
from ...declaration.patterns import compiled, fill, placeholders, wildcards
from .found import Found, Node
from .root import Root


def grouped(found: Found, discovery: Discovery, root: Root) -> tuple[tuple[Node, ...], str]:
    """All nodes of a device, its own first, and why the device cannot be offered, or empty."""
    if not discovery.nodes and discovery.container_path is None:
        return found.own, ""
    nodes: list[Node] = []
    if not (found.on_bus and discovery.nodes):
        nodes.extend(_inside(node, discovery.container_path, found.properties) for node in found.own)
    values = _in_paths(found.properties)
    escaped = {name: glob.escape(value) for name, value in values.items()}
    for each in discovery.nodes:
        if found.on_bus and not found.cdi_name and wildcards(each.path):
            pattern = compiled(fill(each.path, escaped))
            there = [node for node in found.own if pattern.match(node.path)]
        else:
            # A property such as a serial number is the device's own text: ".." must not lead to other devices.
            matches = [path for path in root.glob(fill(each.path, escaped)) if os.path.normpath(path) == path]
            paths = [(path, root.device_node(path)) for path in matches]
            there = [Node(path, host_path, each.is_common) for path, host_path in paths if host_path is not None]
        if not there and not each.optional:
            # A wildcard of a path may match nothing, but a bus that does not tell a property has no such node.
            empty = [name for name in placeholders(each.path) if found.on_bus and not found.properties[name]]
            return (), found.without(f"{empty[0]} for {each.path}" if empty else fill(each.path, values))
        if each.placeholder and len(there) > 1:
            paths_there = ", ".join(node.path for node in there)
            return (), f"{found.known_as[0]} matched, but {{{each.placeholder}}} could be any of {paths_there}"
        for node in there:
            inside = _inside(node, each.container_path, found.properties)._replace(placeholder=each.placeholder)
            if all(inside.path != other.path for other in nodes):
                nodes.append(inside)
    return tuple(nodes), ""


def _inside(node: Node, template: str | None, properties: Mapping[str, str]) -> Node:
    """The node with its path in a container."""
    if template is None:
        return node
    path = fill(template, {**_in_paths(properties), "name": os.path.basename(node.path)})
    return node._replace(path=path) if os.path.normpath(path) == path else node


def _in_paths(properties: Mapping[str, str]) -> dict[str, str]:
    """The values for paths: a '/' in a property (such as a serial number) makes no directories."""
    return {name: value.replace("/", "_") for name, value in properties.items()}
