"""The host's directories that the plugin looks into: what its sandbox, a unit's or a pod's, must show it."""

from __future__ import annotations

import os
import re
from typing import Iterable, Iterator, List, Tuple

from . import fields
from .model import Configuration, Resource
from .problems import Problem

#: Where most devices are.
DEV = "/dev"
# From here on a path of the declaration is a pattern, or depends on what was found.
_VARIABLE = re.compile(r"[*?\[{]")


#: What the service's sandbox hides, but for directories that are declared; the kubelet's root directory is another.
HIDDEN = ("/run", "/var/run", "/var/lib/kubelet")


def host_directories(configuration: Configuration) -> Tuple[str, ...]:
    """Where devices are looked for and CDI specs are read; the directory that the plugin writes is none of them."""
    of_devices = {path for resource in configuration.resources for path in directories(resource)}
    return tuple(sorted(of_devices.union(configuration.cdi_spec_dirs) - {configuration.dynamic_cdi_dir}))


def directory_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """Directories of devices that cannot be shown to the service's sandbox."""
    for path in sorted(set(directories(resource))):
        if path in HIDDEN:
            message = "has devices in %s itself, which the service's sandbox hides: use a directory below it" % path
            yield Problem(where, message)
        elif path.startswith(tuple(each + "/" for each in HIDDEN)):
            problems: List[Problem] = []
            fields.directory(path, where, problems)
            yield from problems


def directories(resource: Resource) -> Iterator[str]:
    """The directories in which a resource's devices are looked for."""
    for device in resource.devices:
        for node in device.nodes:
            yield _directory(node.host_path)
    discover = resource.discover
    if discover.usb or discover.pci:
        yield DEV
    for pattern in discover.paths:
        yield _directory(pattern)
    for grouped in discover.nodes:
        yield _directory(grouped.path)


def _directory(path: str) -> str:
    """The directory that has to be seen for a path or pattern: of /dev all, because devices come and go there."""
    if path.startswith(DEV + "/"):
        return DEV
    found = _VARIABLE.search(path)
    return os.path.dirname(path[: found.start()] if found else path) or "/"


def outermost(paths: Iterable[str]) -> Tuple[str, ...]:
    """Those that lie in none of the others, sorted."""
    found = set(paths)
    return tuple(
        sorted(
            path
            for path in found
            if not any(path != other and path.startswith(other.rstrip("/") + "/") for other in found)
        )
    )
