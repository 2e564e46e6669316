"""Which devices of other programs' CDI specs a container can get alone, and why other devices are left out.

Facts: nvidia-ctk names a GPU by its index (0 or gpu0) and its UUID (GPU-…), a MIG part by both indexes (0:1 or mig0:1)
and its UUID (MIG-…), and all devices together ``all``. A MIG part has the node of its GPU beside nodes of its own. On
WSL only ``all`` exists (NVIDIA Container Toolkit, pkg/nvcdi).
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

from ...cdi.resolution import UUID, HostPath, Resolution, same_device
from ...declaration.names import qualified_cdi_name
from ..health.cdi_names import is_visible
from ..table import natural_order
from .root import Root

#: The name for all devices of a kind.
ALL = "all"
#: Names of MIG parts: the UUID, and the indexes of GPU and part.
_PART = re.compile(r"MIG-.*|(mig)?\d+:\d+")
#: The node of a GPU, which each of its MIG parts has, too.
_WHOLE = re.compile(r"nvidia\d+")


class SpecDevice(NamedTuple):
    """A device of a kind.

    names: all names by which a container gets the same, the name for the device's id first. nodes: the host paths of
    its device nodes. files: the specs that have the names. edits: its own edits as text.
    """

    names: tuple[str, ...]
    nodes: frozenset[str]
    files: frozenset[str]
    edits: str

    @property
    def hardware(self) -> frozenset[str] | str:
        """Equal for devices that are the same hardware: the nodes, or the edits of a device without nodes."""
        return self.nodes or self.edits

    @property
    def part_of(self) -> frozenset[str]:
        """The nodes of the whole device; empty if the device is no part."""
        return part_of(self.names, self.nodes)

    @property
    def file(self) -> str:
        """A spec that has the device."""
        return min(self.files)


#: The devices by specs and kind: to compare the edits of thousands of devices takes seconds.
_LISTED: MutableMapping[Resolution, dict[str, list[SpecDevice]]] = weakref.WeakKeyDictionary()


def listed(kind: str, specs: Resolution) -> Sequence[SpecDevice]:
    """The devices of other programs' specs, in natural order."""
    known = _LISTED.setdefault(specs, {})
    if kind not in known:
        known[kind] = _listed(kind, specs)
    return known[kind]


def _listed(kind: str, specs: Resolution) -> list[SpecDevice]:
    """See listed. Names are one device if a container gets the same.

    A container gets the edits of the name and those of the name's file. Two files may list the same hardware, for
    example if one file is of an earlier driver.
    """
    of_file: dict[str, str] = {}
    same: dict[tuple[str, str], list[str]] = {}
    for name in specs.foreign():
        file = specs.files[name]
        if file.kind == kind:
            if file.path not in of_file:
                of_file[file.path] = same_device(specs.edits_of_kind(name))
            same.setdefault((same_device(specs.edits[name]), of_file[file.path]), []).append(name)
    devices = [
        SpecDevice(
            tuple(sorted((name.partition("=")[2] for name in names), key=_rank)),
            specs.nodes(names[0]),
            frozenset(specs.files[name].path for name in names),
            edits,
        )
        for (edits, _of_file), names in same.items()
    ]
    return sorted(devices, key=lambda device: natural_order(device.names[0]))


def with_other_names(kind: str, devices: Iterable[SpecDevice], owners: Mapping[str, str]) -> dict[str, str]:
    """The owners of fully qualified names, also of other names of the same hardware. owners: as declared."""
    result: dict[str, str] = {}
    for same in _of_hardware(devices):
        for device in same:
            owned = (qualified_cdi_name(kind, name) for name in device.names)
            owner = next((owners[name] for name in owned if name in owners), None)
            # A file may list one device in several ways, which are different devices.
            others = (each for each in same if each.edits == device.edits or not each.files & device.files)
            for name in (name for other in others for name in other.names) if owner else ():
                result.setdefault(qualified_cdi_name(kind, name), owner or "")
    return {**result, **owners}


def _of_hardware(devices: Iterable[SpecDevice]) -> list[list[SpecDevice]]:
    """The devices, those of the same hardware together."""
    found: dict[frozenset[str] | str, list[SpecDevice]] = {}
    for device in devices:
        found.setdefault(device.hardware, []).append(device)
    return list(found.values())


