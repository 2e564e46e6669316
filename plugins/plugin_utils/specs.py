# SPDX-License-Identifier: Apache-2.0
"""Which CDI specs a node gets: what is declared, and what is not any more but may still be held by a pod.

A kubelet replays the CDI names of its checkpoint when a container restarts, so a spec has to stay while a pod holds its
device. A run first adds (everything that was there stays), and after the plugin has stopped to advertise what is no
longer declared, it prunes what nobody holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import yaml
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import (
    cdi,
    model,
    parse,
    parse_configuration,
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
        configuration = parse_configuration(declaration.get("configuration") or {"resources": []})
        awaited = map(cdi.render_awaited, configuration.resources)
        #: Kinds whose specs the plugin writes, in /var/run/cdi, with what is known of them before.
        self.awaited = {spec["kind"]: spec for spec in awaited if spec is not None}
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
        """Raise SpecsError where this node's runtime would refuse a spec, or another file has one of our devices."""
        specs = {file: json.loads(text) for file, text in self.texts(staying).items()}
        problems = [*self._too_new([*specs.values(), *self.awaited.values()]), *self._conflicts(specs)]
        if problems:
            raise SpecsError(problems)

    def _too_new(self, specs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        runtime = self.node["runtime"]
        version = runtime.get("version")
        # The table is of containerd's versions. Of a runtime that does not run, as in an uninstall, nothing is known.
        accepted = cdi.accepted_version(version) if runtime.get("name") == "containerd" and version else None
        for spec in specs:
            for feature in cdi.refused_features(spec, accepted) if accepted else []:
                yield (
                    f"{spec['kind']}: {feature.name} ({feature.where}) needs CDI {feature.since}, and containerd "
                    f"{version} accepts CDI up to {accepted}: leave it out, or upgrade containerd"
                )

    def _conflicts(self, specs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        ours = {f"{spec['kind']}={device['name']}" for spec in specs.values() for device in spec["devices"]}
        own_paths = self.own_paths | {f"{DIRECTORY}/{file}" for file in specs}
        for file in self.node["cdi_files"]:
            # By our name in another folder it is the running plugin's, which takes back what is not its any more.
            if file["path"] in own_paths or (
                file["directory"] != DIRECTORY and file["name"].startswith(cdi.FILE_PREFIX)
            ):
                continue
            spec = _parsed(file) or {}
            for device in spec.get("devices") or []:
                name = f"{spec.get('kind')}={device.get('name')}" if isinstance(device, dict) else ""
                if name in ours:
                    yield (
                        f"{name} is in {file['path']} too, which is not ours: a runtime takes neither of two in one "
                        f"folder, and {file['directory']} is one that it reads; remove it there, or declare another "
                        f"name"
                    )

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
                pod = f"{held['namespace']}/{held['pod']}" if held.get("namespace") else held["pod"]
                return f"held by {pod}"
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


class Ours:
    """What pods can hold of a node where all of ours is to go: what the plugin serves, and what our specs have.

    node: the result of the module node_preflight.
    """

    def __init__(self, node: Mapping[str, Any]) -> None:
        self._specs = Specs({}, node)
        self._served = (node["device_plugins"]["instance"] or {"resources": []})["resources"]

    def __bool__(self) -> bool:
        """Whether there is anything to hold."""
        return bool(self._served or self._specs.leftovers)

    def held(self, holders: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """What is held of it. holders: what ``node-device-plugin holders`` answers."""
        return [
            held
            for held in holders["held"]
            if held["resource"] in self._served or self._specs.has(held["resource"], held["device"])
        ]


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
