"""USB devices, by vendor, product and serial number.

Facts: /sys/bus/usb/devices/<port>/ has ``idVendor``, ``idProduct`` (four hexadecimal digits in lower case) and, if the
device has a serial number, ``serial`` (the kernel's Documentation/ABI/stable/sysfs-bus-usb and
Documentation/ABI/testing/sysfs-bus-usb). Interfaces, which have a ':' in their names, have none of these files. Drivers
such as ftdi_sio are bound to interfaces, whose directories are below the device's.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...declaration.model import Attributes, Discovery, UsbSelector
from ...declaration.patterns import compiled
from ..table import natural_order
from .found import Found
from .method import DiscoveryMethod
from .root import Root
from .sysfs import device_nodes, driver_and_subsystem, driver_fits

DIRECTORY = "/sys/bus/usb/devices"
#: The kernel's device nodes of USB devices, by bus and device (Documentation/driver-api/usb/usb.rst).
_NODES = "/dev/bus/usb/*/*"


class _UsbDevice(NamedTuple):
    """The properties that tell USB devices apart; empty if a device does not have the property."""

    vendor: str
    product: str
    serial: str
    port: str

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.vendor, self.product, self.serial


class Usb(DiscoveryMethod):
    """The devices of the USB buses."""

    key = "usb"
    needs_uevents = True

    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every USB device that matches a selector, by port.

        A device is named after its ids and serial number, so it keeps its name at another port. If it has no serial
        number, or shares one (some vendors use one number for all devices), its name also has the port. While the
        device stays plugged in, it keeps the name under which it is offered; otherwise a pod that holds it could share
        it with the device that gets the name.
        """
        devices = _devices(discovery.usb, root)
        like = collections.Counter(device.identity for device in devices)
        for device in devices:
            link = f"{DIRECTORY}/{device.port}"
            drivers = _drivers(link, root)
            if not any(_fits(selector, device, drivers) for selector in discovery.usb):
                continue
            directory = root.resolve(link)
            nodes = tuple(device_nodes(directory, root)) if directory else ()
            known_as = (device.port, *(node.path for node in nodes))
            name, *others = _names(device, is_shared=like[device.identity] > 1)
            attributes = Attributes(
                usb_vendor=device.vendor,
                usb_product=device.product,
                usb_serial=device.serial or None,
                **driver_and_subsystem(link, root),
            )
            properties = device._asdict()
            found = Found(name, nodes, True, properties, known_as, None, attributes, tuple(others), drivers=drivers)
            yield found if nodes else found._replace(problem=found.without("device node"))

    def watch_paths(self, discovery: Discovery) -> Iterator[str]:
        """The kernel's nodes of USB devices."""
        yield _NODES


def _names(device: _UsbDevice, is_shared: bool) -> list[str]:
    """The possible names of a device, the usual one first. is_shared: whether another device has its serial number."""
    if not device.serial:
        return ["-".join(("usb", device.vendor, device.product, device.port))]
    plain = "-".join(("usb", *device.identity))
    with_port = f"{plain}-{device.port}"
    return [with_port, plain] if is_shared else [plain, with_port]


def _devices(selectors: Sequence[UsbSelector], root: Root) -> list[_UsbDevice]:
    """The devices with matching vendor and product. Only their serials are read: a read waits while a device resets."""
    found = []
    for port in sorted(root.names(DIRECTORY), key=natural_order):
        directory = f"{DIRECTORY}/{port}"
        vendor = root.text(directory + "/idVendor").lower()
        product = root.text(directory + "/idProduct").lower()
        if vendor and any(each.vendor in (None, vendor) and each.product in (None, product) for each in selectors):
            found.append(_UsbDevice(vendor, product, root.text(directory + "/serial"), port))
    return found


def _drivers(directory: str, root: Root) -> tuple[str, ...]:
    """The drivers of the device's interfaces. The driver of every device as a whole is ``usb``."""
    interfaces = (name for name in sorted(root.names(directory)) if ":" in name)
    found = (root.link_name(f"{directory}/{name}/driver") for name in interfaces)
    return tuple(dict.fromkeys(filter(None, found)))


def _fits(selector: UsbSelector, device: _UsbDevice, drivers: Sequence[str]) -> bool:
    return (
        selector.vendor in (None, device.vendor)
        and selector.product in (None, device.product)
        and (selector.serial is None or compiled(selector.serial).match(device.serial) is not None)
        and driver_fits(selector.driver, drivers)
    )
