"""Device nodes by subsystem and udev properties.

Facts: /sys/class/<subsystem> or /sys/bus/<subsystem>/devices has a link to each device. A device with the file ``dev``
has a node. Its properties are in its file ``uevent`` (KEY=value) and in udev's database, which has the file
/run/udev/data/c<major>:<minor> (b… for the subsystem block). A line there has ``E:`` and KEY=value for a property, or
``S:`` and a path below /dev for a link (systemd, src/libsystemd/sd-device). udev replaces the file after the kernel's
message about the device, so only a watch of the directory shows the new properties.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import NamedTuple

from ...declaration.model import Attributes, Discovery, UdevSelector
from ...declaration.named_directories import DEV
from ...declaration.patterns import compiled
from ..table import natural_order
from .method import DiscoveryMethod, Found, Node
from .root import Root
from .sysfs import common_attributes

#: Without the socket beside it, which controls udev.
DATA = "/run/udev/data"
#: Directories of links with stable names, the best first: a by-id name stays if the device moves to another port.
_STABLE = ("/by-id/", "/by-path/")


class _UdevDevice(NamedTuple):
    """A device with a node. directory: in sysfs. links: below /dev, the best name first.

    is_known: whether udev's database has the device. udev writes an entry for every device with a node.
    """

    directory: str
    properties: dict[str, str]
    links: tuple[str, ...]
    is_known: bool

    @property
    def node(self) -> str:
        return self.properties["DEVNAME"]


class Udev(DiscoveryMethod):
    """The device nodes that udev knows. On a node without udev, they have only the kernel's properties."""

    key = "udev"

    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every device node that matches a selector, in natural order.

        A device is named after its first link in a by-id directory, else in a by-path directory, else after its node. A
        link that several devices claim names none of them. A device that is offered keeps its name.
        """
        subsystems = dict.fromkeys(selector.subsystem for selector in discovery.udev)
        devices = [device for subsystem in subsystems for device in _devices(subsystem, root)]
        has_udev = bool(root.names(DATA))
        claims = collections.Counter(link for device in devices for link in device.links)
        for device in devices:
            selector = next((each for each in discovery.udev if _fits(each, device)), None)
            if selector is None:
                continue
            names = [*device.links, device.node[len(DEV) + 1 :]]
            name = next((each for each in names if claims[each] < 2), names[-1])
            host_path = root.device_node(device.node)
            found = Found(
                name=name.replace("/", "-"),
                own=(Node(device.node, host_path),) if host_path else (),
                on_bus=False,
                properties={key: device.properties[key] for key in selector.properties},
                known_as=(device.node, *(f"{DEV}/{link}" for link in device.links)),
                attributes=Attributes(**common_attributes(device.directory, root)),
                other_names=tuple(each.replace("/", "-") for each in names if each != name),
            )
            if host_path is None:
                found = found._replace(problem=f"{device.node} matched, but does not exist")
            elif has_udev and not device.is_known:
                # Its name may change when udev has made its links.
                found = found._replace(problem=f"{device.node} matched, but udev has not handled it yet")
            yield found

    def watch_paths(self, discovery: Discovery) -> Iterator[str]:
        """udev's database."""
        yield DATA + "/*"


def _devices(subsystem: str, root: Root) -> Iterator[_UdevDevice]:
    for parent in (f"/sys/class/{subsystem}", f"/sys/bus/{subsystem}/devices"):
        for name in sorted(root.names(parent), key=natural_order):
            directory = root.resolve(f"{parent}/{name}")
            number = root.text(f"{directory}/dev") if directory else ""
            if not directory or not number:
                continue
            kernel = root.text(directory + "/uevent").split("\n")
            entry = root.text(f"{DATA}/{'b' if subsystem == 'block' else 'c'}{number}")
            database = entry.split("\n")
            lines = [*kernel, *(line[2:] for line in database if line.startswith("E:"))]
            properties = {key: value for key, equals, value in (line.partition("=") for line in lines) if equals}
            # As `udevadm info` prints them.
            properties["DEVNAME"] = f"{DEV}/{properties.get('DEVNAME', name)}"
            properties.update(DEVPATH=directory[len("/sys") :], SUBSYSTEM=subsystem)
            links = sorted(line[2:] for line in database if line.startswith("S:"))
            stable = tuple(link for place in _STABLE for link in links if place in link)
            yield _UdevDevice(directory, properties, stable, bool(entry))


def _fits(selector: UdevSelector, device: _UdevDevice) -> bool:
    return selector.subsystem == device.properties["SUBSYSTEM"] and all(
        compiled(pattern).match(device.properties[key]) if key in device.properties else False
        for key, pattern in selector.properties.items()
    )
