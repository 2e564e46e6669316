"""The host directories that the plugin reads. Its sandbox (systemd unit or pod) must expose them.

Ansible imports this module on the controller, so the module needs only the standard library.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from ..declaration import Configuration, Resource
from ..declaration.named_directories import directories as named_directories
from .discovery import methods_of


def host_directories(configuration: Configuration) -> tuple[str, ...]:
    """The directories with devices and CDI specs, without the directory that the plugin writes to."""
    of_devices = {path for resource in configuration.resources for path in directories(resource)}
    return tuple(sorted(of_devices.union(configuration.cdi_spec_dirs) - {configuration.dynamic_cdi_dir}))


def directories(resource: Resource) -> Iterator[str]:
    """The directories with a resource's devices."""
    yield from named_directories(resource)
    for method in methods_of(resource.discover):
        yield from method.host_directories(resource.discover)


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """The paths that are not below another of these paths, sorted."""
    found = set(paths)
    return tuple(sorted(path for path in found if found.isdisjoint(map(str, PurePosixPath(path).parents))))
