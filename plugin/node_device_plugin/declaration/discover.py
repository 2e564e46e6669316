"""Checks the key ``discover`` of a resource."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from .model import DISCOVERY_METHODS, NODE_METHODS, DeviceNode, Discovery, GroupedNode
from .patterns import placeholders
from .problems import Problem


def discovery_problems(discovery: Discovery, where: str, refused: Collection[str]) -> Iterator[Problem]:
    """Problems between several values. refused: fields with a known problem, which count as set."""
    for key in discovery.methods:
        for position, selector in enumerate(getattr(discovery, key)):
            place = "%s.%s[%d]" % (where, key, position)
            is_empty = hasattr(selector, "_fields") and not any(selector)
            if is_empty and not any(field.startswith(place) for field in refused):
                keys = _alternatives(selector._fields)
                yield Problem(place, f"is empty and would match every {key.upper()} device: set {keys}")
    finds_more = not NODE_METHODS.issuperset(discovery.methods)
    for position, pattern in enumerate(discovery.exclude):
        if pattern and not pattern.startswith("/") and not finds_more:
            message = "can match no path, because no wildcard matches a '/': begin the pattern with '/'"
            yield Problem("%s.exclude[%d]" % (where, position), message)
    if not discovery.methods and discovery != Discovery():
        yield Problem(where, "selects no devices: set " + _alternatives(DISCOVERY_METHODS))
    if discovery.methods == ("cdi",) and not discovery.nodes:
        for key in ("permissions", "uid", "gid", "mode"):
            if getattr(discovery, key) != getattr(Discovery(), key):
                yield Problem(f"{where}.{key}", "has no effect: the CDI spec of the other program sets it")
    if discovery.identify_by != Discovery().identify_by and discovery.methods and not discovery.usb:
        yield Problem(where + ".identify_by", "applies only to usb: remove identify_by")
    if discovery.container_path is not None and finds_more:
        message = "applies only to paths and udev: for other methods, set container_path of each entry in nodes instead"
        yield Problem(where + ".container_path", message)
    known = discovery.property_names()
    yield from node_placeholder_problems(discovery.nodes, where, known)
    templates = [(where + ".container_path", discovery.container_path, known | {"name"})]
    for position, node in enumerate(discovery.nodes):
        place = "%s.nodes[%d]" % (where, position)
        templates += [
            (place + ".path", node.path, known),
            (place + ".container_path", node.container_path, known | {"name"}),
        ]
    for place, template, names in templates:
        unknown = [name for name in placeholders(template or "") if name not in names]
        if unknown and discovery.methods:
            message = "the placeholder {%s} is unknown; discovered devices have: %s"
            yield Problem(place, message % (unknown[0], ", ".join(sorted(names)) or "none"))


def node_placeholder_problems(
    nodes: Sequence[DeviceNode | GroupedNode], where: str, properties: Collection[str]
) -> Iterator[Problem]:
    """Problems of placeholders that nodes set. where: of the nodes' device or discovery. properties: of the device."""
    taken = set(properties)
    for position, node in enumerate(nodes):
        if node.placeholder in taken:
            message = f"{{{node.placeholder}}} is already the placeholder of another node or a property: choose another"
            yield Problem("%s.nodes[%d].placeholder" % (where, position), message)
        taken.update(filter(None, [node.placeholder]))


def _alternatives(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1]
