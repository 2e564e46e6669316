"""Which directories to watch for changes of discovery and health."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator

from ...cdi.links import Links, node_paths
from ...declaration import Resource
from ...declaration.named_directories import DEV
from ...declaration.patterns import wildcards
from . import methods_of

_PLACEHOLDER = re.compile(r"\{[^}]*\}")


def directories(resource: Resource, links: Links) -> set[str]:
    """The directories to watch. If a directory does not exist, its nearest existing parent is watched instead.

    resource: with the devices found last. Reads the file system, so it must not run in the event loop.
    """
    patterns = {path for method in methods_of(resource.discover) for path in method.watch_paths(resource.discover)}
    patterns.update(_PLACEHOLDER.sub("*", node.path) for node in resource.discover.nodes)
    found = {directory for pattern in patterns for directory in _of_pattern(pattern)}
    nodes = node_paths([resource])
    # If a node is a link, its target may go while the link stays.
    nodes.update(list(filter(None, map(links.target, nodes))))
    if resource.discover.cdi or any(device.cdi_devices for device in resource.devices):
        # Most nodes of other programs' specs are here; the sweep sees the others.
        found.add(nearest(DEV))
    # The set avoids repeated look-ups: thousands of devices lie in a few directories.
    found.update(map(nearest, {os.path.dirname(path) for path in nodes}))
    return found


def _of_pattern(pattern: str) -> Iterator[str]:
    """The directories of a pattern. If a directory name has a wildcard, also its parent, where new ones may appear."""
    parts = pattern.split("/")
    for number in range(2, len(parts)):
        if wildcards(parts[number - 1]):
            yield from _existing("/".join(parts[: number - 1]) or "/")
    yield from _existing("/".join(parts[:-1]) or "/")


def _existing(pattern: str) -> Iterator[str]:
    matches = glob.glob(pattern) if wildcards(pattern) else [pattern]
    for path in matches:
        yield nearest(path)


def nearest(directory: str) -> str:
    """The directory, or its nearest existing parent."""
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    return directory
