"""USB devices, by vendor, product and serial number.

Facts: /sys/bus/usb/devices/<port>/ has ``idVendor``, ``idProduct`` (four hexadecimal digits in lower case) and, where
the device has one, ``serial`` (the kernel's Documentation/ABI/stable/sysfs-bus-usb and
Documentation/ABI/testing/sysfs-bus-usb). Interfaces, which have a ':' in their names, have none of these.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterator, List, Sequence, Tuple

from ...declaration.model import UsbSelector
from ...declaration.patterns import compiled
from ..table import natural_order
from .found import Found, Node
from .root import Root
from .sysfs import device_nodes

DIRECTORY = "/sys/bus/usb/devices"

#: Whether a device of a name is offered now, with one of these nodes.
IsOffered = Callable[[str, Sequence[Node]], bool]


def find(selectors: Sequence[UsbSelector], root: Root, is_offered: IsOffered) -> Iterator[Found]:
    """Every USB device that one of the selectors fits and that has a device node, by port.

    A device is named after its ids and serial number, so that it may be plugged in elsewhere. Those without a serial
    number, and those that share one (some makers give all the same), are named after their port, too. One that is
    offered under either name keeps it while it stays plugged in: whoever holds it would have to share it with the one
    that is given the other name.
    """
    if not selectors:
        return
    devices = _devices(root)
    like: Dict[Tuple[str, ...], int] = {}
    for device in devices:
        like[_identity(device)] = like.get(_identity(device), 0) + 1
    for device in devices:
        if not any(_fits(selector, device) for selector in selectors):
            continue
        directory = root.resolve("%s/%s" % (DIRECTORY, device["port"]))
        nodes = device_nodes(directory, root) if directory else ()
        if nodes:
            known_as = (device["port"], *(node.path for node in nodes))
            names = _names(device, is_shared=like[_identity(device)] > 1)
            name = next((name for name in names if is_offered(name, nodes)), names[0])
            yield Found(name, nodes, True, device, known_as)


def _names(device: Dict[str, str], is_shared: bool) -> List[str]:
    """What a device may be called, the usual first. is_shared: whether another one has its serial number, too."""
    vendor, product, serial = _identity(device)
    if not serial:
        return ["-".join(("usb", vendor, product, device["port"]))]
    plain = "-".join(("usb", vendor, product, serial))
    with_port = "%s-%s" % (plain, device["port"])
    return [with_port, plain] if is_shared else [plain, with_port]


def _devices(root: Root) -> List[Dict[str, str]]:
    found = []
    for port in sorted(root.names(DIRECTORY), key=natural_order):
        directory = "%s/%s" % (DIRECTORY, port)
        vendor = root.text(directory + "/idVendor").lower()
        if vendor:
            product, serial = root.text(directory + "/idProduct").lower(), root.text(directory + "/serial")
            found.append({"vendor": vendor, "product": product, "serial": serial, "port": port})
    return found


def _identity(device: Dict[str, str]) -> Tuple[str, ...]:
    return device["vendor"], device["product"], device["serial"]


def _fits(selector: UsbSelector, device: Dict[str, str]) -> bool:
    return (
        selector.vendor in (None, device["vendor"])
        and selector.product in (None, device["product"])
        and (selector.serial is None or compiled(selector.serial).match(device["serial"]) is not None)
    )
