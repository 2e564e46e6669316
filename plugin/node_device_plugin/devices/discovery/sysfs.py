"""What sysfs says of a device on a bus, whichever bus.

By the kernel's Documentation/admin-guide/sysfs-rules.rst and Documentation/ABI: a device is a directory below
/sys/devices, with a link to it below /sys/bus/<bus>/devices; a directory with the file ``dev`` has a device node, whose
path below /dev is DEVNAME in the file ``uevent``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from .found import Node
from .root import Root

#: Never a device below them, and large.
_PASSED_OVER = ("power", "msi_irqs")


def device_nodes(directory: str, root: Root) -> Iterator[Node]:
    """The device nodes that belong to the device of ``directory`` and are there, without those of other devices on a
    bus below it (a hub's, a USB controller's)."""
    names = root.names(directory)
    if "dev" in names:
        path = "/dev/" + uevent_value(directory, "DEVNAME", root)
        host_path = root.device_node(path)
        if host_path is not None:
            yield Node(path, host_path)
    for name in sorted(names):
        below = f"{directory}/{name}"
        if name in _PASSED_OVER or root.is_link(below):
            continue
        inside = set(root.names(below))
        # "uevent" is what every device has; a USB device has "idVendor", a PCI device "vendor" and "class".
        other_device = "idVendor" in inside or {"vendor", "class"} <= inside
        if inside and not other_device:
            yield from device_nodes(below, root)


def numa_node_of(host_path: str, root: Root) -> int | None:
    """The NUMA node that the device behind a device node is near to: that of the next device above it which says so.

    /sys/dev/char and /sys/dev/block have a link for each number (Documentation/ABI/testing/sysfs-dev).
    """
    directory = root.resolve("/sys/dev/" + root.device_number(host_path)) or ""
    while directory.startswith("/sys/devices/") and not root.text(directory + "/numa_node"):
        directory = os.path.dirname(directory)
    return numa_node(directory, root)


def numa_node(directory: str, root: Root) -> int | None:
    """The NUMA node that a device's directory names; None where it names none (-1)."""
    text = root.text(directory + "/numa_node")
    return int(text) if text.isdecimal() else None


def driver_and_subsystem(directory: str, root: Root) -> dict[str, str | None]:
    """The attributes that a device on any bus has, by the links in its directory."""
    return {name: root.link_name(f"{directory}/{name}") for name in ("driver", "subsystem")}


def uevent_value(directory: str, key: str, root: Root) -> str:
    """The value of a key in a device's ``uevent``; empty where it has none."""
    for line in root.text(directory + "/uevent").splitlines():
        name, _, value = line.partition("=")
        if name == key:
            return value
    return ""
