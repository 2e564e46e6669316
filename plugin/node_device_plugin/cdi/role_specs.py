"""Decides which CDI specs role cdi_specs gives a node: declared specs, and others whose devices a pod may hold.

If a container restarts, the kubelet replays the CDI names of its checkpoint. So a spec must stay
while a pod holds its device. A run first adds specs and removes none. Once the plugin no longer
advertises an undeclared device, the run removes the device's spec unless a pod holds the device.

The module of the same name executes this on the node, where the specs are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..declaration import Problem, Resource, cdi, foreign_cdi, parse
from ..declaration.problems import first
from ..support import bounded_reads, directory_names, documents
from . import directories, resolution

#: The directory of the role's specs.
DIRECTORY = parse.STATIC_CDI_DIR


class Leftover(NamedTuple):
    """A device in a spec of ours that is no longer declared. name: qualified. reason: why it must stay, if it must."""

    file: str
    name: str
    reason: str = ""

    @property
    def device(self) -> str:
        return self.name.partition("=")[2]


class Runtime(NamedTuple):
    """The node's container runtime. A stopped one, as in an uninstall, has no version."""

    name: str | None = None
    version: str | None = None

    @property
    def accepted(self) -> str | None:
        """The highest CDI version that the runtime accepts; None if unknown. The table has only containerd's."""
        return cdi.accepted_version(self.version) if self.name == "containerd" and self.version else None


class Found(NamedTuple):
    """The specs on a node. A file that the running plugin wrote is not among them: the plugin updates it itself.

    present: the role's specs, by file name. others: other owners' files in each directory, in order of precedence.
    """

    present: Mapping[str, Mapping[str, Any]]
    others: Mapping[str, Sequence[directories.SpecFile]]


def find(spec_dirs: Sequence[str], own_paths: Collection[str], accepted: str | None) -> Found:
    """Read the specs of a node, each file once.

    spec_dirs: the directories, of which a later one takes precedence. own_paths: of the role's files, as in the ledger.
    accepted: see spec_problems.
    """
    present: dict[str, Mapping[str, Any]] = {}
    others: dict[str, list[directories.SpecFile]] = {}
    for directory in directory_names.by_precedence(spec_dirs):
        found = others[directory] = []
        try:
            paths = directories.spec_paths(directory)
        except OSError:
            continue
        for path in paths:
            name = os.path.basename(path)
            if path in own_paths:
                with contextlib.suppress(OSError):
                    spec = read_spec(bounded_reads.read_file(path))
                    present.update({name: spec} if spec is not None else {})
            elif not is_dynamic(directory, name) and os.path.isfile(path):
                file = directories.check_file(path, accepted)
                # Runtimes read the file as root.
                warnings = tuple(each for each in file.warnings if each.where != directories.MODE)
                found.append(dataclasses.replace(file, owner=directories.FOREIGN, warnings=warnings))
    return Found(present, others)


def is_dynamic(directory: str, name: str) -> bool:
    """Whether the running plugin wrote a spec file."""
    return directory != DIRECTORY and name.startswith(cdi.FILE_PREFIX)


def read_spec(content: bytes) -> dict[str, Any] | None:
    """A spec file of the role as data; None if the file is no spec.

    The order of the keys stays, because the text of a spec that stays is written again.
    """
    try:
        try:
            # Our specs are JSON; YAML takes a hundred times as long.
            data = json.loads(content)
        except ValueError:
            # Other types than JSON's, such as dates, raise TypeError.
            data = json.loads(json.dumps(documents.read_yaml(content)))
        texts = [data["kind"], *(device["name"] for device in data.get("devices") or [])]
        for edits in directories.edits_by_name(data).values():
            _host_paths(edits)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        # Also if a part of the spec that is used here has another type.
        return None
    return data if all(isinstance(text, str) for text in texts) else None


