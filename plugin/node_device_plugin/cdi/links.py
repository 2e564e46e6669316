"""What paths of the host lead to, such as ``/dev/serial/by-id/…``.

A runtime gives nobody a link: CDI's library looks at the host path itself (Lstat in pkg/cdi, container-edits_unix.go)
and calls a link "not a device node", so that no container with it starts.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from ..declaration import Resource
from ..support.bounded_calls import BoundedCalls, Key


class _Directory(NamedTuple):
    """A directory without links, and what the links in it lead to, by name."""

    real: str
    links: Mapping[str, str]


class Links:
    """What paths lead to, as it was when they were last looked at: before, if they hang or cannot be read now.

    calls: where it asks the file system.
    """

    def __init__(self, calls: BoundedCalls | None = None) -> None:
        self.calls = calls or BoundedCalls()
        self._directories: dict[str, _Directory] = {}

    async def look_at(self, paths: Iterable[str]) -> None:
        """Look at these paths, one question for each directory, not for each of thousands of nodes in it."""
        # With the others that are known: what is no link any more is forgotten.
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
        """The path without links; the path itself where nobody has looked at it."""
        parent, name = os.path.split(path)
        directory = self._directories.get(parent)
        if directory is None:
            return path
        return directory.links.get(name) or os.path.join(directory.real, name)

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a symbolic link."""
        parent, name = os.path.split(path)
        return parent in self._directories and name in self._directories[parent].links

    def followed(self, resource: Resource) -> Resource:
        """The resource with what links lead to for its host paths; the very same one where none is a link."""
        links = {path for path in node_paths([resource]) if self.is_link(path)}
        # A file's name is any bytes, and a spec is UTF-8.
        leads_to = {link: self.real(link) for link in links if self.real(link).isprintable()}
        if not leads_to:
            return resource
        return resource._replace(
            devices=tuple(
                device._replace(
                    nodes=tuple(
                        node._replace(host_path=leads_to.get(node.host_path, node.host_path)) for node in device.nodes
                    )
                )
                for device in resource.devices
            )
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
    """Raises OSError where the directory is there and cannot be read."""
    try:
        with os.scandir(directory) as entries:
            links: Sequence[str] = [entry.name for entry in entries if entry.is_symlink() and entry.name in names]
    except (FileNotFoundError, NotADirectoryError):
        links = ()
    return _Directory(
        os.path.realpath(directory), {name: os.path.realpath(os.path.join(directory, name)) for name in links}
    )
