# SPDX-License-Identifier: Apache-2.0
"""Which CDI specs a node gets: what is declared, and what is not any more but may still be held by a pod.

A kubelet replays the CDI names of its checkpoint when a container restarts, so a spec has to stay while a pod holds its
device. A run first adds (everything that was there stays), and after the plugin has stopped to advertise what is no
longer declared, it prunes what nobody holds.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import yaml
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cdi import directories
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import (
    cdi,
    model,
    parse,
)

#: Where our specs are.
DIRECTORY = parse.STATIC_CDI_DIR
_OWNER = "cdi_specs"


class SpecsError(Exception):
    """What stands in the way, one line each."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))


class Leftover(NamedTuple):
    """A device in a spec of ours that is not declared any more."""

    file: str
    kind: str
    device: str

    @property
    def name(self) -> str:
        return f"{self.kind}={self.device}"


class Held(NamedTuple):
    """A leftover that has to stay, and why."""

    leftover: Leftover
    reason: str


class Specs:
    """The specs of one node.

    declaration: the result of the module declaration; empty where nothing is declared.
    node: the result of the module node_preflight.
    """

    def __init__(self, declaration: Mapping[str, Any], node: Mapping[str, Any]) -> None:
        self.declared = {name: json.loads(text) for name, text in declaration.get("cdi_specs", {}).items()}
        self.kinds: Mapping[str, str] = declaration.get("cdi_kinds", {})
        #: Kinds whose specs the plugin writes, in /var/run/cdi, with what is known of them before.
        self.awaited = {spec["kind"]: spec for spec in declaration.get("awaited_cdi_specs", ())}
        self.node = node
        self.own_paths = {
            path for path, entry in node["ledger"].items() if entry.get("owner") == _OWNER and entry["kind"] == "file"
        }
        self.present = {
            file["name"]: spec
            for file in node["cdi_files"]
            if file["path"] in self.own_paths and (spec := _parsed(file)) is not None
        }
        self.leftovers = list(self._leftovers())

    def _leftovers(self) -> Iterator[Leftover]:
        for file, spec in self.present.items():
            declared = {device["name"] for device in self.declared.get(file, {}).get("devices", [])}
            for device in spec.get("devices") or []:
                if device["name"] not in declared:
                    yield Leftover(file, spec["kind"], device["name"])

    def redefined(self) -> dict[Leftover, tuple[str, str]]:
        """Declared devices whose spec on the node gives other device nodes: the paths there, and the declared ones."""
        found = {}
        for file, spec in self.present.items():
            declared = {device["name"]: device for device in self.declared.get(file, {}).get("devices", [])}
            for device in spec.get("devices") or []:
                before, now = _host_paths(device), _host_paths(declared.get(device["name"], device))
                if before != now:
                    paths = tuple(", ".join(sorted(each)) or "no device node" for each in (before, now))
                    found[Leftover(file, spec["kind"], device["name"])] = paths
        return found

    def refuse_redefined(self, holders: Mapping[str, Any]) -> None:
        """Raise SpecsError where a container would come back with another device after its restart.

        Nobody could tell any more which device it has until then. holders: what ``node-device-plugin holders`` answers.
        """
        problems = []
        for device, (before, now) in self.redefined().items():
            who = [holder(held) for held in holders["held"] if self._is(device, held["resource"], held["device"])]
            if who:
                problems.append(
                    f"{device.name} is held by {', '.join(sorted(set(who)))} and would become another device ({now} "
                    f"instead of {before}): declare that one by another id, or end the pod first"
                )
        if problems:
            raise SpecsError(problems)

    def texts(self, staying: Iterable[Leftover]) -> dict[str, str]:
        """Every file that is to be there: what is declared, and what stays beside it."""
        stay: dict[str, list[str]] = {}
        for leftover in staying:
            stay.setdefault(leftover.file, []).append(leftover.device)
        merged = {
            file: cdi.with_kept(self.declared.get(file), self.present.get(file), stay.get(file, []))
            for file in [*self.declared, *(file for file in stay if file not in self.declared)]
        }
        return {file: cdi.serialise(spec) for file, spec in merged.items()}

    def check(self, staying: Iterable[Leftover]) -> None:
        """Raise SpecsError where this node's runtime would refuse a spec, or another file takes a device's place."""
        specs = {file: json.loads(text) for file, text in self.texts(staying).items()}
        harm = [
            f"{file.path}: {file.harm[0]}{_and_more(file.harm)}; the file is not ours: remove it there, or declare "
            f"another name"
            for file in self._checked(specs)
            if file.owner == directories.FOREIGN and file.harm
        ]
        problems = [*self._too_new([*specs.values(), *self.awaited.values()]), *harm]
        if problems:
            raise SpecsError(problems)

    def broken(self) -> list[str]:
        """A sentence for each file of others that runtimes do not load, or not all of, and go on without.

        What ``node-device-plugin doctor`` says of it, too.
        """
        return [
            f"{file.path}: {file.problems[0]}{_and_more(file.problems)}; it is not ours and hurts no device of ours: "
            f"whoever wrote it has to fix it"
            for file in self._checked({})
            if file.owner == directories.FOREIGN and file.problems and not file.harm
        ]

    def _too_new(self, specs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        version, accepted = self.node["runtime"].get("version"), self._accepted()
        for spec in specs:
            for feature in cdi.refused_features(spec, accepted) if accepted else []:
                yield (
                    f"{spec['kind']}: {feature.name} ({feature.where}) needs CDI {feature.since}, and containerd "
                    f"{version} accepts CDI up to {accepted}: leave it out, or upgrade containerd"
                )

    def _accepted(self) -> str | None:
        """The highest CDI version that the node's runtime takes, where it is known."""
        runtime = self.node["runtime"]
        version = runtime.get("version")
        # The table is of containerd's versions. Of a runtime that does not run, as in an uninstall, nothing is known.
        return cdi.accepted_version(version) if runtime.get("name") == "containerd" and version else None

    def _checked(self, specs: Mapping[str, Mapping[str, Any]]) -> list[directories.SpecFile]:
        """Every spec file of the node as runtimes read it, with ours as they are to be. specs: ours, by name."""
        own_paths = self.own_paths | {f"{DIRECTORY}/{file}" for file in specs}
        every: dict[str, list[directories.SpecFile]] = {file["directory"]: [] for file in self.node["cdi_files"]}
        if DIRECTORY not in every:
            # Nothing is there yet: others go before it.
            every = {DIRECTORY: [], **every}
        for file in self.node["cdi_files"]:
            # By our name in another folder it is the running plugin's, which takes back what is not its any more.
            if file["path"] in own_paths or is_dynamic(file):
                continue
            content = (file["content"] or "").encode("utf-8", "surrogateescape")
            checked = directories.check_content(file["path"], content, self._accepted())
            every[file["directory"]].append(checked._replace(owner=directories.FOREIGN))
        for name, spec in specs.items():
            every[DIRECTORY].append(directories.of_spec(f"{DIRECTORY}/{name}", spec, owner=directories.OURS))
        return directories.against_each_other(list(every.values()))

    def split(self, holders: Mapping[str, Any] | None, advertised_counts: bool) -> tuple[list[Held], list[Leftover]]:
        """Which leftovers have to stay, with the reason, and which may go.

        holders: what ``node-device-plugin holders`` answers; None for nobody.
        advertised_counts: whether a device that the kubelet still lists has to stay, too: it might be given out. Not of
        a kind that the plugin writes by now: it offers a device only when its own spec has it.
        """
        staying, going = [], []
        for leftover in self.leftovers:
            reason = self._reason(leftover, holders or {}, advertised_counts)
            if reason:
                staying.append(Held(leftover, reason))
            else:
                going.append(leftover)
        return staying, going

    def has(self, resource: str, kubelet_id: str) -> bool:
        """Whether a kubelet's device may be one of the leftovers."""
        return any(self._is(leftover, resource, kubelet_id) for leftover in self.leftovers)

    def _reason(self, leftover: Leftover, holders: Mapping[str, Any], advertised_counts: bool) -> str | None:
        for held in holders.get("held", []):
            if self._is(leftover, held["resource"], held["device"]):
                return f"held by {holder(held)}"
        # What the kubelet offers of a kind that the plugin writes has its name from /var/run/cdi, which goes before.
        if advertised_counts and leftover.kind not in self.awaited:
            for resource, devices in holders.get("allocatable", {}).items():
                if any(self._is(leftover, resource, device) for device in devices):
                    return f"still offered by the kubelet as {resource}"
        return None

    def _is(self, leftover: Leftover, resource: str, kubelet_id: str) -> bool:
        """Whether a kubelet's device may be the leftover.

        The leftover's resource is not known any more, only its kind, which is the resource's name unless it was
        declared otherwise. So an id of a resource that is not ours counts too: it is kept rather than lost.
        """
        if leftover.device not in model.devices_behind(kubelet_id):
            return False
        return self.kinds.get(resource, leftover.kind) == leftover.kind


def is_dynamic(file: Mapping[str, Any]) -> bool:
    """Whether a spec file of a node is one that the plugin wrote while it ran. file: of node_preflight's cdi_files."""
    return file["directory"] != DIRECTORY and file["name"].startswith(cdi.FILE_PREFIX)


def _host_paths(device: Mapping[str, Any]) -> frozenset[str]:
    nodes = (device.get("containerEdits") or {}).get("deviceNodes") or []
    return frozenset(str(node.get("hostPath") or node.get("path")) for node in nodes)


def holder(held: Mapping[str, Any]) -> str:
    """Who holds a device, by ``node-device-plugin holders``. While no kubelet answers, only the pod's uid is known."""
    return f"{held['namespace']}/{held['pod']}" if held.get("namespace") else str(held["pod"])


class Ours:
    """What pods can hold of a node where all of ours is to go: what the plugin serves, and what our specs have.

    node: the result of the module node_preflight.
    """

    def __init__(self, node: Mapping[str, Any]) -> None:
        self._specs = Specs({}, node)
        self._served = (node["device_plugins"]["instance"] or {"resources": []})["resources"]
        self._is_dynamic = any(map(is_dynamic, node["cdi_files"]))

    def __bool__(self) -> bool:
        """Whether there is anything to hold."""
        return bool(self._served or self._specs.leftovers or self._is_dynamic)

    def held(self, holders: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """What is held of it. holders: what ``node-device-plugin holders`` answers."""
        return [
            held
            for held in holders["held"]
            if held["resource"] in self._served
            or held.get("by_our_cdi")
            or self._specs.has(held["resource"], held["device"])
        ]


def _and_more(problems: Collection[Any]) -> str:
    return f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""


def _parsed(file: Mapping[str, Any]) -> dict[str, Any] | None:
    """A spec file as data; None where it is none."""
    text = file["content"] or ""
    try:
        try:
            # What ours are, and most of others are; YAML takes a hundred times as long.
            data = json.loads(text)
        except ValueError:
            data = yaml.safe_load(text)
    except (RecursionError, yaml.YAMLError):
        return None
    return data if isinstance(data, dict) and isinstance(data.get("devices", []), list) else None
