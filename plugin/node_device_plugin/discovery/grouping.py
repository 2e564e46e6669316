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
    nodes: List[Node] = [] if found.on_bus and wanted else list(found.own)
    escaped = {name: glob.escape(value) for name, value in found.properties.items()}
    for each in wanted:
        if found.on_bus and wildcards(each.path):
            pattern = compiled(fill(each.path, escaped))
            there = [node for node in found.own if pattern.match(node.path)]
        else:
            paths = [path for path in root.glob(fill(each.path, escaped)) if root.is_device_node(path)]
            there = [Node(path, root.resolve(path) or path) for path in paths]
        if not there and not each.optional:
            return None
        nodes.extend(node for node in there if node not in nodes)
    return tuple(nodes)
