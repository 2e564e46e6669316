"""The host's directories that a declaration names, and which of them the service's sandbox hides."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from . import fields
from .model import Resource
from .problems import Problem

#: Where most devices are.
DEV = "/dev"
# From here on a path of the declaration is a pattern, or depends on what was found.
_VARIABLE = re.compile(r"[*?\[{]")
#: What the service's sandbox hides, but for directories that are declared; the kubelet's root directory is another.
HIDDEN = ("/run", "/var/run", "/var/lib/kubelet")


def directory_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """Directories of devices that cannot be shown to the service's sandbox."""
    for path in sorted(set(directories(resource))):
        if path in HIDDEN:
            message = f"has devices in {path} itself, which the service's sandbox hides: use a directory below it"
            yield Problem(where, message)
        elif path.startswith(tuple(each + "/" for each in HIDDEN)):
            problem = fields.directory(path)
            if problem:
                yield Problem(where, problem)


def directories(resource: Resource) -> Iterator[str]:
    """The directories of the device nodes and patterns that a resource names."""
    for device in resource.devices:
        for node in device.nodes:
            yield directory_of(node.host_path)
    for pattern in resource.discover.paths:
        yield directory_of(pattern)
    for grouped in resource.discover.nodes:
        yield directory_of(grouped.path)


def directory_of(path: str) -> str:
    """The directory that has to be seen for a path or pattern: of /dev all, because devices come and go there."""
    if path.startswith(DEV + "/"):
        return DEV
    found = _VARIABLE.search(path)
    return os.path.dirname(path[: found.start()] if found else path) or "/"
