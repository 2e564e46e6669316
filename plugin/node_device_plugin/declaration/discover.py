"""The key ``discover`` of a resource, read and checked."""

from __future__ import annotations

import re
from typing import AbstractSet, Any, List, Mapping, Optional

from . import fields
from .model import Discovery, GroupedNode, PciSelector, UsbSelector
from .patterns import fill, pattern_problem, placeholders
from .problems import Problem

_ID = re.compile(r"[0-9A-Fa-f]{4}")
_CLASS = re.compile(r"([0-9A-Fa-f]{2}){1,3}")


def parse_discovery(item: Mapping[str, Any], where: str, problems: List[Problem]) -> Discovery:
    """``item``: normalised. What does not fit is appended to ``problems``."""
    found: List[Problem] = []
    for position, pattern in enumerate(item["paths"]):
        _path_pattern(pattern, "%s.paths[%d]" % (where, position), found)
    # What was refused is not there any more, but was meant to select something.
    meant = {problem.where.rpartition(".")[0] for problem in problems}
    usb = tuple(_usb(each, "%s.usb[%d]" % (where, position), meant, found) for position, each in enumerate(item["usb"]))
    pci = tuple(_pci(each, "%s.pci[%d]" % (where, position), meant, found) for position, each in enumerate(item["pci"]))
    for position, pattern in enumerate(item["exclude"]):
        message = "is empty" if not pattern else pattern_problem(pattern)
        if not message and not pattern.startswith("/") and not (usb or pci):
            message = "matches no path: no wildcard stands for a '/', so it has to begin with one"
        if message:
            found.append(Problem("%s.exclude[%d]" % (where, position), message))
    discovery = Discovery(
        paths=tuple(pattern or "" for pattern in item["paths"]),
        usb=usb,
        pci=pci,
        nodes=tuple(
            GroupedNode(node["path"] or "", node["optional"], node["container_path"]) for node in item["nodes"]
        ),
        exclude=tuple(pattern or "" for pattern in item["exclude"]),
        permissions=fields.permissions(item["permissions"], where + ".permissions", found),
        uid=item["uid"],
        gid=item["gid"],
        mode=fields.mode(item["mode"], where + ".mode", found),
        container_path=item["container_path"],
    )
    if not discovery.methods and discovery != Discovery():
        found.append(Problem(where, "says nothing about what to look for: it takes paths, usb or pci"))
    if discovery.container_path is not None and (usb or pci):
        message = "is for paths: what a USB or PCI device gives stands in nodes, each with a container_path of its own"
        found.append(Problem(where + ".container_path", message))
    _container_path(discovery.container_path, where, discovery, found)
    for position, node in enumerate(discovery.nodes):
        place = "%s.nodes[%d]" % (where, position)
        if node.path:
            _path_pattern(node.path, place + ".path", found, is_template=True)
        _placeholders(node.path, place + ".path", discovery, discovery.property_names(), found)
        _container_path(node.container_path, place, discovery, found)
    problems.extend(found)
    return discovery


def _container_path(template: Optional[str], where: str, discovery: Discovery, problems: List[Problem]) -> None:
    if template is not None:
        where += ".container_path"
        fields.absolute(template, where, problems)
        if re.search(r"[][*?{}]", fill(template, dict.fromkeys(placeholders(template), ""))):
            problems.append(Problem(where, "is no pattern: nothing but placeholders stands for something else in it"))
        _placeholders(template, where, discovery, discovery.property_names() | {"name"}, problems)


def _placeholders(
    template: str, where: str, discovery: Discovery, known: AbstractSet[str], problems: List[Problem]
) -> None:
    unknown = [name for name in placeholders(template) if name not in known]
    if unknown and discovery.methods:
        named = ", ".join(sorted(known)) or "none"
        problems.append(Problem(where, "{%s} is not known of every device found; known are: %s" % (unknown[0], named)))


def _path_pattern(pattern: Optional[str], where: str, problems: List[Problem], is_template: bool = False) -> None:
    fields.absolute(pattern, where, problems)
    message = pattern_problem(pattern or "", is_template)
    if message:
        problems.append(Problem(where, message))


def _usb(item: Mapping[str, Any], where: str, meant: AbstractSet[str], problems: List[Problem]) -> UsbSelector:
    if not any(item.values()) and where not in meant:
        problems.append(Problem(where, "would take every USB device: it takes vendor, product or serial"))
    message = pattern_problem(item["serial"] or "")
    if message:
        problems.append(Problem(where + ".serial", message))
    return UsbSelector(
        _hexadecimal(item["vendor"], where + ".vendor", problems),
        _hexadecimal(item["product"], where + ".product", problems),
        item["serial"],
    )


def _pci(item: Mapping[str, Any], where: str, meant: AbstractSet[str], problems: List[Problem]) -> PciSelector:
    if not any(item.values()) and where not in meant:
        problems.append(Problem(where, "would take every PCI device: it takes vendor, device or class_code"))
    code = item["class_code"]
    if code is not None and not _CLASS.fullmatch(code):
        problems.append(Problem(where + ".class_code", "must be two, four or six hexadecimal digits, not %r" % code))
    return PciSelector(
        _hexadecimal(item["vendor"], where + ".vendor", problems),
        _hexadecimal(item["device"], where + ".device", problems),
        code.lower() if code is not None else None,
    )


def _hexadecimal(text: Optional[str], where: str, problems: List[Problem]) -> Optional[str]:
    if text is None:
        return None
    if not _ID.fullmatch(text):
        problems.append(Problem(where, "must be four hexadecimal digits, in quotes, not %r" % text))
    return text.lower()
