"""Resolves CDI names in the specs of a node, by the rules of the runtimes' own CDI library."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..declaration import Device, Resource
from ..declaration.model import BIND, DeviceNode
from ..declaration.names import qualified_cdi_name
from .directories import FOREIGN, SpecFile


class HostPath(NamedTuple):
    """A host path that a container gets with a device. what: ``device node``, ``mount`` or ``hook``.

    is_needed: whether a container does not start without it.
    """

    what: str
    path: str
    is_needed: bool = True


class Resolution(NamedTuple):
    """files: fully qualified names, each with the file whose device containers get.

    edits: the same names, each with the device's edits, without those of its kind.
    broken: names that do not resolve, each with the reason.
    overridden: names of ours for which containers get another program's device, each with its file and the reason.
    """

    files: Mapping[str, SpecFile]
    edits: Mapping[str, Mapping[str, Any]]
    broken: Mapping[str, str]
    overridden: Mapping[str, tuple[str, str]]

    def foreign(self) -> Iterator[str]:
        """The names of other programs' devices."""
        return (name for name, file in self.files.items() if file.owner == FOREIGN)

    def foreign_paths(self) -> dict[str, tuple[HostPath, ...]]:
        """The host paths of each device of another program: its own and those of its kind."""
        return {
            name: tuple(dict.fromkeys(path for edits in self._edits_of(name) for path in host_paths(edits)))
            for name in self.foreign()
        }

    def with_foreign_nodes(self, resource: Resource) -> Resource:
        """The resource, whose devices have the nodes that other programs' specs give with them."""
        return resource._replace(
            devices=tuple(
                device._replace(foreign_nodes=tuple(self._nodes(device))) if device.cdi_devices else device
                for device in resource.devices
            )
        )

    def _nodes(self, device: Device) -> Iterator[DeviceNode]:
        for name in device.cdi_devices:
            for edits in self._edits_of(name):
                for node in edits.get("deviceNodes") or ():
                    yield DeviceNode(node["path"], node.get("hostPath") or node["path"], "rw", None, None, None)

    def _edits_of(self, name: str) -> Iterator[Mapping[str, Any]]:
        if name in self.files:
            yield self.edits[name]
            yield (self.files[name].spec or {}).get("containerEdits") or {}


def resolution(files: Sequence[SpecFile]) -> Resolution:
    """The names of all specs. files: of all directories; a file of a later directory takes precedence."""
    found: dict[str, SpecFile] = {}
    edits: dict[str, Mapping[str, Any]] = {}
    broken: dict[str, str] = {}
    overridden: dict[str, tuple[str, str]] = {}
    conflicts = {name: file.path for file in files for name in file.conflicts}
    for file in files:
        if file.refusals:
            for device in file.devices:
                broken[qualified_cdi_name(file.kind, device)] = f"{file.path}: {file.refusals[0]}"
        for each in (file.spec or {}).get("devices") or ():
            name = qualified_cdi_name(file.kind, each["name"])
            if name not in conflicts:
                found[name], edits[name] = file, each["containerEdits"]
        for name, why in file.overrides.items():
            overridden[name] = file.path, f"{file.path}: {why}"
    for name, path in conflicts.items():
        # Runtimes drop the name even if a directory with precedence has it, too.
        broken[name] = f"{path} and another file in its directory both define this name"
    return Resolution(found, edits, broken, overridden)


def host_paths(edits: Mapping[str, Any]) -> Iterator[HostPath]:
    """The host paths of container edits: device nodes, sources of bind mounts, and programs of hooks.

    Runtimes do not read a device node whose type and major number the spec gives (the CDI library, fillMissingInfo).
    """
    for node in edits.get("deviceNodes") or ():
        is_given = node.get("type") and (node.get("major") or node["type"] == "p")
        yield HostPath("device node", node.get("hostPath") or node["path"], not is_given)
    for mount in edits.get("mounts") or ():
        if mount.get("type") in (*BIND, "") and os.path.isabs(mount["hostPath"]):
            yield HostPath("mount", mount["hostPath"])
    for hook in edits.get("hooks") or ():
        yield HostPath("hook", hook["path"])
