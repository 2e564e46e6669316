"""The host directories that a declaration uses, and those that the service's sandbox hides."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from . import fields
from .model import Resource
from .problems import Problem

#: The directory of most device nodes.
DEV = "/dev"
# The first character that makes a path a pattern or a template.
_VARIABLE = re.compile(r"[*?\[{]")
#: Directories that the service's sandbox hides, except their declared subdirectories. The sandbox
#: also hides the kubelet's root directory.
HIDDEN = ("/run", "/var/run", "/var/lib/kubelet")


def directory_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """Directories of devices that the service's sandbox cannot show."""
    for path in sorted(set(directories(resource))):
        if path in HIDDEN:
            message = f"has devices directly in {path}, which the service's sandbox hides: move them to a subdirectory"
            yield Problem(where, message)
        elif path.startswith(tuple(each + "/" for each in HIDDEN)):
            problem = fields.directory(path)
            if problem:
                yield Problem(where, problem)


def directories(resource: Resource) -> Iterator[str]:
    """The directories of a resource's device nodes and patterns."""
    for device in resource.devices:
        for node in device.nodes:
            yield directory_of(node.host_path)
        if device.cdi_devices:
            # The plugin must see the nodes of other programs' specs.
            yield DEV
    for pattern in resource.discover.paths:
        yield directory_of(pattern)
    for grouped in resource.discover.nodes:
        yield directory_of(grouped.path)


def directory_of(path: str) -> str:
    """The directory that the plugin must see for a path or pattern.

    For any path below /dev, this is /dev itself, because devices come and go there.
    """
    if path.startswith(DEV + "/"):
        return DEV
    found = _VARIABLE.search(path)
    return os.path.dirname(path[: found.start()] if found else path) or "/"
