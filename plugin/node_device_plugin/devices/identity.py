"""What a device node is, whatever its path and its links: the identity that a container is given.

A path or a link may lead to other hardware later. A serial number stays with the hardware at every port. A port or PCI
address stays with it while it is plugged in. Other nodes have only their number.
"""

from __future__ import annotations

import collections
import os
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from .discovery.root import Root, device_number
from .discovery.sysfs import PCI_ADDRESS, upward
from .discovery.usb import DIRECTORY as USB
from .table import natural_order

#: A USB interface such as 1-1.2:1.0. The part before the colon is the port.
_USB_INTERFACE = re.compile(r"[0-9]+-[0-9.]+:")
#: The number that the kernel counts up for each HID device (drivers/hid/hid-core.c, hid_add_device).
_HID_NUMBER = re.compile(r"(?<=^[0-9A-F]{4}:[0-9A-F]{4}:[0-9A-F]{4})\.[0-9A-F]{4}$")
_DIGITS = re.compile(r"[0-9]+")
#: Files of a disk, or of the device above it, that name the disk itself (Documentation/ABI/*/sysfs-block).
_DISK_NAMES = ("wwid", "device/wwid", "dm/uuid")


class Identity(NamedTuple):
    """The facts about a host path; a fact is empty if it does not apply or is unknown.

    path: with links resolved. number: of a device node, such as ``char/188:0``. place: the port or PCI address of the
    hardware, and which of its nodes this is. serial: the same with a serial number instead of the place, or the name
    of a disk.
    """

    path: str
    number: str = ""
    place: str = ""
    serial: str = ""

    def token(self, ambiguous: Collection[str] = ()) -> str:
        """A text that is equal for equal devices. ambiguous: serials that several devices on this node have."""
        return (self.serial not in ambiguous and self.serial) or self.place or f"{self.number} {self.path}".strip()

    @property
    def is_number(self) -> bool:
        """Whether only the device number identifies the device."""
        return bool(self.number) and not (self.place or self.serial)


class Identities:
    """Reads identities, and reads sysfs again only for a node that is new. Blocks on the file system."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        #: By path: what shows that its node is the same as in the last read, and the identity.
        self._known: dict[str, tuple[object, Identity]] = {}

    def read(self, paths: Iterable[str]) -> dict[str, Identity]:
        """The identity of each existing path, with links followed. A path without a node identifies itself."""
        root = Root(self._root)
        found = {path: self._identity(path, root) for path in paths}
        return {path: identity for path, identity in found.items() if identity is not None}

    def _identity(self, path: str, root: Root) -> Identity | None:
        node = root.stat(path)
        if node is None:
            return None
        if not node.st_rdev:
            return Identity(path)
        number = device_number(node)
        # These values change if the path gets another node, or its number another device: in sysfs, each device that
        # appears gets a new inode number.
        in_sysfs = root.stat(f"/sys/dev/{number}")
        state = number, node.st_dev, node.st_ino, node.st_ctime_ns, in_sysfs and in_sysfs.st_ino
        known = self._known.get(path)
        if known is None or known[0] != state:
            known = self._known[path] = state, _read(path, number, root)
        return known[1]


def ambiguous_serials(found: Iterable[Identity], root: str = "/") -> frozenset[str]:
    """The serials that do not tell devices apart: of several nodes, or on a USB bus of several devices.

    Some vendors give one serial number to all of their devices. found: the identities of all offered devices' nodes.
    """
    numbers = collections.defaultdict(set)
    for each in found:
        if each.serial:
            numbers[each.serial].add(each.number)
    shared = {serial for serial, those in numbers.items() if len(those) > 1}
    if any(serial.startswith("usb ") for serial in numbers):
        inside = Root(root)
        bases = collections.Counter(_usb_serial(f"{USB}/{port}", inside) for port in inside.names(USB))
        twice = tuple(base for base, count in bases.items() if base and count > 1)
        shared |= {serial for serial in numbers if f"{serial} ".startswith(tuple(f"{base} " for base in twice))}
    return frozenset(shared)


def _read(path: str, number: str, root: Root) -> Identity:
    directory = root.resolve(f"/sys/dev/{number}") or ""
    path = root.resolve(path) or path
    if not directory.startswith("/sys/devices/"):
        return Identity(path, number)
    disk = _disk(directory, root) if number.startswith("block/") else ""
    if directory.startswith("/sys/devices/virtual/"):
        return Identity(path, number, serial=disk)
    below: list[str] = []
    for above in upward(directory):
        tail = " ".join(reversed(below))
        if root.text(above + "/idVendor"):
            serial, port = _usb_serial(above, root), os.path.basename(above)
            place = f"usb port {port} {_usb_id(above, root)} {tail}".strip()
            return Identity(path, number, place, disk or (serial and f"{serial} {tail}".strip()))
        if PCI_ADDRESS.fullmatch(os.path.basename(above)):
            return Identity(path, number, f"pci {os.path.basename(above)} {tail}".strip(), disk)
        below.append(_constant_name(above, root))
    return Identity(path, number, serial=disk)


def _usb_id(directory: str, root: Root) -> str:
    return f"{root.text(directory + '/idVendor')}:{root.text(directory + '/idProduct')}".lower()


def _usb_serial(directory: str, root: Root) -> str:
    """The ids and the serial number of a USB device; empty if it has no serial number."""
    serial = root.text(directory + "/serial")
    return f"usb {_usb_id(directory, root)} {serial}" if serial else ""


def _disk(directory: str, root: Root) -> str:
    """The name that a disk has everywhere, and which of its partitions this is; empty if it has none."""
    partition = root.text(directory + "/partition")
    whole = os.path.dirname(directory) if partition else directory
    name = next(filter(None, (root.text(f"{whole}/{file}") for file in _DISK_NAMES)), "")
    return f"disk {name} {partition}".strip() if name else ""


def _constant_name(directory: str, root: Root) -> str:
    """The directory's name without the numbers that the kernel counts up: its place among similar names instead."""
    parent, name = os.path.split(directory)
    if _USB_INTERFACE.match(name):
        return name.partition(":")[2]
    if _HID_NUMBER.search(name):
        return _HID_NUMBER.sub("", name)
    if not _DIGITS.search(name):
        return name
    kind = _DIGITS.sub("#", name)
    alike = sorted((each for each in root.names(parent) if _DIGITS.sub("#", each) == kind), key=natural_order)
    return f"{kind}{alike.index(name)}" if name in alike else kind
