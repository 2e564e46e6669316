"""What a method of discovery finds, before its nodes are grouped and it becomes a device."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

from ...declaration.model import Attributes
from ...declaration.names import MAX_DEVICE_ID

#: Two colons mark a share of a device (declaration.model.SHARE).
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.:-]|::+")
_ENDS = "_.:-"
_HASH = 8


class Node(NamedTuple):
    """A device node: its path in a container, and on the host, where no link leads any further.

    is_common: whether every device of the resource is given it.
    """

    path: str
    host_path: str
    is_common: bool = False


class Found(NamedTuple):
    """Something found.

    name: what tells it from everything else on the node, the same each time it is found. other_name: under which it may
    be offered already, and then stays.
    own: its nodes; a path's own one, or all that the drivers of a USB or PCI device made.
    on_bus: whether patterns in ``nodes`` choose among its own nodes, instead of adding to them.
    known_as: what ``exclude`` may call it. properties: what templates may name.
    """

    name: str
    own: tuple[Node, ...]
    on_bus: bool
    properties: dict[str, str]
    known_as: tuple[str, ...]
    numa_node: int | None = None
    attributes: Attributes = Attributes()
    other_name: str = ""


def device_id(name: str, room: int = MAX_DEVICE_ID) -> str:
    """A legal CDI device name of at most ``room`` characters for ``name``, the same each time.

    What is illegal or too long is replaced, and a part of the name's SHA-256 keeps it apart from the like.
    """
    legal = _ILLEGAL.sub("_", name).strip(_ENDS)
    if legal == name and len(legal) <= room:
        return legal
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_HASH]
    return (legal[: room - _HASH - 1].rstrip(_ENDS) + "-" + digest).lstrip("-")
