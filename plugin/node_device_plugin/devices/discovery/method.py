"""The interface of a discovery method. To add a method, write a module like usb, add it to ``METHODS``, and add its
selector to the declaration (schema, model and the property names there)."""

from __future__ import annotations

import abc
from collections.abc import Iterator

from ...declaration.model import Discovery
from ...declaration.named_directories import DEV, directory_of
from .found import Found
from .root import Root


class DiscoveryMethod(abc.ABC):
    """One way to find devices. A method runs only if a resource uses it.

    key: its key in a resource's ``discover``. needs_uevents: whether some changes show only in the kernel's messages
    about devices (uevents), not in a directory.
    """

    key: str
    needs_uevents: bool

    @abc.abstractmethod
    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every device that exists now. Reads the file system, so it must not run in the event loop."""

    def watch_paths(self, discovery: Discovery) -> Iterator[str]:
        """Patterns of paths at which devices come and go; none if uevents report every change."""
        return iter(())

    def host_directories(self, discovery: Discovery) -> Iterator[str]:
        """The host's directories that ``find`` needs beside /sys: all of /dev, where drivers make nodes anywhere."""
        yield DEV
        yield from map(directory_of, self.watch_paths(discovery))