class Chooser:
    """Chooses the devices to offer among all devices of a kind."""

    def __init__(self, kind: str, specs: Resolution, root: Root) -> None:
        self._kind = kind
        self._specs = specs
        self._root = root
        self._lacks: dict[HostPath, bool] = {}

    def choose(self, devices: Sequence[SpecDevice]) -> tuple[Sequence[SpecDevice], Mapping[SpecDevice, str]]:
        """The devices to offer, in natural order, and those that are left out with a reason.

        A device that is given under another name or in parts is left out; within one file, this needs no reason.
        """
        left_out: dict[SpecDevice, str] = {}
        for rivals in _of_hardware(devices):
            left_out.update(self._of_other_files(rivals))
        devices = [device for device in devices if device not in left_out]
        # "all" may have nodes of its own, or be of devices without nodes.
        devices = [device for device in devices if device.names != (ALL,)] or devices
        by_rarest = _by_rarest_node(devices)
        devices = [device for device in devices if not self._is_union(device, by_rarest)]
        parts: dict[str, list[SpecDevice]] = {}
        for device in devices:
            for node in device.part_of:
                parts.setdefault(node, []).append(device)
        for whole in devices:
            there = [] if whole.part_of else [part for node in whole.nodes for part in parts.get(node, ())]
            left_out.update(self._whole_or_parts(whole, there) if there else ())
        offered = [device for device in devices if device not in left_out]
        return offered, {device: why for device, why in left_out.items() if why}

    def _of_other_files(self, rivals: Sequence[SpecDevice]) -> Iterator[tuple[SpecDevice, str]]:
        """Of devices that are the same hardware, those to leave out, with the reasons.

        A file may list one device in several ways, so only the devices of other files are left out.
        """
        if all(device.files & rivals[0].files for device in rivals):
            return
        best = min(rivals, key=lambda device: (bool(self._missing(device)), -_written(device), device.names))
        for device in rivals:
            if not device.files & best.files:
                yield device, self._outdated(device, f"{self._name(best)} of {best.file} is the same device")

    def _is_union(self, device: SpecDevice, by_rarest: Mapping[str, Sequence[SpecDevice]]) -> bool:
        """Whether other devices give the nodes of the device. One of another file counts if all its paths exist."""
        of_nodes = (each for node in device.nodes for each in by_rarest.get(node, ()))
        givers = [each for each in of_nodes if each.nodes < device.nodes]
        there = (each.nodes for each in givers if each.files & device.files or not self._missing(each))
        return bool(givers) and device.nodes == frozenset().union(*there)

    def _whole_or_parts(self, whole: SpecDevice, parts: Sequence[SpecDevice]) -> Iterator[tuple[SpecDevice, str]]:
        """The whole device or its parts, to leave out, with the reasons. The reason is empty within one file.

        The whole device is left out, unless its parts are of other files, and some path of each part is missing.
        """
        if any(part.files & whole.files for part in parts):
            yield whole, ""
        elif self._missing(whole) or not all(map(self._missing, parts)):
            yield whole, f"its parts are offered instead, such as {self._name(parts[0])} of {parts[0].file}"
        else:
            for part in parts:
                yield part, self._outdated(part, f"{self._name(whole)} of {whole.file} is the whole device")

    def _outdated(self, device: SpecDevice, why: str) -> str:
        missing = self._missing(device)
        if missing:
            return f"{why}, and {missing} of {device.file} does not exist: remove {device.file}, or generate it again"
        return f"{why}: remove the file that is out of date, for example {device.file}"

    def _missing(self, device: SpecDevice) -> str:
        """The first host path that a container would get and that does not exist; empty if all exist."""
        for each in self._specs.host_paths(self._name(device)):
            if each not in self._lacks:
                self._lacks[each] = not _exists(each, self._root)
            if self._lacks[each]:
                return each.path
        return ""

    def _name(self, device: SpecDevice) -> str:
        return qualified_cdi_name(self._kind, device.names[0])


def part_of(names: Iterable[str], nodes: Iterable[str]) -> frozenset[str]:
    """The nodes of the whole device if the names are those of a part: two parts and their whole share nothing else."""
    if not any(map(_PART.fullmatch, names)):
        return frozenset()
    return frozenset(node for node in nodes if _WHOLE.fullmatch(os.path.basename(node)))


def _rank(name: str) -> tuple[Any, ...]:
    """The order of a device's names: a UUID stays with its device, while an index may move to another one."""
    return not UUID.search(name), name == ALL, name.replace(":", "").isdecimal(), natural_order(name)


def _written(device: SpecDevice) -> int:
    """When the newest of the device's files was written, in nanoseconds. The newest file fits the node of today."""
    newest = 0
    for path in device.files:
        with contextlib.suppress(OSError):
            newest = max(newest, os.stat(path).st_mtime_ns)
    return newest


def _exists(each: HostPath, root: Root) -> bool:
    """Whether a container's start would find the path; True for a path that the plugin cannot see."""
    if each.what != "device node":
        return not is_visible(each.path) or root.exists(each.path)
    if not each.is_of_host:
        return True
    if root.device_node(each.path) is None:
        return False
    found = root.device_number(each.path)
    # Files that stand for device nodes have no number.
    given = zip(each.number.partition("/")[::2], found.partition("/")[::2])
    return found.endswith("/0:0") or all(want in ("", has) for want, has in given)


def _by_rarest_node(devices: Iterable[SpecDevice]) -> Mapping[str, Sequence[SpecDevice]]:
    """The devices by the node that fewest devices have.

    A part of a device has its rarest node in common with the device, so thousands of GPUs need few comparisons.
    """
    owners = collections.Counter(node for device in devices for node in device.nodes)
    found = collections.defaultdict(list)
    for device in devices:
        if device.nodes:
            found[min(device.nodes, key=lambda node: (owners[node], node))].append(device)
    return found
