"""Devices of other programs' CDI specs, such as those of nvidia-ctk.

Facts: nvidia-ctk names a GPU by its index (0 or gpu0) and its UUID (GPU-…), a MIG part by both indexes (0:1 or mig0:1)
and its UUID (MIG-…), and all devices together ``all``. A MIG part has the node of its GPU beside nodes of its own. On
WSL only ``all`` exists (NVIDIA Container Toolkit, pkg/nvcdi).
"""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...cdi.reader import SpecReader
from ...cdi.resolution import UUID, Resolution, same_device
from ...declaration.model import Attributes, CdiSelector, Device, Discovery
from ...declaration.names import kind_and_name, qualified_cdi_name
from ...declaration.patterns import compiled
from ..table import natural_order
from .found import Found
from .method import DiscoveryMethod
from .root import Root
from .sysfs import driver_and_subsystem, numa_node

#: Names of MIG parts: the UUID, and the indexes of GPU and part.
_PART = re.compile(r"MIG-.*|(mig)?\d+:\d+")
#: The node of a GPU, which each of its MIG parts has, too.
_WHOLE = re.compile(r"nvidia\d+")
#: Virtual devices of this class are control devices, such as /dev/infiniband/rdma_cm: a driver has one.
_CONTROL = "/sys/devices/virtual/misc/"
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class _Listed(NamedTuple):
    """A device of a spec. names: all its names, the one for its id first. nodes: the host paths of its device nodes."""

    names: tuple[str, ...]
    nodes: frozenset[str]

    @property
    def part_of(self) -> frozenset[str]:
        """The nodes of the whole device; empty if the device is no part."""
        return _part_of(self.names, self.nodes)


class Reserved(NamedTuple):
    """What declared devices already use from other programs' CDI specs.

    names: each fully qualified name, and every other name of the same device, with the declared device. nodes: each
    host path that only one declared device uses, with that device. of_parts: each host path of a whole device of which
    a declared device is a part, with the declared device.
    """

    names: Mapping[str, str]
    nodes: Mapping[str, str]
    of_parts: Mapping[str, str]


NOTHING_RESERVED = Reserved({}, {}, {})


class Cdi(DiscoveryMethod):
    """The devices of one kind in the runtime's CDI directories."""

    key = "cdi"
    needs_uevents = False

    def __init__(self) -> None:
        self._readers: dict[tuple[str, ...], SpecReader] = {}
        #: By directories and kind: the specs, and their devices.
        self._known: dict[tuple[str, ...], tuple[Resolution, list[_Listed]]] = {}

    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every device of the kind that a container can get alone, by name."""
        selector = discovery.cdi
        listed = self._devices(selector.kind, root)
        owners = collections.Counter(node for device in listed for node in device.nodes)
        directories = [_pci_directory_of(device, root) for device in listed]
        on_bus = collections.Counter(directories)
        for device, directory in zip(listed, directories):
            if not _is_selected(selector, device.names):
                continue
            name, part_of = device.names[0], device.part_of
            address = os.path.basename(directory)
            own = {node for node in device.nodes - part_of if owners[node] == 1}
            yield Found(
                _id(selector.kind, name, address if on_bus[directory] == 1 else ""),
                (),
                True,
                {"kind": selector.kind, "name": name, "pci_address": address},
                device.names,
                numa_node(directory, root) if directory else None,
                Attributes(pci_address=address, **driver_and_subsystem(directory, root)) if directory else Attributes(),
                cdi_name=qualified_cdi_name(selector.kind, name),
                cdi_paths=_real(_without_control(own, root), root),
                part_of=_real(part_of, root),
                # Drivers count device nodes anew at each start, while a UUID stays.
                identity=qualified_cdi_name(selector.kind, name) if UUID.search(name) else "",
            )

    def reserved(self, declared: Mapping[str, Device], root: Root) -> Reserved:
        """What declared devices use from the specs. declared: the devices, by their names in messages."""
        specs = self._specs(root)
        names: dict[str, str] = {}
        nodes: dict[str, str] = {}
        same: dict[tuple[str, str], str] = {}
        of_parts: dict[str, str] = {}
        own: dict[str, set[str]] = {}
        for owner, device in declared.items():
            for name in device.cdi_devices:
                part_of = _part_of([name.partition("=")[2]], specs.nodes(name))
                of_parts.update(dict.fromkeys(part_of, owner))
                own.setdefault(owner, set()).update(specs.nodes(name) - part_of)
        shared = collections.Counter(path for paths in own.values() for path in paths)
        for owner, device in declared.items():
            names.update(dict.fromkeys(device.cdi_devices, owner))
            nodes.update({path: owner for path in own[owner] if shared[path] == 1})
            there = [name for name in device.cdi_devices if name in specs.edits]
            same.update(((name.partition("=")[0], same_device(specs.edits[name])), owner) for name in there)
        kinds = {kind for kind, _text in same}
        for name, edits in specs.edits.items():
            if name.partition("=")[0] in kinds:
                names.setdefault(name, same.get((name.partition("=")[0], same_device(edits)), ""))
        return Reserved({name: owner for name, owner in names.items() if owner}, nodes, of_parts)

    def _specs(self, root: Root) -> Resolution:
        directories = tuple(root.on_host(directory) for directory in root.spec_dirs)
        return self._readers.setdefault(directories, SpecReader(directories, root.on_host("/sys"))).read()

    def _devices(self, kind: str, root: Root) -> list[_Listed]:
        """The devices of the kind that a container would get from another program's spec and that can be offered."""
        key, specs = (*root.spec_dirs, root.on_host("/"), kind), self._specs(root)
        known = self._known.get(key)
        if known is None or known[0] is not specs:
            known = self._known[key] = specs, _offered(_listed(kind, specs))
        return known[1]


