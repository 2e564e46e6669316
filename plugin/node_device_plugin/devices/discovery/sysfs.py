"""What sysfs says of a device on a bus, whichever bus.

By the kernel's Documentation/admin-guide/sysfs-rules.rst and Documentation/ABI: a device is a directory below
/sys/devices, with a link to it below /sys/bus/<bus>/devices; a directory with the file ``dev`` has a device node, whose
path below /dev is DEVNAME in the file ``uevent``.
"""

from __future__ import annotations

import os
from typing import Dict, Iterator, Optional, Tuple

from .found import Node
from .root import Root

#: Never a device below them, and large.
_PASSED_OVER = ("power", "msi_irqs")


def device_nodes(directory: str, root: Root) -> Tuple[Node, ...]:
    """The device nodes that belong to the device of ``directory`` and are there, without those of other devices on a
    bus below it (a hub's, a USB controller's)."""
    return tuple(_device_nodes(directory, root))


def _device_nodes(directory: str, root: Root) -> Iterator[Node]:
    names = root.names(directory)
    if "dev" in names:
        path = "/dev/" + uevent_value(directory, "DEVNAME", root)
        host_path = root.device_node(path)
        if host_path is not None:
            yield Node(path, host_path)
    for name in sorted(names):
        below = "%s/%s" % (directory, name)
        if name in _PASSED_OVER or root.is_link(below):
            continue
        inside = set(root.names(below))
        # "uevent" is what every device has; a USB device has "idVendor", a PCI device "vendor" and "class".
        other_device = "idVendor" in inside or {"vendor", "class"} <= inside
        if inside and not other_device:
            yield from _device_nodes(below, root)


def numa_node_of(host_path: str, root: Root) -> Optional[int]:
    """The NUMA node that the device behind a device node is near to: that of the next device above it which says so.

    /sys/dev/char and /sys/dev/block have a link for each number (Documentation/ABI/testing/sysfs-dev).
    """
    directory = root.resolve("/sys/dev/" + root.device_number(host_path)) or ""
    while directory.startswith("/sys/devices/"):
        text = root.text(directory + "/numa_node")
        if text:
            return int(text) if text.isdecimal() else None
        directory = os.path.dirname(directory)
    return None


def driver_and_subsystem(directory: str, root: Root) -> Dict[str, Optional[str]]:
    """The attributes that a device on any bus has, by the links in its directory."""
    return {name: root.link_name("%s/%s" % (directory, name)) for name in ("driver", "subsystem")}


def uevent_value(directory: str, key: str, root: Root) -> str:
    """The value of a key in a device's ``uevent``; empty where it has none."""
    for line in root.text(directory + "/uevent").splitlines():
        name, _, value = line.partition("=")
        if name == key:
            return value
    return ""