class Specs:
    """The specs of one node.

    resources: the declared ones, with numbers instead of names of users and groups.
    templates: specs of the host's own templates, by file name.
    """

    def __init__(
        self, resources: Sequence[Resource], templates: Mapping[str, Mapping[str, Any]], found: Found, runtime: Runtime
    ) -> None:
        self.declared: dict[str, Mapping[str, Any]] = {**cdi.render_specs(resources), **templates}
        self._kinds = {resource.name: resource.cdi_kind for resource in resources}
        #: Kinds whose specs the plugin writes in /var/run/cdi, with each spec's part that is known already.
        self._awaited = {spec["kind"]: spec for spec in map(cdi.render_awaited, resources) if spec}
        self._foreign = foreign_cdi.required(resources)
        self._foreign_kinds = {kind for resource in resources for kind in foreign_cdi.kinds(resource)}
        self._runtime = runtime
        self.present, self._others = found
        self._theirs = self._checked({})
        #: Edits by qualified name, because a kind may move to another file: from a resource to a template, or back.
        self._edits = {
            name: edits for spec in self.declared.values() for name, edits in directories.edits_by_name(spec).items()
        }
        present = self._devices_present()
        self.leftovers = [Leftover(file, name) for file, name, _edits in present if name not in self._edits]

    def _devices_present(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """The file, qualified name and edits of each device in the role's specs on the node."""
        for file, spec in self.present.items():
            for name, edits in directories.edits_by_name(spec).items():
                yield file, name, edits

    def redefined(self) -> dict[str, tuple[str, str]]:
        """Return old and declared paths of devices whose node spec has other device nodes, by qualified name."""
        found = {}
        for _file, name, edits in self._devices_present():
            before, now = _host_paths(edits), _host_paths(self._edits.get(name, edits))
            if before != now:
                found[name] = (_listed(before), _listed(now))
        return found

    def held_otherwise(self, holders: Mapping[str, Any]) -> list[str]:
        """Return one message for each held device that is redefined.

        A restart would give the container another device, and nothing shows that before the
        restart. holders: answer of ``node-device-plugin holders``, with device ids.
        """
        problems = []
        for name, (before, now) in self.redefined().items():
            who = [holder(held) for held in holders["held"] if may_be(held, name, self._kinds)]
            if who:
                problems.append(
                    f"{name} is held by {', '.join(sorted(set(who)))} and would become another device ({now} "
                    f"instead of {before}): declare the new device with another id, or end the pod first"
                )
        return problems

    def to_write(self, staying: Iterable[Leftover]) -> dict[str, Mapping[str, Any]]:
        """Return each spec to write, by file name.

        staying: the leftovers that stay.
        """
        stay: dict[str, list[str]] = {}
        for leftover in staying:
            stay.setdefault(leftover.file, []).append(leftover.device)
        return {
            file: cdi.with_kept(self.declared.get(file), self.present.get(file, {}), stay.get(file, []))
            for file in [*self.declared, *(file for file in stay if file not in self.declared)]
        }

    def refused(self, specs: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return one message for each spec that the runtime refuses, and each foreign file that overrides a device.

        specs: to write, by file name.
        """
        checked = self._checked(specs)
        harm = [
            f"{file.path}: {first(checked.harm(file))}; the file belongs to another owner: remove the entry there, or "
            "declare another name"
            for file in checked.every.values()
            if file.owner == directories.FOREIGN and checked.harm(file) and not file.crashes
        ]
        return [*self._too_new([*specs.values(), *self._awaited.values()]), *harm]

    def missing(self) -> Iterator[str]:
        """Yield one message for each missing foreign CDI device that a required device needs.

        Also yield one for each device that two required devices list by different names.
        """
        names = self._checked(self.declared) if self._foreign else resolution.NO_SPECS
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
        # Its library reads a kind of one letter.
        reads_kinds = self._runtime.name == "containerd" and cdi.always_on(self._runtime.version)
        found = [
            (file.path, [each for each in file.crashes if not (reads_kinds and each.where == "kind")])
            for file in self._theirs.every.values()
        ]
        return [
            f"{path}: {first(crashes)}; with CDI on, the container runtime would not start: move the file elsewhere, "
            f"e.g. mv {shlex.quote(path)} /root/, until its owner has fixed it"
            for path, crashes in found
            if crashes
        ]

    def broken(self) -> list[str]:
        """Return one message for each foreign file that runtimes load in part or not at all.

        None of them affects our specs. ``node-device-plugin doctor`` reports the same.
        """
        problems = [(file, self._theirs.problems(file)) for file in self._theirs.every.values()]
        return [f"{file.path}: {first(each)}; {self._effect(file, each)}" for file, each in problems if each]

    def _effect(self, file: directories.SpecFile, problems: Sequence[Problem]) -> str:
        if file.crashes:
            return "a container runtime with CDI would not start: its owner has to fix the file"
        is_lost = bool(file.unclear) or problems != file.warnings
        if is_lost and file.kind in self._foreign_kinds:
            return (
                f"the declaration uses devices of its kind {file.kind}, which containers do not get: let the vendor's "
                "program generate the spec again"
            )
        return "the file belongs to another owner and affects no declared device: its owner has to fix it"

    def _too_new(self, specs: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        version, accepted = self._runtime.version, self._runtime.accepted
        for spec in specs:
            for feature in cdi.refused_features(spec, accepted) if accepted else []:
                yield (
                    f"{spec['kind']}: {feature.name} ({feature.where}) needs CDI {feature.since}, and containerd "
                    f"{version} accepts CDI up to {accepted}: remove it, or upgrade containerd"
                )

    def _checked(self, specs: Mapping[str, Mapping[str, Any]]) -> resolution.Resolution:
        """Return all specs as runtimes read them, with ``specs`` in place of the role's files.

        specs: file name to content.
        """
        ours = [
            directories.of_spec(f"{DIRECTORY}/{name}", spec, owner=directories.OURS) for name, spec in specs.items()
        ]
        others = self._others if DIRECTORY in self._others else {DIRECTORY: (), **self._others}
        return resolution.Resolution(
            file for directory, files in others.items() for file in (*files, *(ours if directory == DIRECTORY else ()))
        )

    def must_stay(self, holders: Mapping[str, Any], advertised_counts: bool) -> list[Leftover]:
        """Return the leftovers that must stay, each with its reason. Others may go.

        holders: answer of ``node-device-plugin holders``, with device ids.
        advertised_counts: whether a device that the kubelet still lists must stay too, because the
        kubelet may allocate it.
        Kinds whose specs the plugin writes are exempt: the plugin offers only devices that its own
        spec has.
        """
        reasons = ((each, next(self._reasons(each, holders, advertised_counts), None)) for each in self.leftovers)
        return [leftover._replace(reason=reason) for leftover, reason in reasons if reason]

    def _reasons(self, leftover: Leftover, holders: Mapping[str, Any], advertised_counts: bool) -> Iterator[str]:
        for held in holders["held"]:
            if may_be(held, leftover.name, self._kinds):
                yield f"held by {holder(held)}"
        # If the plugin writes the kind's spec, an offered device is in /var/run/cdi, which takes precedence.
        if advertised_counts and leftover.name.partition("=")[0] not in self._awaited:
            for resource, device_ids in holders["offered"].items():
                if may_be({"resource": resource, "device_ids": device_ids}, leftover.name, self._kinds):
                    yield f"still offered by the kubelet as {resource}"


def may_be(held: Mapping[str, Any], name: str, kinds: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Whether a held device may be the device of our specs with this qualified CDI name.

    held: an entry of ``node-device-plugin holders`` with device ids, which has no CDI names in earlier releases.
    kinds: the CDI kind of each declared resource. An id of an unknown resource also counts, because a needless spec is
    better than a missing one.
    """
    kind, _equals, device = name.partition("=")
    is_its_id = device in held["device_ids"] and kinds.get(held["resource"], kind) == kind
    return is_its_id or name in held.get("cdi_names", ())


def _host_paths(edits: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(str(node.get("hostPath") or node.get("path")) for node in edits.get("deviceNodes") or [])


def _listed(paths: Collection[str]) -> str:
    return ", ".join(sorted(paths)) or "no device node"


def holder(held: Mapping[str, Any]) -> str:
    """Return the pod of a ``node-device-plugin holders`` entry; without a kubelet, only its uid or its claim."""
    if held.get("claim") and not held["pod"]:
        return f"claim {held['claim']}"
    return f"{held['namespace']}/{held['pod']}" if held.get("namespace") else str(held["pod"])
