"""What each method of discovery has. To add one: a module like usb, its line in ``METHODS``, and its selector in the
declaration (schema, model and the property names there)."""

from __future__ import annotations

from typing import Callable, Iterator, Protocol, Sequence

from ...declaration.model import Discovery
from .found import Found, Node
from .root import Root

#: Whether a device of a name is offered now, with one of these nodes.
IsOffered = Callable[[str, Sequence[Node]], bool]


class DiscoveryMethod(Protocol):
    """One way to find devices. It is asked only where a resource uses it."""

    @property
    def key(self) -> str:
        """Its key in a resource's ``discover``."""

    @property
    def needs_uevents(self) -> bool:
        """Whether the kernel's messages about devices (uevents) tell of changes that no directory shows."""

    def find(self, discovery: Discovery, root: Root, is_offered: IsOffered) -> Iterator[Found]:
        """Every device there now. It reads the file system: not for the event loop."""

    def watch_paths(self, discovery: Discovery) -> Iterator[str]:
        """Patterns of paths at which devices come and go."""

    def host_directories(self, discovery: Discovery) -> Iterator[str]:
        """The host's directories that ``find`` has to see, beside /sys."""
