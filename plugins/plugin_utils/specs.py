# SPDX-License-Identifier: Apache-2.0
"""Decides which CDI specs a node gets: declared specs, and others whose devices a pod may hold.

If a container restarts, the kubelet replays the CDI names of its checkpoint. So a spec must stay
while a pod holds its device. A run first adds specs and removes none. Once the plugin no longer
advertises an undeclared device, the run removes the device's spec unless a pod holds the device.
"""

from __future__ import annotations

import functools
import json
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cdi import directories, resolution
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import (
    cdi,
    device_plugin_api,
    parse,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support import documents

from .answers import ANY, AnswerError, Null, plain, shaped
from .runtimes.containerd_config import always_on

#: The directory of the role's specs.
DIRECTORY = parse.STATIC_CDI_DIR
_OWNER = "cdi_specs"
_SPEC = {
    "kind": str,
    "devices?": Null(
        [{"name": str, "containerEdits?": Null({"deviceNodes?": Null([{"path?": str, ...: ANY}]), ...: ANY}), ...: ANY}]
    ),
    ...: ANY,
}


class SpecsError(Exception):
    """Why the specs cannot be written, one line for each problem."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))


class Leftover(NamedTuple):
    """A device in a spec of ours that is no longer declared."""

    file: str
    kind: str
    device: str

    @property
    def name(self) -> str:
        return f"{self.kind}={self.device}"


class Held(NamedTuple):
    """A leftover that must stay, and the reason."""

    leftover: Leftover
    reason: str


class Specs:
    """The specs of one node.

    declaration: the result of the module declaration; empty if nothing is declared.
    node: the result of the module node_preflight.
    """

    def __init__(self, declaration: Mapping[str, Any], node: Mapping[str, Any]) -> None:
        self.declared = {name: json.loads(text) for name, text in declaration.get("cdi_specs", {}).items()}
        self.kinds: Mapping[str, str] = declaration.get("cdi_kinds", {})
        #: Kinds whose specs the plugin writes in /var/run/cdi, with each spec's part that is known
        #: already.
        self.awaited = {spec["kind"]: spec for spec in declaration.get("awaited_cdi_specs", ())}
        self._foreign: Mapping[str, str] = declaration.get("foreign_cdi", {})
        self._foreign_kinds: Collection[str] = declaration.get("foreign_kinds", ())
        self.node = node
        self.own_paths = {
            path for path, entry in node["ledger"].items() if entry.get("owner") == _OWNER and entry["kind"] == "file"
        }
        self.present = {
            file["name"]: spec
            for file in node["cdi_files"]
            if file["path"] in self.own_paths and (spec := _parsed(file)) is not None
        }
        #: By kind and name, because a kind may move to another file: from a resource to a template, or back.
        self._devices = {
            (spec["kind"], device["name"]): device for spec in self.declared.values() for device in spec["devices"]
        }
        self.leftovers = list(self._leftovers())

    def _leftovers(self) -> Iterator[Leftover]:
        for file, spec in self.present.items():
            for device in spec.get("devices") or []:
                if (spec["kind"], device["name"]) not in self._devices:
                    yield Leftover(file, spec["kind"], device["name"])

    def redefined(self) -> dict[Leftover, tuple[str, str]]:
        """Return old and declared paths of devices whose node spec has other device nodes."""
        found = {}
        for file, spec in self.present.items():
            for device in spec.get("devices") or []:
                declared = self._devices.get((spec["kind"], device["name"]), device)
                before, now = _host_paths(device), _host_paths(declared)
                if before != now:
                    paths = tuple(", ".join(sorted(each)) or "no device node" for each in (before, now))
                    found[Leftover(file, spec["kind"], device["name"])] = paths
        return found

    def refuse_redefined(self, holders: Mapping[str, Any]) -> None:
        """Raise SpecsError if a held device is redefined.

        A restart would give the container another device, and nothing shows that before the
        restart. holders: answer of ``node-device-plugin holders``.
        """
        problems = []
        for device, (before, now) in self.redefined().items():
            who = [holder(held) for held in holders["held"] if self._holds(held, device)]
            if who:
                problems.append(
                    f"{device.name} is held by {', '.join(sorted(set(who)))} and would become another device ({now} "
                    f"instead of {before}): declare the new device with another id, or end the pod first"
                )
        if problems:
            raise SpecsError(problems)

    def texts(self, staying: Iterable[Leftover]) -> dict[str, str]:
        """Return the text of each spec file to write, by file name.

        staying: the leftovers that stay.
        """
        stay: dict[str, list[str]] = {}
        for leftover in staying:
            stay.setdefault(leftover.file, []).append(leftover.device)
        merged = {
            file: cdi.with_kept(self.declared.get(file), self.present.get(file), stay.get(file, []))
            for file in [*self.declared, *(file for file in stay if file not in self.declared)]
        }
        return {file: cdi.serialise(spec) for file, spec in merged.items()}

    def check(self, staying: Iterable[Leftover]) -> None:
        """Raise SpecsError if the runtime refuses a spec, or a foreign file overrides a device."""
        specs = {file: json.loads(text) for file, text in self.texts(staying).items()}
        harm = [
            f"{file.path}: {file.harm[0]}{_and_more(file.harm)}; the file belongs to another owner: remove the entry "
            "there, or declare another name"
            for file in self._checked(specs)
            if file.owner == directories.FOREIGN and file.harm and not file.crashes
        ]
        problems = [*self._too_new([*specs.values(), *self.awaited.values()]), *harm]
        if problems:
            raise SpecsError(problems)

    def missing(self) -> Iterator[str]:
        """Yield one message for each missing foreign CDI device that a required device needs.

        Also yield one for each device that two required devices list by different names.
        """
        names = resolution.resolution(self._checked(self.declared) if self._foreign else [])
        yield from self._given_twice(names)
        for name, device in self._foreign.items():
            if name not in names.files:
                why = f" ({names.broken[name]})" if name in names.broken else ""
                yield (
                    f"{name} is in no valid CDI spec of the node{why}, and {device} needs it: generate the vendor's "
                    f"spec, e.g. nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, or declare the device with "
                    f"required: false"
                )

    def _given_twice(self, names: resolution.Resolution) -> Iterator[str]:
        """One message for each device that gives nothing but what earlier devices give under other names.

        Several devices may share a control device, each beside a device of its own.
        """
        by_device: dict[str, list[str]] = {}
        for name, device in self._foreign.items():
            if name in names.files:
                by_device.setdefault(device, []).append(name)
        givers: dict[tuple[str, str], str] = {}
        for device, its_names in by_device.items():
            same = {(name.partition("=")[0], resolution.same_device(names.edits[name])): name for name in its_names}
            if same.keys() <= givers.keys():
                key, name = min(same.items())
                other = givers[key]
                yield f"{name} of {device} is the same device as {other} of {self._foreign[other]}: declare it once"
            for key, name in same.items():
                givers.setdefault(key, name)

    def crashing(self) -> list[str]:
        """Return one message for each foreign file that crashes a runtime with CDI at its start."""
        runtime = self.node["runtime"]
        # Its library reads a kind of one letter.
        reads_kinds = runtime.get("name") == "containerd" and always_on(runtime.get("version"))
        found = [
            (file.path, [each for each in file.crashes if not (reads_kinds and each.where == "kind")])
            for file in self._foreign_files
        ]
        return [
            f"{path}: {crashes[0]}{_and_more(crashes)}; with CDI on, the container runtime would not start: move the "
            f"file elsewhere, e.g. mv {shlex.quote(path)} /root/, until its owner has fixed it"
            for path, crashes in found
            if crashes
        ]

    def broken(self) -> list[str]:
        """Return one message for each foreign file that runtimes load in part or not at all.

        None of them affects our specs. ``node-device-plugin doctor`` reports the same.
        """
        return [
            f"{file.path}: {file.problems[0]}{_and_more(file.problems)}; {self._effect(file)}"
            for file in self._foreign_files
            if file.problems and (file.crashes or not file.harm)
        ]

    def _effect(self, file: directories.SpecFile) -> str:
        if file.crashes:
            return "a container runtime with CDI would not start: its owner has to fix the file"
        is_lost = bool(file.refusals or file.conflicts or file.unclear)
        if is_lost and file.kind in self._foreign_kinds:
            return (
                f"the declaration uses devices of its kind {file.kind}, which containers do not get: let the vendor's "
                "program generate the spec again"
            )
        return "the file belongs to another owner and affects no declared device: its owner has to fix it"

    def _too_new(self, specs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        version, accepted = self.node["runtime"].get("version"), self._accepted()
        for spec in specs:
            for feature in cdi.refused_features(spec, accepted) if accepted else []:
                yield (
                    f"{spec['kind']}: {feature.name} ({feature.where}) needs CDI {feature.since}, and containerd "
                    f"{version} accepts CDI up to {accepted}: remove it, or upgrade containerd"
                )

    def _accepted(self) -> str | None:
        """The highest CDI version that the node's runtime accepts; None if unknown."""
        runtime = self.node["runtime"]
        version = runtime.get("version")
        # The table has only containerd's versions. A stopped runtime, as in an uninstall, has no
        # version.
        return cdi.accepted_version(version) if runtime.get("name") == "containerd" and version else None

    @functools.cached_property
    def _foreign_files(self) -> list[directories.SpecFile]:
        return [file for file in self._checked({}) if file.owner == directories.FOREIGN]

    def _checked(self, specs: Mapping[str, Mapping[str, Any]]) -> list[directories.SpecFile]:
        """Return all spec files as runtimes read them, with ``specs`` in place of the role's files.

        specs: file name to content.
        """
        own_paths = self.own_paths | {f"{DIRECTORY}/{file}" for file in specs}
        every: dict[str, list[directories.SpecFile]] = {file["directory"]: [] for file in self.node["cdi_files"]}
        if DIRECTORY not in every:
            # The directory is empty so far; the other directories take precedence over it.
            every = {DIRECTORY: [], **every}
        for file in self.node["cdi_files"]:
            # In other directories, the running plugin wrote the files with our prefix. It removes
            # outdated entries itself.
            if file["path"] in own_paths or is_dynamic(file):
                continue
            content = (file["content"] or "").encode("utf-8", "surrogateescape")
            checked = directories.check_content(file["path"], content, self._accepted())
            every[file["directory"]].append(checked._replace(owner=directories.FOREIGN))
        for name, spec in specs.items():
            every[DIRECTORY].append(directories.of_spec(f"{DIRECTORY}/{name}", spec, owner=directories.OURS))
        return directories.against_each_other(list(every.values()))

    def split(self, holders: Mapping[str, Any] | None, advertised_counts: bool) -> tuple[list[Held], list[Leftover]]:
        """Split the leftovers into those that must stay, with the reason, and those that may go.

        holders: answer of ``node-device-plugin holders``; None if no pod holds a device.
        advertised_counts: whether a device that the kubelet still lists must stay too, because the
        kubelet may allocate it.
        Kinds whose specs the plugin writes are exempt: the plugin offers only devices that its own
        spec has.
        """
        staying, going = [], []
        for leftover in self.leftovers:
            reason = self._reason(leftover, holders or {}, advertised_counts)
            if reason:
                staying.append(Held(leftover, reason))
            else:
                going.append(leftover)
        return staying, going

    def has(self, held: Mapping[str, Any]) -> bool:
        """Whether a held device may be one of the leftovers. held: an entry of ``node-device-plugin holders``."""
        return any(self._holds(held, leftover) for leftover in self.leftovers)

    def _reason(self, leftover: Leftover, holders: Mapping[str, Any], advertised_counts: bool) -> str | None:
        for held in holders.get("held", []):
            if self._holds(held, leftover):
                return f"held by {holder(held)}"
        # If the plugin writes the kind's spec, an offered device is in /var/run/cdi, which takes
        # precedence.
        if advertised_counts and leftover.kind not in self.awaited:
            for resource, devices in holders.get("allocatable", {}).items():
                if any(self._is(leftover, resource, device) for device in devices):
                    return f"still offered by the kubelet as {resource}"
        return None

    def _holds(self, held: Mapping[str, Any], leftover: Leftover) -> bool:
        # The plugin of an earlier release does not list the CDI names.
        is_named = leftover.name in held.get("cdi_names", ())
        return is_named or self._is(leftover, held["resource"], held["device"])

    def _is(self, leftover: Leftover, resource: str, kubelet_id: str) -> bool:
        """Whether a kubelet's device may be the leftover.

        The leftover's kind is known, but its resource is not. An id of an unknown resource also
        counts, because a needless spec is better than a missing one.
        """
        if leftover.device not in device_plugin_api.devices_behind(kubelet_id):
            return False
        return self.kinds.get(resource, leftover.kind) == leftover.kind


def is_dynamic(file: Mapping[str, Any]) -> bool:
    """Whether the running plugin wrote a spec file. file: from node_preflight's cdi_files."""
    return file["directory"] != DIRECTORY and file["name"].startswith(cdi.FILE_PREFIX)


def _host_paths(device: Mapping[str, Any]) -> frozenset[str]:
    nodes = (device.get("containerEdits") or {}).get("deviceNodes") or []
    return frozenset(str(node.get("hostPath") or node.get("path")) for node in nodes)


def holder(held: Mapping[str, Any]) -> str:
    """Return the pod of a ``node-device-plugin holders`` entry; only its uid without a kubelet."""
    return f"{held['namespace']}/{held['pod']}" if held.get("namespace") else str(held["pod"])


class Ours:
    """Our devices that pods can hold before an uninstall: served, or in our specs.

    node: the result of the module node_preflight.
    """

    def __init__(self, node: Mapping[str, Any]) -> None:
        self._specs = Specs({}, node)
        self._served = (node["device_plugins"]["instance"] or {"resources": []})["resources"]
        self._is_dynamic = any(map(is_dynamic, node["cdi_files"]))

    def __bool__(self) -> bool:
        """Whether the node has anything that a pod can hold."""
        return bool(self._served or self._specs.leftovers or self._is_dynamic)

    def held(self, holders: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return the entries for our devices. holders: from ``node-device-plugin holders``."""
        return [
            held
            for held in holders["held"]
            if held["resource"] in self._served or held.get("by_our_cdi") or self._specs.has(held)
        ]


def _and_more(problems: Collection[Any]) -> str:
    return f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""


def _parsed(file: Mapping[str, Any]) -> dict[str, Any] | None:
    """A spec file as data; None if the file is no spec."""
    text = file["content"] or ""
    try:
        try:
            # Our specs and most others are JSON; YAML takes a hundred times as long.
            data = json.loads(text)
        except ValueError:
            data = documents.read_yaml(text.encode("utf-8", "surrogateescape"))
        shaped(_SPEC, data)
        # The order of the keys stays, because the text of a spec that stays is written again.
        found: dict[str, Any] = plain(data)
        return found
    except (AnswerError, RecursionError, ValueError):
        return None
