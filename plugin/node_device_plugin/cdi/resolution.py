"""Resolves CDI names in the specs of a node as the runtimes' own CDI library does."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from ..declaration import Device, Problem, Resource
from ..declaration.model import BIND, DeviceNode
from .directories import FOREIGN, OURS, SpecFile, edits_by_name

#: Part of a name that stays with its device, such as GPU-… and MIG-… of nvidia-ctk.
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class HostPath(NamedTuple):
    """A host path that a container gets with a device. what: ``device node``, ``mount`` or ``hook``.

    number: what the spec gives of a device node's type and numbers: ``char/226:0``, ``char/``, ``/226:0``, ``pipe`` or
    nothing. is_of_host: whether the path names a node of the host, not a place in the container alone.
    """

    what: str
    path: str
    number: str = ""
    is_of_host: bool = True

    @property
    def is_complete(self) -> bool:
        """Whether runtimes need no device node at the path, because the spec gives the type and the numbers."""
        kind, _slash, numbers = self.number.partition("/")
        return kind == "pipe" or bool(kind and numbers)


class HostPaths(NamedTuple):
    """The host paths that a device gives, with the links of its nodes resolved if the spec is ours.

    own: without paths that another device of the kind also gives, such as a control node of all devices. In our specs,
    two devices with exactly the same paths count as one device with two names.
    """

    own: frozenset[str]
    all: frozenset[str]


class Resolution:
    """What a container gets for each name in the specs of a node, and what is wrong with the files beside each other.

    every: the files by path, in order of precedence. kinds: those that were read.
    files: fully qualified names, each with the file whose device containers get.
    edits: the same names, each with the device's edits, without those of its kind.
    broken: names that do not resolve, each with the reason.
    overridden: names of ours for which containers get another program's device, each with its file and the problem.
    by_number: for device nodes of which other programs' specs give no host path but a number, each number with the path
    of the host's node.
    ours: our specs, whether or not other specs override them.
    """

    def __init__(self, every: Iterable[SpecFile], kinds: frozenset[str] = frozenset(), sysfs: str = "/sys") -> None:
        self.every, self.kinds = {file.path: file for file in every}, kinds
        self.files: dict[str, SpecFile] = {}
        self.edits: dict[str, Mapping[str, Any]] = {}
        self.broken: dict[str, str] = {}
        self.overridden: dict[str, tuple[SpecFile, Problem]] = {}
        #: By path, each problem with another file, and whether the other file is ours.
        self._at_odds: dict[str, list[tuple[Problem, bool]]] = {}
        having: dict[str, list[SpecFile]] = {}
        for file in self.every.values():
            for name in file.names:
                having.setdefault(name, []).append(file)
        for name, files in having.items():
            self._resolve(name, files)
        foreign = (host_paths(self.edits[name]) for name in self.foreign())
        numbers = {each.number for given in foreign for each in given if not each.is_of_host}
        self.by_number = nodes_by_number(numbers, sysfs)
        self.ours = [file.spec for file in self.every.values() if file.owner == OURS and file.spec]
        #: The answers of ``host_paths``, filled on demand: a kind of another program may have thousands of nodes for
        #: each of its thousands of devices, of which a resource needs a few.
        self._known_paths: dict[str, tuple[HostPath, ...]] = {}

    def _resolve(self, name: str, files: Sequence[SpecFile]) -> None:
        """Decide what a name means. files: all that have the name.

        A refused file counts as having no devices, so it takes no device from another file.
        """
        for file in files:
            why = file.refusals[0] if file.refusals else file.unclear.get(name)
            if why is not None:
                self.broken[name] = f"{file.path}: {why}"
        loaded = [file for file in files if not file.refusals]
        dropped = [file for file in loaded if self._is_dropped(name, file, loaded)]
        if dropped:
            # Runtimes drop the name even if a directory with precedence has it, too.
            self.broken[name] = f"{dropped[-1].path} and another file in its directory both define this name"
            return
        if not loaded:
            return
        winner, mine = loaded[-1], next((file for file in reversed(files) if file.owner == OURS), None)
        # If both files give the same edits, it makes no difference to a container.
        if mine and winner.owner == FOREIGN and mine.given(name) != winner.given(name):
            message = f"overrides the same name in {mine.path}, so that containers get the device of this file"
            self.overridden[name] = winner, self._noted(winner, name, message, with_ours=True)
        # An unclear name hides a directory of lower precedence for some runtimes.
        if name not in winner.unclear:
            self.files[name], self.edits[name] = winner, winner.edits[name]

    def _is_dropped(self, name: str, file: SpecFile, loaded: Iterable[SpecFile]) -> bool:
        """Whether runtimes drop the file's device, because another file of its directory has the name, too."""
        others = [
            each for each in loaded if each is not file and os.path.dirname(each.path) == os.path.dirname(file.path)
        ]
        if others:
            where = ", ".join(each.path for each in others)
            why = f"is also defined in {where}, and runtimes drop both: remove one"
            self._noted(file, name, why, any(each.owner == OURS for each in others))
        return bool(others)

    def _noted(self, file: SpecFile, name: str, why: str, with_ours: bool) -> Problem:
        problem = Problem("device " + name, why)
        self._at_odds.setdefault(file.path, []).append((problem, with_ours))
        return problem

    def problems(self, file: SpecFile) -> tuple[Problem, ...]:
        """All problems of the file: its own ones, and those with other files."""
        return (*file.problems, *(problem for problem, _with_ours in self._at_odds.get(file.path, ())))

    def harm(self, file: SpecFile) -> tuple[Problem, ...]:
        """The problems of the file that keep our devices from their containers."""
        if file.owner == OURS:
            return self.problems(file)
        at_odds = self._at_odds.get(file.path, ())
        return (*file.crashes, *(problem for problem, with_ours in at_odds if with_ours))

    def is_foreign(self, name: str) -> bool:
        """Whether the name is of another program's device."""
        return self.files[name].owner == FOREIGN

    def foreign(self) -> Iterator[str]:
        """The names of other programs' devices."""
        return filter(self.is_foreign, self.files)

    def host_paths(self, name: str) -> tuple[HostPath, ...]:
        """The host paths of a device: its own and those of its kind; none if the name does not resolve."""
        if name in self.files and name not in self._known_paths:
            every = (path for edits in self._edits_of(name) for path in host_paths(edits))
            self._known_paths[name] = tuple(dict.fromkeys(every))
        return self._known_paths.get(name, ())

    def own_nodes(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """The device nodes of other programs' devices by name, without nodes that every device of the kind has."""
        of_kind: dict[str, dict[str, frozenset[str]]] = {}
        wanted = {name.partition("=")[0] for name in names}
        for name in self.foreign():
            if name.partition("=")[0] in wanted:
                of_kind.setdefault(name.partition("=")[0], {})[name] = self.nodes(name)
        result: dict[str, frozenset[str]] = {}
        for devices in of_kind.values():
            different = set(devices.values())
            common = frozenset.intersection(*different) if len(different) > 1 else frozenset()
            result.update((name, nodes - common) for name, nodes in devices.items())
        return result

    def nodes(self, name: str) -> frozenset[str]:
        """The host paths of the device nodes of a device, without those of its kind."""
        nodes = [each for each in host_paths(self.edits.get(name, {})) if each.what == "device node"]
        return frozenset(self.by_number.get("" if each.is_of_host else each.number) or each.path for each in nodes)

    def of_ours(self, real: Callable[[str], str]) -> dict[str, HostPaths]:
        """The host paths of each device of our specs, by fully qualified name. real: resolves the links of nodes."""
        found: dict[str, HostPaths] = {}
        for spec in self.ours:
            of_kind = paths("mount", host_paths(spec.get("containerEdits") or {}))
            given = {
                name: paths("mount", each).union(map(real, paths("device node", each)))
                for name, each in paths_by_name(spec).items()
            }
            givers = collections.Counter(path for of_device in set(given.values()) for path in of_device)
            for name, of_device in given.items():
                own = frozenset(path for path in of_device if givers[path] == 1)
                found[name] = HostPaths(own, of_device | of_kind)
        return found

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
                    made = DeviceNode(node["path"], node.get("hostPath") or node["path"], "rw", None, None, None)
                    kind, _slash, numbers = _given_number(node).partition("/")
                    if numbers:
                        major, minor = map(int, numbers.split(":"))
                        made = made._replace(type=kind[:1] or None, major=major, minor=minor)
                    yield made

    def _edits_of(self, name: str) -> Iterator[Mapping[str, Any]]:
        if name in self.files:
            yield self.edits[name]
            yield self.edits_of_kind(name)

    def edits_of_kind(self, name: str) -> Mapping[str, Any]:
        """The edits of the name's file, which each of its devices gives beside its own edits."""
        return (self.files[name].spec or {}).get("containerEdits") or {}


def nodes_by_number(numbers: Iterable[str], sysfs: str) -> dict[str, str | None]:
    """The paths of the host's device nodes by number, such as ``char/226:0``; None if the kernel names no node.

    Source of the name: DEVNAME in a device's ``uevent`` (Documentation/admin-guide/sysfs-rules.rst in the kernel).
    """
    found = dict.fromkeys(numbers)
    for number in found:
        with contextlib.suppress(OSError, ValueError), open(f"{sysfs}/dev/{number}/uevent", encoding="utf-8") as file:
            values = dict(line.rstrip("\n").partition("=")[::2] for line in file)
            found[number] = "/dev/" + values["DEVNAME"] if "DEVNAME" in values else None
    return found


def host_paths(edits: Mapping[str, Any]) -> Iterator[HostPath]:
    """The host paths of container edits: device nodes, sources of bind mounts, and programs of hooks.

    Runtimes do not read a device node whose type and major number the spec gives (the CDI library, fillMissingInfo).
    If the spec gives only one of the two, the node must exist, and runtimes read only the other one.
    """
    for node in edits.get("deviceNodes") or ():
        found = HostPath("device node", node.get("hostPath") or node["path"], _given_number(node))
        yield found._replace(is_of_host=bool(node.get("hostPath") or not found.is_complete))
    for mount in edits.get("mounts") or ():
        if mount.get("type") in (*BIND, "") and os.path.isabs(mount["hostPath"]):
            yield HostPath("mount", mount["hostPath"])
    for hook in edits.get("hooks") or ():
        yield HostPath("hook", hook["path"])


def paths_by_name(spec: Mapping[str, Any]) -> dict[str, list[HostPath]]:
    """The host paths of each device of a spec, by fully qualified name, without those of its kind."""
    return {name: list(host_paths(edits)) for name, edits in edits_by_name(spec).items()}


def paths(what: str, found: Iterable[HostPath]) -> frozenset[str]:
    """The paths of one sort (see HostPath)."""
    return frozenset(each.path for each in found if each.what == what)


def same_device(edits: Mapping[str, Any]) -> str:
    """A text to compare edits. Lists in another order, and empty fields, make no difference.

    The order of hooks counts, because runtimes run them in that order.
    """
    lists: dict[str, Any] = {key: list(value) for key, value in edits.items() if isinstance(value, (list, tuple))}
    lists["deviceNodes"] = [
        {**node, "hostPath": node.get("hostPath") or node["path"], "permissions": node.get("permissions") or "rwm"}
        for node in lists.get("deviceNodes", ())
    ]
    for key, value in lists.items():
        texts = [json.dumps(_without_empty(each), sort_keys=True) for each in value]
        lists[key] = texts if key == "hooks" else sorted(texts)
    return json.dumps(_without_empty({**edits, **lists}), sort_keys=True)


def _without_empty(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without_empty(each) for key, each in value.items() if each not in (None, "", 0, False, [], {})}


def _given_number(node: Mapping[str, Any]) -> str:
    """The type and numbers that the spec itself gives (HostPath.number). Runtimes read the other part from the path."""
    if node.get("type") == "p":
        return "pipe"
    # A minor number without a major number counts for nothing.
    numbers = "%d:%d" % (node["major"], node.get("minor") or 0) if node.get("major") else ""
    # No node on a host has the type u: it is only another name for c if the spec also gives the numbers.
    kinds = {"b": "block", "c": "char", "u": "char" if numbers else "u"}
    kind = kinds.get(node.get("type") or "", "")
    return f"{kind}/{numbers}" if kind or numbers else ""


#: The names of a node without specs.
NO_SPECS = Resolution(())
