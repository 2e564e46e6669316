"""A root directory to discover in: plain files stand for device nodes."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

import pytest

from node_device_plugin.cdi.links import Links
from node_device_plugin.declaration import Device, Resource, parse_resources
from node_device_plugin.devices.discovery import Discovered, Discoverer, Offered
from node_device_plugin.devices.discovery.root import Root
from node_device_plugin.support.bounded_calls import BoundedCalls

NONE: Mapping[str, Any] = MappingProxyType({})


class Machine:
    """Files, links and devices below a directory, by their absolute paths inside of it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def file(self, path: str, text: str = "") -> None:
        target = self.path / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def link(self, path: str, target: str) -> None:
        link = self.path / path[1:]
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    def remove(self, path: str) -> None:
        (self.path / path[1:]).unlink()

    def on_bus(self, bus: str, directory: str, **attributes: str) -> None:
        """A device in /sys/devices with its link in the bus, and its node where it has one (``devname``)."""
        name = directory.rsplit("/", 1)[-1]
        self.link("/sys/bus/%s/devices/%s" % (bus, name), "../../../devices/%s" % directory)
        devname = attributes.pop("devname", None)
        self.file("/sys/devices/%s/uevent" % directory)
        for key, text in attributes.items():
            self.file("/sys/devices/%s/%s" % (directory, key), text + "\n")
        if devname:
            self.node_of(directory, devname)

    def node_of(self, directory: str, devname: str) -> None:
        """A device directory with a node."""
        self.file("/sys/devices/%s/dev" % directory, "1:2\n")
        self.file("/sys/devices/%s/uevent" % directory, "MAJOR=1\nMINOR=2\nDEVNAME=%s\n" % devname)
        self.file("/dev/" + devname)

    def driven_by(self, directory: str, driver: str, bus: str = "pci") -> None:
        """The driver that the kernel bound to a device or interface in /sys/devices."""
        self.link("/sys/devices/%s/driver" % directory, "/sys/bus/%s/drivers/%s" % (bus, driver))

    def left_out(self, discover: dict[str, Any]) -> list[tuple[str, str]]:
        """Each device that matched and is left out, with the reason."""
        (found,) = globals()["discover"]([resource(discover)], str(self.path)).values()
        return [(device.id, reason) for device, reason in found.left_out]

    def find(self, discover: dict[str, Any], **more: Any) -> list[Device]:
        return find(resource(discover, **more), str(self.path))


class LinksInside(Links):
    """What paths lead to inside of another root directory."""

    def __init__(self, root: str, calls: Optional[BoundedCalls] = None) -> None:
        super().__init__(calls)
        self._root = root

    def real(self, path: str) -> str:
        return Root(self._root).resolve(path) or path


def discover(
    resources: Sequence[Resource], root: str = "/", offered: Offered = dict, known: Mapping[str, Resource] = NONE
) -> dict[str, Discovered]:
    """What every resource finds in one look."""
    discoverer = Discoverer(LinksInside(root), root)
    return asyncio.run(discoverer.discover(resources, offered, known))


def find(resource: Resource, root: str = "/") -> list[Device]:
    """What a resource finds where there is no other one."""
    found = discover([resource], root).get(resource.name)
    return list(found.devices) if found else []


def resource(discover: dict[str, Any], name: str = "example.com/dev", **more: Any) -> Resource:
    (only,) = parse_resources([{"name": name, "discover": discover, **more}])
    return only


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
