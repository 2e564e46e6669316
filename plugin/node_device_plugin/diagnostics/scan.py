"""The command ``scan``: lists this machine's devices, with a declaration to paste for each class of devices.

The result is data for JSON. On the controller, the playbook ``scan.yml`` also reads this data.

resources: each suggested resource with ``class``, ``about`` (a remark for the user), ``declaration`` and its
``devices`` on this machine (``id``, ``what``, ``nodes``, ``cdi_devices``). unsuggested: devices without a suggestion
(``class``, ``what``, ``nodes``, ``address`` on the PCI bus, ``reason``). problems: one sentence for each failed read.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..cdi.directories import DEFAULT_DIRECTORIES
from ..cdi.links import Links
from ..declaration import DeclarationError, Device, parse_resources
from ..declaration.names import cdi_kind_problem, resource_name_problem
from ..declaration.variables import is_expression
from ..devices.discovery import Discovered, Discoverer
from ..devices.discovery.pci import DIRECTORY as PCI
from ..devices.discovery.root import Root
from ..devices.discovery.sysfs import upward
from ..devices.discovery.usb import DIRECTORY as USB
from ..support.bounded_calls import Key
from ..support.tables import few, printable, shortened, table
from .discovered import shown_nodes
from .suggestions import RULES, Suggestion, Unsuggested, class_directory, pci_name, usb_name

#: The domain of suggested resources if the user names none.
DOMAIN = "devices.example.com"
_REPLACE = f"# Keep what pods need, and replace the domain {DOMAIN} with yours."
_MORE = "To print these resources for an inventory: node-device-plugin scan -o yaml"
#: A remark for a resource with several devices.
_CHOICE = "A pod gets any of these devices. With api: dra, its claim can choose one by the id or an attribute."
_HEAD = ("CLASS", "WHAT", "DEVICE", "SUGGESTED RESOURCE")
#: Text that needs no quotes for any YAML parser.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./*-]*")
_WORDS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
_WIDTH = 100
#: Longest comment, and most comments of a kind: the text of a device may be of any length.
_LONGEST, _MOST = 300, 100
#: The keys of a suggestion, of its devices and of their nodes. No other key of a declaration is suggested.
_SUGGESTED = {"name", "discover", "devices", "env", "replicas", "container_limit"}
_OF_DEVICE, _OF_NODE = {"id", "nodes"}, {"path"}


def domain_problem(domain: str) -> str | None:
    """Why resources and CDI kinds cannot have this domain, or None."""
    return resource_name_problem(f"{domain}/name") or cdi_kind_problem(f"{domain}/name")


async def scan(
    domain: str = DOMAIN,
    links: Links | None = None,
    root: str = "/",
    spec_dirs: Sequence[str] = DEFAULT_DIRECTORIES,
) -> dict[str, Any]:
    """Look for devices of every class. If a class cannot be read in time, ``problems`` has the reason.

    domain: the domain of the suggested names. spec_dirs: the directories in which the runtime reads CDI specs.
    """
    links = links or Links()
    inside = Root(root, spec_dirs)
    answers = await links.calls.run(
        [(Key(name, "scan"), functools.partial(_listed, rule, inside)) for name, rule in RULES]
    )
    listed: list[Suggestion | Unsuggested] = []
    problems = []
    for name, _rule in RULES:
        answer = answers[Key(name, "scan")]
        if isinstance(answer, Exception):
            problems.append(f"{name}: {_why(answer)}")
        else:
            listed.extend(answer)
    suggestions, refused = _named_suggestions(listed, domain)
    problems.extend(refused)
    resources = parse_resources([{"name": name, **each.declaration} for name, each in suggestions.items()])
    discoverer = Discoverer(links, root)
    found = await discoverer.discover(resources, dict, spec_dirs=spec_dirs)
    problems.extend("{}: {}".format(*late) for late in discoverer.late.items())
    devices = {each.name: (*each.devices, *found.get(each.name, Discovered((), ())).devices) for each in resources}
    # Read the names with a time limit, because reading sysfs blocks while a device resets.
    names = await links.calls.run(
        [(Key(name, "names"), functools.partial(_names, each, inside)) for name, each in devices.items()]
    )
    return {
        "resources": [
            {
                "class": each.kind,
                "about": " ".join(filter(None, [each.about, _CHOICE if len(devices[name]) > 1 else ""])),
                "declaration": {"name": name, **each.declaration},
                "devices": list(_devices(devices[name], names[Key(name, "names")])),
            }
            for name, each in suggestions.items()
            if devices[name]
        ],
        "unsuggested": _without_suggestion(listed, suggestions, found, devices),
        "problems": problems,
    }


def _named_suggestions(
    listed: Sequence[Suggestion | Unsuggested], domain: str
) -> tuple[dict[str, Suggestion], list[str]]:
    """The valid suggestions by a name of their own, and the problems of the others."""
    suggestions: dict[str, Suggestion] = {}
    problems: list[str] = []
    for each in listed:
        if isinstance(each, Suggestion):
            name = f"{domain}/{each.name}"
            while name in suggestions:
                name += "-2"
            try:
                parse_resources([{"name": name, **each.declaration}], each.kind)
                suggestions[name] = each
            except DeclarationError as error:
                problems.extend(map(str, error.problems))
    return suggestions, problems


def _without_suggestion(
    listed: Sequence[Suggestion | Unsuggested],
    suggestions: Mapping[str, Suggestion],
    found: Mapping[str, Discovered],
    devices: Mapping[str, Sequence[Device]],
) -> list[dict[str, Any]]:
    """The devices without a suggestion, also those that discovery leaves out. devices: those with a suggestion."""
    without = [each for each in listed if isinstance(each, Unsuggested)]
    without += [
        _left_out(suggestions[name].kind, device, reason)
        for name, each in found.items()
        for device, reason in each.left_out
        # Skip hardware that another suggestion already has.
        if " is already " not in reason
    ]
    paths = {node.host_path for each in devices.values() for device in each for node in device.nodes}
    addresses = {device.attributes.pci_address for each in devices.values() for device in each} - {None}
    return [
        {
            "class": each.kind,
            "what": each.what,
            "nodes": list(each.nodes),
            "address": each.address,
            "reason": each.reason,
        }
        for each in without
        if each.address not in addresses and paths.isdisjoint(each.nodes)
    ]


def to_text(data: Mapping[str, Any]) -> str:
    """The result of ``scan`` as tables."""
    rows = [
        (resource["class"], device["what"], _place(device), resource["declaration"]["name"])
        for resource in data["resources"]
        for device in resource["devices"]
    ]
    without = [
        (each["class"], each["what"], ", ".join(each["nodes"]) or each["address"], each["reason"])
        for each in data["unsuggested"]
    ]
    parts = [table(_HEAD, rows)] if rows else ["No device was found that a declaration could offer."]
    if without:
        parts.append(table((*_HEAD[:-1], "WHY NO RESOURCE IS SUGGESTED"), without))
    if data["problems"]:
        parts.append("\n".join(printable(f"Not complete: {problem}") for problem in data["problems"]))
    return "\n\n".join([*parts, _MORE] if rows else parts)


def to_yaml(data: Mapping[str, Any]) -> str:
    """The result of ``scan`` as a variable for the inventory."""
    entries = [([described(each, device) for device in each["devices"]], each) for each in data["resources"]]
    return inventory(entries, remarks(data))


def remarks(data: Mapping[str, Any]) -> list[str]:
    """A line for each device without a suggestion, and for each class that could not be read."""
    left_out = [
        "{}: {}".format(" ".join([each["what"], ", ".join(each["nodes"]) or each["address"]]).strip(), each["reason"])
        for each in data["unsuggested"]
    ]
    return [*left_out, *(f"Not complete: {problem}" for problem in data["problems"])]


def described(resource: Mapping[str, Any], device: Mapping[str, Any]) -> str:
    """One line with a device's class, name and place."""
    return "{}: {}".format(resource["class"], ", ".join(filter(None, (device["what"], _place(device)))))


