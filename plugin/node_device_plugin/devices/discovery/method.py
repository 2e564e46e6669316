"""What each method of discovery has. To add one: a module like usb, its line in ``METHODS``, and its selector in the
declaration (schema, model and the property names there)."""

from __future__ import annotations

import abc
from collections.abc import Iterator

from ...declaration.model import Discovery
from ...declaration.named_directories import DEV
from .found import Found
from .root import Root


class DiscoveryMethod(abc.ABC):
    """One way to find devices. It is asked only where a resource uses it.

    key: its key in a resource's ``discover``. needs_uevents: whether the kernel's messages about devices (uevents) tell
    of changes that no directory shows.
    """

    key: str
    needs_uevents: bool

    @abc.abstractmethod
    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every device there now. It reads the file system: not for the event loop."""

    def watch_paths(self, discovery: Discovery) -> Iterator[str]:
        """Patterns of paths at which devices come and go; none where uevents tell of all."""
        return iter(())

    def host_directories(self, discovery: Discovery) -> Iterator[str]:
        """The host's directories that ``find`` has to see, beside /sys: drivers make nodes anywhere in /dev."""
        yield DEV
