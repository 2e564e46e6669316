"""USB devices, by vendor, product and serial number.

Facts: /sys/bus/usb/devices/<port>/ has ``idVendor``, ``idProduct`` (four hexadecimal digits in lower case), ``busnum``,
``devnum`` and, if the device has a serial number, ``serial`` (the kernel's Documentation/ABI/stable/sysfs-bus-usb and
Documentation/ABI/testing/sysfs-bus-usb). Interfaces, which have a ':' in their names, have none of these files. Drivers
such as ftdi_sio are bound to interfaces, whose directories are below the device's.

A connector of USB 3 is a port of two buses: a device is on the one or the other, as its speed is. The device's
directory has the link ``port`` to the port, and this has the link ``peer`` to the connector's other port
(drivers/usb/core/port.c). A bus is the directory usb<number> below its controller's; the number can change at a reboot.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...declaration.model import Attributes, Discovery, UsbSelector
from ...declaration.patterns import compiled
from ..table import natural_order
from .method import DiscoveryMethod, Found
from .root import Root
from .sysfs import common_attributes, device_nodes, driver_fits

DIRECTORY = "/sys/bus/usb/devices"
#: The kernel's device nodes of USB devices, by bus and device (Documentation/driver-api/usb/usb.rst).
_NODES = "/dev/bus/usb/*/*"
#: The link to a port: of a bus itself, or of a hub at a port.
_PORT = re.compile(r"/(?:usb(?P<bus>\d+)|(?P<hub>\d+-[\d.]+))-port(?P<number>\d+)$")
#: Mbit/s of a bus of USB 3.
_SUPER_SPEED = 5000


class _UsbDevice(NamedTuple):
    """The properties that tell USB devices apart; empty if a device does not have the property."""

    vendor: str
    product: str
    serial: str
    port: str
    busnum: str
    devnum: str

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.vendor, self.product, self.serial


class Usb(DiscoveryMethod):
    """The devices of the USB buses."""

    key = "usb"

    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every USB device that matches a selector, by port.

        A device is named after its ids and serial number, so it keeps its name at another port. If it has no serial
        number, or shares one (some vendors use one number for all devices), its name also has the port. While the
        device stays plugged in, it keeps the name under which it is offered; otherwise a pod that holds it could share
        it with the device that gets the name.

        With identify_by ``port``, it is named after its port alone, so it keeps its name with other ids.
        """
        devices = _devices(discovery.usb, root)
        like = collections.Counter(device.identity for device in devices)
        for device in devices:
            link = f"{DIRECTORY}/{device.port}"
            drivers = _drivers(link, root)
            if not any(_fits(selector, device, drivers) for selector in discovery.usb):
                continue
            nodes = tuple(device_nodes(link, root))
            port = _physical_port(device.port, root)
            known_as = (device.port, port, *(node.path for node in nodes))
            by_port = discovery.identify_by == "port"
            name, *others = [f"usb-{port}"] if by_port else _names(device, is_shared=like[device.identity] > 1)
            attributes = Attributes(
                usb_vendor=device.vendor,
                usb_product=device.product,
                usb_serial=device.serial or None,
                usb_port=port,
                **common_attributes(link, root),
            )
            properties = device._asdict()
            found = Found(name, nodes, True, properties, known_as, None, attributes, tuple(others), drivers=drivers)
            if by_port:
                found = found._replace(identity=f"usb port {port}")
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
            serial, *numbers = (root.text(f"{directory}/{name}") for name in ("serial", "busnum", "devnum"))
            found.append(_UsbDevice(vendor, product, serial, port, *numbers))
    return found


def _physical_port(port: str, root: Root) -> str:
    """The controller and the ports from there, e.g. 0000:00:14.0-1.2: the same on both buses of the connector.

    A port of USB 3 without a known peer has an ``ss`` before its ports, which may be others than those of USB 2. port:
    the kernel's name; if the controller is unknown, as for the device of a whole bus, the name stays.
    """
    device = f"{DIRECTORY}/{port}"
    peer = root.resolve(device + "/port/peer") or ""
    places = {port: root.resolve(device) or ""}
    found = _PORT.search(peer)
    if found:
        hub = found["hub"]
        places[f"{hub}.{found['number']}" if hub else f"{found['bus']}-{found['number']}"] = peer
    name = min(places, key=lambda each: _is_fast(each, root))
    bus, _dash, ports = name.partition("-")
    controller = places[name].rpartition(f"/usb{bus}/")[0].rpartition("/")[2]
    if not controller:
        return port
    return f"{controller}-{'ss' if _is_fast(name, root) else ''}{ports}"


def _is_fast(port: str, root: Root) -> bool:
    """Whether a port's bus is one of USB 3."""
    speed = root.text(f"{DIRECTORY}/usb{port.partition('-')[0]}/speed")
    return speed.isdecimal() and int(speed) >= _SUPER_SPEED


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
