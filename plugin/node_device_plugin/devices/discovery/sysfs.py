"""Reads the sysfs entries of a device on any bus.

By the kernel's Documentation/admin-guide/sysfs-rules.rst and Documentation/ABI, a device is a directory below
/sys/devices, with a link to it below /sys/bus/<bus>/devices. A directory with the file ``dev`` has a device node; its
path below /dev is DEVNAME in the file ``uevent``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from ...declaration.patterns import compiled
from ..table import natural_order
from .method import Node
from .root import Root

PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PCIE_ROOT = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
#: Directories that are large and never contain a device.
_PASSED_OVER = ("power", "msi_irqs")
#: Buses of devices that a driver makes of a part of its device, such as scalable functions of mlx5 and mediated devices
#: (Documentation/driver-api/auxiliary_bus.rst and vfio-mediated-device.rst).
_OF_PARTS = ("auxiliary", "mdev")


def device_nodes(directory: str, root: Root) -> Iterator[Node]:
    """The existing device nodes of the device in ``directory``.

    Nodes of bus devices below, such as those of a USB hub, and of devices that are parts of it, are excluded.
    """
    names = root.names(directory)
    if "dev" in names:
        uevent = dict(line.partition("=")[::2] for line in root.text(directory + "/uevent").splitlines())
        path = "/dev/" + uevent.get("DEVNAME", "")
        host_path = root.device_node(path)
        if host_path is not None:
            yield Node(path, host_path)
    for name in sorted(names, key=natural_order):
        below = f"{directory}/{name}"
        if name in _PASSED_OVER or root.is_link(below):
            continue
        inside = set(root.names(below))
        # A USB device has "idVendor", a PCI device "vendor" and "class".
        other_device = "idVendor" in inside or {"vendor", "class"} <= inside
        is_part = "subsystem" in inside and root.link_name(below + "/subsystem") in _OF_PARTS
        if inside and not (other_device or is_part):
            yield from device_nodes(below, root)


def directory_of(path: str, root: Root) -> str:
    """The directory of a device node's device; empty if there is none.

    /sys/dev/char and /sys/dev/block have a link for each device number (Documentation/ABI/testing/sysfs-dev).
    """
    return root.resolve("/sys/dev/" + root.device_number(path)) or ""


def upward(directory: str) -> Iterator[str]:
    """The directory of a device and those above it that may be of a device, too; none for another directory."""
    while directory.startswith("/sys/devices/"):
        yield directory
        directory = os.path.dirname(directory)


def pci_directory(directory: str) -> str:
    """The PCI device's directory among a directory and those above it; empty if there is none."""
    return next((each for each in upward(directory) if PCI_ADDRESS.fullmatch(os.path.basename(each))), "")


def numa_node_of(host_path: str, root: Root) -> int | None:
    """The NUMA node of a device node: that of its device, or of the nearest device above that has one."""
    places = (each for each in upward(directory_of(host_path, root)) if root.text(each + "/numa_node"))
    return numa_node(next(places, "/sys/devices"), root)


def numa_node(directory: str, root: Root) -> int | None:
    """The NUMA node in a device's directory; None if there is none (-1)."""
    text = root.text(directory + "/numa_node")
    return int(text) if text.isdecimal() else None


def common_attributes(directory: str, root: Root) -> dict[str, str | None]:
    """The attributes that a device on any bus may have, by their names in ``Attributes``.

    The driver and the subsystem are links in its directory. The PCI root is the first directory of its name on the way
    to the device, as Kubernetes defines it (k8s.io/dynamic-resource-allocation/deviceattribute).
    """
    found = {name: root.link_name(f"{directory}/{name}") for name in ("driver", "subsystem")}
    parts = (root.resolve(directory) or "").split("/")
    return {**found, "pcie_root": next(filter(_PCIE_ROOT.fullmatch, parts), None)}


def driver_fits(pattern: str | None, drivers: Iterable[str]) -> bool:
    """Whether one of the drivers matches a selector's pattern; True if the selector has no pattern."""
    return pattern is None or any(compiled(pattern).match(driver) for driver in drivers)
