"""Devices by patterns of paths: each matching node, or link to a node, is a device."""

from __future__ import annotations

from collections.abc import Iterator

from ...declaration.model import Discovery
from ...declaration.named_directories import directory_of
from ...declaration.names import name_of_path
from ...declaration.patterns import compiled, wildcards
from .method import DiscoveryMethod, Found, Node
from .root import Root


class Paths(DiscoveryMethod):
    """The device nodes, and links to device nodes, that match a pattern."""

    key = "paths"
    needs_uevents = False

    def find(self, discovery: Discovery, root: Root) -> Iterator[Found]:
        """Every device that matches, in the order of the patterns, then in natural order.

        A device is named after the path that matched, so ``/dev/serial/by-id/x`` stays the same device whichever
        node its link leads to. If two paths lead to one node, the first counts.
        """
        seen: set[str] = set()
        for pattern in discovery.paths:
            wanted = compiled(pattern)
            for path in root.glob(pattern):
                match = wanted.match(path)
                host_path = root.device_node(path)
                problem = None if host_path else _no_node(path, pattern, root)
                if match is None or host_path in seen or not (host_path or problem):
                    continue
                if host_path:
                    seen.add(host_path)
                yield Found(
                    name=name_of_path(path),
                    own=(Node(path, host_path),) if host_path else (),
                    on_bus=False,
                    properties={"match%d" % (n + 1): text for n, text in enumerate(match.groups())},
                    known_as=(path, host_path or path),
                    problem=problem,
                )

    def watch_paths(self, discovery: Discovery) -> Iterator[str]:
        """The patterns themselves."""
        yield from discovery.paths

    def host_directories(self, discovery: Discovery) -> Iterator[str]:
        """The directories of the patterns."""
        yield from map(directory_of, discovery.paths)


def _no_node(path: str, pattern: str, root: Root) -> str | None:
    """Why a path is no device. None for a directory that a wildcard matched, because such directories are common."""
    if root.is_directory(path):
        is_meant = not wildcards(pattern)
        return f"{path} is a directory, not a device: set a pattern such as {path}/*" if is_meant else None
    if root.is_link(path) and not root.exists(path):
        return f"{path} is a link to {root.resolve(path) or 'itself'}, which does not exist"
    return f"{path} is neither a device node nor a link to one"
