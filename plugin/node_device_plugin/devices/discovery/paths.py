"""Devices by patterns of paths: each node, or link to a node, that matches is one."""

from __future__ import annotations

from collections.abc import Iterator

from ...declaration.model import Discovery
from ...declaration.named_directories import directory_of
from ...declaration.patterns import compiled
from .found import Found, Node
from .method import DiscoveryMethod
from .root import Root

_DEV = "/dev/"


class Paths(DiscoveryMethod):
    """Whatever matches a pattern."""

    key = "paths"
    needs_uevents = False

    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Everything that matches, by the order of the patterns, then as people count.

        A device is named after the path that matched, so that ``/dev/serial/by-id/x`` stays the same device whatever
        node its link leads to. Of two paths to one node the first counts.
        """
        seen: set[str] = set()
        for pattern in discovery.paths:
            wanted = compiled(pattern)
            for path in root.glob(pattern):
                match = wanted.match(path)
                host_path = root.device_node(path) if match is not None else None
                if host_path is None or match is None or host_path in seen:
                    continue
                seen.add(host_path)
                yield Found(
                    name=(path[len(_DEV) :] if path.startswith(_DEV) else path[1:]).replace("/", "-"),
                    own=(Node(path, host_path),),
                    on_bus=False,
                    properties={"match%d" % (n + 1): text for n, text in enumerate(match.groups())},
                    known_as=(path, host_path),
                )

    def watch_paths(self, discovery: Discovery) -> Iterator[str]:
        """The patterns themselves."""
        yield from discovery.paths

    def host_directories(self, discovery: Discovery) -> Iterator[str]:
        """Those of the patterns."""
        yield from map(directory_of, discovery.paths)
