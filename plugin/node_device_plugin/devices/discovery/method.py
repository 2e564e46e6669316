"""The interface of a discovery method, and what it finds, before the nodes are grouped into a device.

To add a method, write a module like usb, add it to ``METHODS``, and add its selector to the declaration (schema, model
and the property names there).
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import NamedTuple

from ...declaration.model import Attributes, Discovery
from ...declaration.named_directories import DEV, directory_of
from .root import Root


class Incomplete(str):
    """Why a device that matched cannot be offered now. A device that has just appeared may get more nodes."""


class Node(NamedTuple):
    """A device node: its path in a container, and its path on the host with links resolved.

    is_common: whether every device of the resource gives this node. placeholder: see DeviceNode.
    """

    path: str
    host_path: str
    is_common: bool = False
    placeholder: str | None = None


class Found(NamedTuple):
    """A finding of a discovery method.

    name: unique on the node and the same in every scan. other_names: further possible names; if the device is
    already offered under one of them, it keeps this name.
    own: its nodes: the node of a path, or all nodes that the drivers of a USB or PCI device made.
    on_bus: whether patterns in ``nodes`` select among its own nodes instead of adding nodes.
    drivers: the drivers that the kernel bound, for reasons; None if the method does not know. problem: why the device
    cannot be offered, or None.
    known_as: the names that ``exclude`` matches. properties: the values for templates.
    """

    name: str
    own: tuple[Node, ...]
    on_bus: bool
    properties: dict[str, str]
    known_as: tuple[str, ...]
    numa_node: int | None = None
    attributes: Attributes = Attributes()
    other_names: tuple[str, ...] = ()
    drivers: tuple[str, ...] | None = None
    problem: str | None = None
    #: Fully qualified name in another program's CDI spec, and the host paths that only this device has there.
    cdi_name: str = ""
    cdi_paths: tuple[str, ...] = ()
    #: For a part of a device: the host paths of the whole device, which its other parts have, too.
    part_of: tuple[str, ...] = ()
    #: See Device.
    identity: str = ""

    def without(self, missing: str) -> str:
        """The reason for a device without a node. missing: the node."""
        text = f"{self.known_as[0]} matched, but has no {missing}"
        if self.drivers is None:
            return text
        if not self.drivers:
            return text + ": no driver is bound to it"
        are = "driver is" if len(self.drivers) == 1 else "drivers are"
        return f"{text}: its {are} {', '.join(self.drivers)}"

    @property
    def cdi_names(self) -> list[str]:
        """All fully qualified names of the device in the other program's spec."""
        kind = self.cdi_name.partition("=")[0]
        return [f"{kind}={name}" for name in self.known_as] if kind else []


class DiscoveryMethod(abc.ABC):
    """One way to find devices. A method runs only if a resource uses it.

    key: its key in a resource's ``discover``. needs_uevents: whether some changes show only in the kernel's messages
    about devices (uevents), not in a directory.
    """

    key: str
    needs_uevents = True

    @abc.abstractmethod
    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every device that exists now. Reads the file system, so it must not run in the event loop."""

    def watch_paths(self, discovery: Discovery) -> Iterator[str]:
        """Patterns of paths at which devices come and go; none if uevents report every change."""
        return iter(())

    def host_directories(self, discovery: Discovery) -> Iterator[str]:
        """The host's directories that ``find`` needs beside /sys: those of the patterns, and /dev.

        Drivers make nodes anywhere in /dev.
        """
        yield DEV
        yield from map(directory_of, self.watch_paths(discovery))
