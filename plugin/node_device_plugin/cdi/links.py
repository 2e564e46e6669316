"""Resolves links in host paths, such as ``/dev/serial/by-id/…``.

Runtimes do not follow links: CDI's library checks the host path itself (Lstat in pkg/cdi, container-edits_unix.go) and
calls a link "not a device node", so no container with a link starts.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Callable, NamedTuple

from ..declaration import Resource
from ..support.bounded_calls import BoundedCalls, Key


class _Directory(NamedTuple):
    """real: the directory with links resolved. links: the links in the directory, each name with its target."""

    real: str
    links: Mapping[str, str]


class Links:
    """Remembers the targets of paths. If a directory hangs or cannot be read, its last answer stays.

    calls: runs the calls to the file system.
    """

    def __init__(self, calls: BoundedCalls | None = None) -> None:
        self.calls = calls or BoundedCalls()
        self._directories: dict[str, _Directory] = {}

    async def look_at(self, paths: Iterable[str]) -> None:
        """Read the links of these paths, one call for each directory instead of each of thousands of nodes."""
        # Known links are read again, so that a path that is no longer a link is forgotten.
        due = [
            (Key(directory, "links"), functools.partial(_look_into, directory, names | self._known(directory)))
            for directory, names in _by_directory(paths).items()
        ]
        for key, answer in (await self.calls.run(due)).items():
            if isinstance(answer, _Directory):
                self._directories[key.group] = answer

    def _known(self, directory: str) -> set[str]:
        return set(self._directories[directory].links) if directory in self._directories else set()

    def real(self, path: str) -> str:
        """The path with links resolved; the path itself if ``look_at`` never read its directory."""
        parent, name = os.path.split(path)
        directory = self._directories.get(parent)
        if directory is None:
            return path
        return directory.links.get(name) or os.path.join(directory.real, name)

    def target(self, path: str) -> str:
        """What a known symbolic link leads to; empty for another path."""
        parent, name = os.path.split(path)
        directory = self._directories.get(parent)
        return directory.links.get(name, "") if directory else ""

    def followed(self, resource: Resource) -> Resource:
        """The resource with the links of its nodes' host paths resolved; the same object if there are no links."""
        targets = {path: self.target(path) for path in node_paths([resource])}
        # A file's name may be any bytes, but a spec is UTF-8.
        leads_to = {path: target for path, target in targets.items() if target and target.isprintable()}
        if not leads_to:
            return resource
        return resource.with_nodes(
            lambda _device, node: node._replace(host_path=leads_to.get(node.host_path, node.host_path))
        )


def node_paths(resources: Iterable[Resource]) -> set[str]:
    """The host paths of all device nodes."""
    return {node.host_path for resource in resources for device in resource.devices for node in device.nodes}


def _by_directory(paths: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in paths:
        parent, name = os.path.split(path)
        found.setdefault(parent, set()).add(name)
    return found


def _look_into(directory: str, names: Collection[str]) -> _Directory:
    """The given names in a directory that are links. Raises OSError if the directory exists but cannot be read."""
    try:
        with os.scandir(directory) as entries:
            links: Sequence[str] = [entry.name for entry in entries if entry.is_symlink() and entry.name in names]
    except (FileNotFoundError, NotADirectoryError):
        links = ()
    real = os.path.realpath(directory)
    # Thousands of links lead to few directories.
    real_of = functools.lru_cache(maxsize=None)(lambda parent: os.path.realpath(os.path.join(real, parent)))
    return _Directory(real, {name: _target(os.path.join(real, name), real_of) for name in links})


def _target(link: str, real_of: Callable[[str], str]) -> str:
    """The same as os.path.realpath, for a link in a real directory. real_of: resolves the directory of its target."""
    with contextlib.suppress(OSError):
        parent, name = os.path.split(os.readlink(link))
        path = os.path.join(real_of(parent), name)
        if name not in ("", ".", "..") and not os.path.islink(path):
            return path
    return os.path.realpath(link)
