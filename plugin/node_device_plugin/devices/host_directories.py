"""The host's directories that the plugin looks into: what its sandbox, a unit's or a pod's, must show it.

Ansible imports it on the controller: the standard library is all that it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from ..declaration import Configuration, Resource
from ..declaration.named_directories import directories as named_directories
from .discovery import methods_of


def host_directories(configuration: Configuration) -> tuple[str, ...]:
    """Where devices are looked for and CDI specs are read; the directory that the plugin writes is none of them."""
    of_devices = {path for resource in configuration.resources for path in directories(resource)}
    return tuple(sorted(of_devices.union(configuration.cdi_spec_dirs) - {configuration.dynamic_cdi_dir}))


def directories(resource: Resource) -> Iterator[str]:
    """The directories in which a resource's devices are looked for."""
    yield from named_directories(resource)
    for method in methods_of(resource.discover):
        yield from method.host_directories(resource.discover)


def outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Those that lie in none of the others, sorted."""
    found = set(paths)
    return tuple(sorted(path for path in found if found.isdisjoint(map(str, PurePosixPath(path).parents))))
