"""Devices of other programs' CDI specs, such as those of nvidia-ctk."""

from __future__ import annotations

import collections
import os
from collections.abc import Collection, Iterable, Iterator, Sequence

from ...cdi.resolution import UUID, Resolution
from ...declaration.model import Attributes, CdiSelector, Discovery
from ...declaration.names import cdi_device_problem, kind_and_name, qualified_cdi_name
from ...declaration.patterns import compiled
from .method import DiscoveryMethod, Found
from .root import Root
from .spec_devices import ALL, Chooser, SpecDevice, listed
from .sysfs import common_attributes, directory_of, numa_node, pci_directory

#: Virtual devices of this class are control devices, such as /dev/infiniband/rdma_cm: a driver has one.
_CONTROL = "/sys/devices/virtual/misc/"


class Cdi(DiscoveryMethod):
    """The devices of one kind in the runtime's CDI directories."""

    key = "cdi"
    needs_uevents = False

    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every device of the kind that a container can get alone, by name."""
        selector = discovery.cdi
        offered, left_out = Chooser(selector.kind, root.specs, root).choose(listed(selector.kind, root.specs))
        owners = collections.Counter(node for device in offered for node in device.nodes)
        directories = [_pci_directory_of(device, root) for device in offered]
        on_bus = collections.Counter(directories)
        for device, directory in zip(offered, directories):
            if not _is_selected(selector, device.names):
                continue
            part, address = device.part_of, os.path.basename(directory)
            own = {node for node in device.nodes - part if owners[node] == 1}
            found = _named(selector.kind, device.names, address, on_bus[directory] == 1)
            yield found._replace(
                numa_node=numa_node(directory, root) if directory else None,
                attributes=Attributes(pci_address=address, **common_attributes(directory, root))
                if directory
                else Attributes(),
                cdi_paths=_real(_without_control(own, root), root),
                part_of=_real(part, root),
                # Drivers number device nodes again at each start, while a UUID stays.
                identity=found.cdi_name if UUID.search(device.names[0]) else "",
            )
        others = [(device.names, why) for device, why in left_out.items()]
        for names, why in [*others, *_broken(selector.kind, bool(offered), root.specs)]:
            if _is_selected(selector, names):
                yield _named(selector.kind, names)._replace(problem=why)


def _broken(kind: str, is_any_offered: bool, specs: Resolution) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each name that does not resolve, with the reason."""
    prefix = kind + "="
    broken = {name: why for name, why in specs.broken.items() if name.startswith(prefix) and name not in specs.files}
    for qualified, why in broken.items():
        name = qualified[len(prefix) :]
        # "all" is not offered beside other devices anyway. A refused file may have any text as a name.
        is_one = name != ALL or not (is_any_offered or len(broken) > 1)
        if is_one and cdi_device_problem(name) is None:
            yield (name,), f"{why}: node-device-plugin cdi check says what to correct"


def _named(kind: str, names: Sequence[str], address: str = "", is_alone: bool = False) -> Found:
    """A finding with its names. address: its PCI address, or empty. is_alone: whether no other device is there.

    The id is unique among all kinds. An index moves to other hardware when devices come or go, while a PCI address
    stays.
    """
    name = names[0]
    qualified = qualified_cdi_name(kind, name)
    device_id = name
    if name == ALL or name.replace(":", "").isdecimal():
        device_id = f"pci-{address}" if address and is_alone and name != ALL else kind_and_name(qualified)
    properties = {"kind": kind, "name": name, "pci_address": address}
    return Found(device_id, (), True, properties, tuple(names), cdi_name=qualified)


def _without_control(nodes: Collection[str], root: Root) -> Collection[str]:
    """The nodes without control nodes, which other kinds may have, too; all nodes if all are control nodes."""
    if len(nodes) < 2:
        return nodes
    return [node for node in nodes if not directory_of(node, root).startswith(_CONTROL)] or nodes


def _real(nodes: Iterable[str], root: Root) -> tuple[str, ...]:
    return tuple(sorted(root.device_node(node) or node for node in nodes))


def _is_selected(selector: CdiSelector, names: Iterable[str]) -> bool:
    def matches(patterns: Iterable[str]) -> bool:
        return any(compiled(pattern).match(name) for pattern in patterns for name in names)

    return (not selector.match or matches(selector.match)) and not matches(selector.exclude)


def _pci_directory_of(device: SpecDevice, root: Root) -> str:
    directories = (pci_directory(directory_of(node, root)) for node in sorted(device.nodes))
    return next(filter(None, directories), "")