def inventory(entries: Sequence[tuple[Sequence[str], Mapping[str, Any]]], remarks: Sequence[str] = ()) -> str:
    """Suggested resources as a variable for the inventory.

    entries: each resource from ``scan``, after the comments to print above it. remarks: comments at the end.
    """
    reasons = [reason_not_to_paste(resource["declaration"]) for _comments, resource in entries]
    refused = [
        f"A resource of class {entry[1]['class'][:40]} is not suggested: {reason}"
        for entry, reason in zip(entries, reasons)
        if reason
    ]
    entries = [entry for entry, reason in zip(entries, reasons) if not reason]
    remarks = [*refused, *remarks]
    is_example = any(resource["declaration"]["name"].startswith(DOMAIN + "/") for _comments, resource in entries)
    lines = [_REPLACE] if is_example else []
    lines.append("node_devices_resources:" if entries else "node_devices_resources: []")
    for number, (comments, resource) in enumerate(entries):
        lines += [""] if number else []
        lines += [f"  # {text}" for text in _as_comments([*comments, resource["about"]])]
        first, *others = _block(resource["declaration"], 4)
        lines += ["  - " + first.lstrip(), *others]
    lines += ["", *(f"# {text}" for text in _as_comments(remarks))] if remarks else []
    return "\n".join(lines)


