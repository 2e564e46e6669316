"""Which nodes make one device."""

from __future__ import annotations

import glob
from typing import List, Optional, Sequence, Tuple

from ..declaration.model import GroupedNode
from ..declaration.patterns import compiled, fill, wildcards
from .found import Found, Node
from .root import Root


def grouped(found: Found, wanted: Sequence[GroupedNode], root: Root) -> Optional[Tuple[Node, ...]]:
    """All nodes of a device, its own first; None where one that is not optional is missing."""
    if not wanted:
        return found.own
    nodes: List[Node] = [] if found.on_bus else list(found.own)
    escaped = {name: glob.escape(value) for name, value in found.properties.items()}
    for each in wanted:
        if found.on_bus and wildcards(each.path):
            pattern = compiled(fill(each.path, escaped))
            there = [node for node in found.own if pattern.match(node.path)]
        else:
            paths = [(path, root.device_node(path)) for path in root.glob(fill(each.path, escaped))]
            there = [Node(path, host_path) for path, host_path in paths if host_path is not None]
        if not there and not each.optional:
            return None
        nodes.extend(node for node in there if node not in nodes)
    return tuple(nodes)
