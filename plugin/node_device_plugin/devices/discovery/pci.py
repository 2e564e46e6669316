"""PCI devices, by vendor, device and class, with their NUMA node.

Facts: /sys/bus/pci/devices/<address>/ has ``vendor``, ``device`` (``0x`` and four hexadecimal digits), ``class`` (six)
and ``numa_node`` (-1 for none). With an IOMMU it also has the link ``iommu_group``: the target's name is the group's
number, which also names the group's node in /dev/vfio (the kernel's Documentation/ABI/testing/sysfs-bus-pci,
Documentation/PCI/sysfs-pci.rst and Documentation/driver-api/vfio.rst).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...declaration.model import Attributes, Discovery, PciSelector
from ..table import natural_order
from .found import Found
from .method import DiscoveryMethod
from .root import Root
from .sysfs import device_nodes, driver_and_subsystem, driver_fits, numa_node

DIRECTORY = "/sys/bus/pci/devices"


class Pci(DiscoveryMethod):
    """The devices of the PCI bus."""

    key = "pci"
    needs_uevents = True

    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every PCI device that matches a selector, by address, with or without device nodes."""
        for address in sorted(root.names(DIRECTORY), key=natural_order):
            link = f"{DIRECTORY}/{address}"
            properties = {
                "address": address,
                "vendor": _number(link + "/vendor", root),
                "device": _number(link + "/device", root),
                "class_code": _number(link + "/class", root),
            }
            kernel = driver_and_subsystem(link, root)
            drivers = tuple(filter(None, [kernel["driver"]]))
            if not any(_fits(selector, properties, drivers) for selector in discovery.pci):
                continue
            properties["iommu_group"] = root.link_name(link + "/iommu_group") or ""
            directory = root.resolve(link)
            nodes = tuple(device_nodes(directory, root)) if directory else ()
            known_as = (address, *(node.path for node in nodes))
            attributes = Attributes(pci_address=address, **kernel)
            yield Found(
                "pci-" + address,
                nodes,
                True,
                properties,
                known_as,
                numa_node(link, root),
                attributes,
                drivers=drivers,
            )


def _number(path: str, root: Root) -> str:
    text = root.text(path).lower()
    return text[2:] if text.startswith("0x") else text


def _fits(selector: PciSelector, properties: dict[str, str], drivers: Sequence[str]) -> bool:
    return (
        selector.vendor in (None, properties["vendor"])
        and selector.device in (None, properties["device"])
        and properties["class_code"].startswith(selector.class_code or "")
        and driver_fits(selector.driver, drivers)
    )