def _listed(kind: str, specs: Resolution) -> list[_Listed]:
    """Names with the same edits as one device, in natural order."""
    same: dict[str, list[str]] = {}
    for name in specs.foreign():
        if specs.files[name].kind == kind:
            same.setdefault(same_device(specs.edits[name]), []).append(name.partition("=")[2])
    listed = [
        _Listed(tuple(sorted(names, key=_rank)), specs.nodes(qualified_cdi_name(kind, names[0])))
        for names in same.values()
    ]
    return sorted(listed, key=lambda device: natural_order(device.names[0]))


def _rank(name: str) -> tuple[Any, ...]:
    """The order of a device's names: a UUID stays with its device, while an index may move to another one."""
    return not UUID.search(name), name == "all", name.replace(":", "").isdecimal(), natural_order(name)


def _offered(listed: Sequence[_Listed]) -> list[_Listed]:
    """The devices, without a device that consists of several others, and without a GPU that has MIG parts."""
    # "all" may have nodes of its own, or be of devices without nodes.
    listed = [device for device in listed if device.names != ("all",)] or listed
    unions = _unions({device.nodes for device in listed})
    single = [device for device in listed if device.nodes not in unions]
    of_parts = frozenset().union(*(device.part_of for device in single))
    return [device for device in single if device.part_of or not device.nodes & of_parts]


def _part_of(names: Iterable[str], nodes: Iterable[str]) -> frozenset[str]:
    """The nodes of the whole device if the names are those of a part: two parts and their whole share nothing else."""
    if not any(map(_PART.fullmatch, names)):
        return frozenset()
    return frozenset(node for node in nodes if _WHOLE.fullmatch(os.path.basename(node)))


def _without_control(nodes: Collection[str], root: Root) -> Collection[str]:
    """The nodes without control nodes, which other kinds may have, too; all nodes if all are control nodes."""
    if len(nodes) < 2:
        return nodes
    directories = {node: root.resolve("/sys/dev/" + root.device_number(node)) or "" for node in nodes}
    return [node for node, directory in directories.items() if not directory.startswith(_CONTROL)] or nodes


def _real(nodes: Iterable[str], root: Root) -> tuple[str, ...]:
    return tuple(sorted(root.device_node(node) or node for node in nodes))


def _unions(devices: Collection[frozenset[str]]) -> set[frozenset[str]]:
    """The devices whose nodes are those of several other devices together. devices: the nodes of each."""
    givers = collections.Counter(node for nodes in devices for node in nodes)
    # A part of a device has its rarest node in common with the device, so thousands of GPUs need few comparisons.
    by_rarest: dict[str, list[frozenset[str]]] = {}
    for nodes in filter(None, devices):
        by_rarest.setdefault(min(nodes, key=lambda node: (givers[node], node)), []).append(nodes)
    return {
        nodes
        for nodes in devices
        if nodes and nodes == frozenset().union(*(p for node in nodes for p in by_rarest.get(node, ()) if p < nodes))
    }


def _is_selected(selector: CdiSelector, names: Iterable[str]) -> bool:
    def matches(patterns: Iterable[str]) -> bool:
        return any(compiled(pattern).match(name) for pattern in patterns for name in names)

    return (not selector.match or matches(selector.match)) and not matches(selector.exclude)


def _id(kind: str, name: str, address: str) -> str:
    """The device's id, unique among all kinds. address: of the only device at this PCI address; else empty.

    An index moves to other hardware when devices come or go, while a PCI address stays.
    """
    if name != "all" and not name.replace(":", "").isdecimal():
        return name
    return f"pci-{address}" if address and name != "all" else kind_and_name(qualified_cdi_name(kind, name))


def _pci_directory_of(device: _Listed, root: Root) -> str:
    return next(filter(None, (_pci_directory(node, root) for node in sorted(device.nodes))), "")


def _pci_directory(path: str, root: Root) -> str:
    """The directory of the PCI device behind a device node; empty if there is none."""
    directory = root.resolve("/sys/dev/" + root.device_number(path)) or ""
    while directory.startswith("/sys/devices/") and not _PCI_ADDRESS.fullmatch(os.path.basename(directory)):
        directory = os.path.dirname(directory)
    return directory if directory.startswith("/sys/devices/") else ""
