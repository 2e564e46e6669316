"""USB devices, by vendor, product and serial number.

Facts: /sys/bus/usb/devices/<port>/ has ``idVendor``, ``idProduct`` (four hexadecimal digits in lower case) and, where
the device has one, ``serial`` (the kernel's Documentation/ABI/stable/sysfs-bus-usb and
Documentation/ABI/testing/sysfs-bus-usb). Interfaces, which have a ':' in their names, have none of these.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, NamedTuple, Tuple

from ...declaration.model import Attributes, Discovery, UsbSelector
from ...declaration.named_directories import DEV
from ...declaration.patterns import compiled
from ..table import natural_order
from .found import Found
from .method import IsOffered
from .root import Root
from .sysfs import device_nodes, driver_and_subsystem

DIRECTORY = "/sys/bus/usb/devices"
#: Where the kernel makes the nodes of USB devices (Documentation/driver-api/usb/usb.rst): bus, device.
_NODES = "/dev/bus/usb/*/*"


class _UsbDevice(NamedTuple):
    """What tells USB devices apart; empty texts where a device has none."""

    vendor: str
    product: str
    serial: str
    port: str

    @property
    def identity(self) -> Tuple[str, str, str]:
        return self.vendor, self.product, self.serial


class Usb:
    """A DiscoveryMethod (see method)."""

    key = "usb"
    needs_uevents = True

    def find(self, discovery: Discovery, root: Root, is_offered: IsOffered) -> Iterator[Found]:
        """Every USB device that one of the selectors fits and that has a device node, by port.

        A device is named after its ids and serial number, so that it may be plugged in elsewhere. Those without a
        serial number, and those that share one (some makers give all the same), are named after their port, too. One
        that is offered under either name keeps it while it stays plugged in: whoever holds it would have to share it
        with the one that is given the other name.
        """
        devices = _devices(root)
        like: Dict[Tuple[str, ...], int] = {}
        for device in devices:
            like[device.identity] = like.get(device.identity, 0) + 1
        for device in devices:
            if not any(_fits(selector, device) for selector in discovery.usb):
                continue
            link = "%s/%s" % (DIRECTORY, device.port)
            directory = root.resolve(link)
            nodes = device_nodes(directory, root) if directory else ()
            if nodes:
                known_as = (device.port, *(node.path for node in nodes))
                names = _names(device, is_shared=like[device.identity] > 1)
                name = next((name for name in names if is_offered(name, nodes)), names[0])
                attributes = Attributes(
                    usb_vendor=device.vendor,
                    usb_product=device.product,
                    usb_serial=device.serial or None,
                    **driver_and_subsystem(link, root),
                )
                yield Found(name, nodes, True, device._asdict(), known_as, attributes=attributes)

    def watch_paths(self, discovery: Discovery) -> Iterator[str]:
        """The kernel's nodes."""
        yield _NODES

    def host_directories(self, discovery: Discovery) -> Iterator[str]:
        """Drivers make nodes anywhere in /dev."""
        yield DEV


def _names(device: _UsbDevice, is_shared: bool) -> List[str]:
    """What a device may be called, the usual first. is_shared: whether another one has its serial number, too."""
    if not device.serial:
        return ["-".join(("usb", device.vendor, device.product, device.port))]
    plain = "-".join(("usb", *device.identity))
    with_port = "%s-%s" % (plain, device.port)
    return [with_port, plain] if is_shared else [plain, with_port]


def _devices(root: Root) -> List[_UsbDevice]:
    found = []
    for port in sorted(root.names(DIRECTORY), key=natural_order):
        directory = "%s/%s" % (DIRECTORY, port)
        vendor = root.text(directory + "/idVendor").lower()
        if vendor:
            product, serial = root.text(directory + "/idProduct").lower(), root.text(directory + "/serial")
            found.append(_UsbDevice(vendor, product, serial, port))
    return found


def _fits(selector: UsbSelector, device: _UsbDevice) -> bool:
    return (
        selector.vendor in (None, device.vendor)
        and selector.product in (None, device.product)
        and (selector.serial is None or compiled(selector.serial).match(device.serial) is not None)
    )
