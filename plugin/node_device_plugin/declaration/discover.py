"""Checks the key ``discover`` of a resource."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from .model import Discovery
from .patterns import placeholders
from .problems import Problem


def discovery_problems(discovery: Discovery, where: str, refused: Collection[str]) -> Iterator[Problem]:
    """Problems that span several values. refused: fields with a known problem; such a field counts as a selection."""
    for key in ("usb", "pci"):
        for position, selector in enumerate(getattr(discovery, key)):
            place = "%s.%s[%d]" % (where, key, position)
            if not any(selector) and not any(field.startswith(place + ".") for field in refused):
                message = "would take every {} device: it takes {}, {} or {}".format(key.upper(), *selector._fields)
                yield Problem(place, message)
    on_bus = discovery.usb or discovery.pci
    for position, pattern in enumerate(discovery.exclude):
        if pattern and not pattern.startswith("/") and not on_bus:
            message = "matches no path: no wildcard stands for a '/', so it has to begin with one"
            yield Problem("%s.exclude[%d]" % (where, position), message)
    if not discovery.methods and discovery != Discovery():
        yield Problem(where, "says nothing about what to look for: it takes paths, usb or pci")
    if discovery.container_path is not None and on_bus:
        message = "is for paths: what a USB or PCI device gives stands in nodes, each with a container_path of its own"
        yield Problem(where + ".container_path", message)
    known = discovery.property_names()
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
            message = "{%s} is not known of every device found; known are: %s"
            yield Problem(place, message % (unknown[0], ", ".join(sorted(names)) or "none"))
