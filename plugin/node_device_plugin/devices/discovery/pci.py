"""PCI devices, by vendor, device and class, with their NUMA node.

Facts: /sys/bus/pci/devices/<address>/ has ``vendor``, ``device`` (``0x`` and four hexadecimal digits), ``class`` (six)
and ``numa_node`` (-1 for none). With an IOMMU it also has the link ``iommu_group``: the target's name is the group's
number, which also names the group's node in /dev/vfio (the kernel's Documentation/ABI/testing/sysfs-bus-pci,
Documentation/PCI/sysfs-pci.rst and Documentation/driver-api/vfio.rst).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...declaration.model import Attributes, Discovery, PciSelector
from ..table import natural_order
from .method import DiscoveryMethod, Found
from .root import Root
from .sysfs import common_attributes, device_nodes, driver_fits, numa_node

DIRECTORY = "/sys/bus/pci/devices"


class Function(NamedTuple):
    """A function of a PCI device. directory: in sysfs; the other fields come from its files."""

    directory: str
    properties: dict[str, str]
    attributes: Attributes

    @property
    def address(self) -> str:
        return self.properties["address"]

    @property
    def drivers(self) -> tuple[str, ...]:
        """The driver that the kernel bound, if any."""
        return (self.attributes.driver,) if self.attributes.driver else ()


class Pci(DiscoveryMethod):
    """The devices of the PCI bus."""

    key = "pci"

    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every PCI device that matches a selector, by address, with or without nodes."""
        for function in functions(discovery.pci, root):
            nodes = tuple(device_nodes(function.directory, root))
            yield Found(
                "pci-" + function.address,
                nodes,
                True,
                function.properties,
                (function.address, *(node.path for node in nodes)),
                numa_node(function.directory, root),
                function.attributes,
                drivers=function.drivers,
                identity="pci " + function.address,
            )


def functions(selectors: Sequence[PciSelector], root: Root) -> Iterator[Function]:
    """Every function that matches a selector, by address."""
    for address in sorted(root.names(DIRECTORY), key=natural_order):
        link = f"{DIRECTORY}/{address}"
        properties = {
            "address": address,
            "vendor": hexadecimal(link + "/vendor", root),
            "device": hexadecimal(link + "/device", root),
            "class_code": hexadecimal(link + "/class", root),
        }
        attributes = Attributes(pci_address=address, **common_attributes(link, root))
        function = Function(link, properties, attributes)
        if any(_fits(selector, function) for selector in selectors):
            properties["iommu_group"] = root.link_name(link + "/iommu_group") or ""
            yield function


def hexadecimal(path: str, root: Root) -> str:
    """The number in a file of sysfs, without its 0x."""
    text = root.text(path).lower()
    return text[2:] if text.startswith("0x") else text


def _fits(selector: PciSelector, function: Function) -> bool:
    properties = function.properties
    return (
        selector.vendor in (None, properties["vendor"])
        and selector.device in (None, properties["device"])
        and properties["class_code"].startswith(selector.class_code or "")
        and driver_fits(selector.driver, function.drivers)
    )