def reason_not_to_paste(declaration: Any) -> str | None:
    """Why a suggested resource must not become part of an inventory, or None.

    On the controller, the suggestion comes from a node, which is not trusted with the declaration of other nodes. Texts
    may come from a device, such as the name of its node.
    """
    try:
        parse_resources([declaration])
    except (DeclarationError, RecursionError, TypeError, ValueError) as error:
        return f"it is no valid declaration: {error}"
    devices = declaration.get("devices", ())
    nodes = [node for device in devices for node in device.get("nodes", ())]
    parts = (
        (declaration, _SUGGESTED),
        *((each, _OF_DEVICE) for each in devices),
        *((each, _OF_NODE) for each in nodes),
    )
    others = {key for part, known in parts for key in part if key not in known}
    if others:
        return f"it has {', '.join(sorted(others))}, which a scan never suggests"
    if is_expression(json.dumps(declaration, ensure_ascii=False)):
        return "it contains {{, {% or {#, and Ansible would evaluate that as an expression: rename the device"
    return None


def _as_comments(texts: Sequence[str]) -> list[str]:
    """Texts as comments of one line each."""
    return few([shortened(text, _LONGEST) for text in texts if text], _MOST)


def _left_out(kind: str, device: Device, reason: str) -> Unsuggested:
    nodes = tuple(node.host_path for node in device.nodes)
    what = next(iter(device.cdi_devices), device.id)
    return Unsuggested(kind, what, nodes, reason, device.attributes.pci_address or "")


def _listed(rule: Any, root: Root) -> list[Suggestion | Unsuggested]:
    return list(rule(root))


def _why(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"this Python has no module {error.name}, which YAML specs need: install PyYAML"
    return str(error) if isinstance(error, TimeoutError) else f"failed: {error!r}"


def _names(devices: Sequence[Device], root: Root) -> list[str]:
    return [_name(device, root) for device in devices]


def _name(device: Device, root: Root) -> str:
    """The name of a device on this machine; empty if unknown."""
    if device.attributes.pci_address:
        return pci_name(f"{PCI}/{device.attributes.pci_address}", root)
    if device.attributes.usb_vendor:
        return usb_name("{}/{}".format(USB, device.properties["port"]), root)
    if device.cdi_devices:
        return device.cdi_devices[0].partition("=")[0]
    directory = class_directory(device.nodes[0].host_path, root)
    # These files contain the name of a camera, the model of a watchdog or the name of an InfiniBand device.
    own = [root.text(f"{directory}/{name}") for name in ("name", "identity", "ibdev") if directory]
    return next(filter(None, (*own, *(_above(each, root) for each in upward(directory)))), "")


def _above(directory: str, root: Root) -> str:
    files = set(root.names(directory))
    if "idVendor" in files:
        return usb_name(directory, root)
    if {"vendor", "device", "class"} <= files:
        return pci_name(directory, root)
    # Only a sound card has both files.
    return root.text(directory + "/id") if {"id", "number"} <= files else ""


def _devices(devices: Sequence[Device], names: Any) -> Iterator[dict[str, Any]]:
    whats = names if isinstance(names, list) else [""] * len(devices)
    for device, what in zip(devices, whats):
        nodes = [{"path": node.path, "host_path": node.host_path} for node in device.nodes]
        yield {"id": device.id, "what": what, "nodes": nodes, "cdi_devices": list(device.cdi_devices)}


def _place(device: Mapping[str, Any]) -> str:
    """The nodes of a device, or else its CDI names, or else its id, which contains a PCI device's address."""
    return shown_nodes(device["nodes"]) or ", ".join(device["cdi_devices"]) or str(device["id"])


def _block(mapping: Mapping[str, Any], indent: int) -> Iterator[str]:
    """A mapping as lines of YAML. Inner mappings, devices and long lists have a line for each entry."""
    space = " " * indent
    for key, value in mapping.items():
        flow = _flow(value)
        if isinstance(value, dict):
            yield f"{space}{_scalar(key)}:"
            yield from _block(value, indent + 2)
        elif isinstance(value, list) and (key == "devices" or len(flow) > _WIDTH):
            yield f"{space}{_scalar(key)}:"
            yield from (f"{space}  - {_flow(each)}" for each in value)
        else:
            yield f"{space}{_scalar(key)}: {flow}"


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    # YAML has no surrogate pairs, which JSON uses to escape characters above U+FFFF.
    text = json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in text)
