"""Declared nodes that are links on this node, such as ``/dev/serial/by-id/…``.

A runtime gives nobody a link: CDI's library looks at the host path itself (Lstat in pkg/cdi, container-edits_unix.go)
and calls a link "not a device node", so that no container with it starts.
"""

from __future__ import annotations

import os
from typing import Collection, Set

from ..declaration import Resource


def links_among(paths: Collection[str]) -> Set[str]:
    """Those that are symbolic links. A question for each directory, not for each of thousands of nodes in it."""
    return {
        path for parent in {os.path.dirname(path) for path in paths} for path in _links_in(parent).intersection(paths)
    }


def with_links_followed(resource: Resource) -> Resource:
    """The resource with what links lead to now for its host paths; the very same one where none is a link.

    It reads the file system: not for the event loop.
    """
    links = links_among({node.host_path for device in resource.devices for node in device.nodes})
    leads_to = {link: os.path.realpath(link) for link in links}
    # A file's name is any bytes, and a spec is UTF-8.
    leads_to = {link: target for link, target in leads_to.items() if target.isprintable()}
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


def _links_in(directory: str) -> Set[str]:
    try:
        with os.scandir(directory) as entries:
            return {entry.path for entry in entries if entry.is_symlink()}
    except OSError:
        return set()
