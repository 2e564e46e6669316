"""The CDI specs that the plugin owns: written while it runs, in a directory for dynamic specs.

A kind has one owner. What is only declared is the role's, in /etc/cdi, unless nobody but the plugin reaches the node
(``cdi_owner``); a kind with discovered devices is the plugin's, its declared devices too. Where a declared node is a
link on this node, which no runtime follows, the plugin writes its kind as well, with what the link leads to: its
directory goes before the role's. It is gone after a reboot, so specs are written before a resource is registered. A
device that is found no longer stays in its spec while a pod holds it, because the kubelet replays the CDI names of
its checkpoint when a container restarts. It reads and writes files: not for the event loop.
"""

from __future__ import annotations

import collections
import contextlib
import errno
import json
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..declaration import Resource, cdi
from ..declaration.model import devices_behind
from ..declaration.names import qualified_cdi_name
from ..support.file_identity import Identity, identity
from ..telemetry.logs import Log
from ..telemetry.metrics import CDI_WRITES
from .fields import SPEC, shape_problems
from .links import Links

log = Log(__name__)

#: What a killed instance left half written is removed after so many seconds.
_STALE = 60.0


class Written(NamedTuple):
    """A spec that is what it should be. found: tells the file from what anybody else may put there."""

    resource: Resource
    kept: frozenset[str]
    found: Identity


class NotWritten(Exception):
    """A spec cannot be written; the old file is still there, whole. names: fully qualified ones that are not in it."""

    def __init__(self, path: str, error: OSError, names: frozenset[str]) -> None:
        super().__init__(f"the CDI spec {path} cannot be written: {error.strerror or error}")
        self.names = names


def write(
    declared: Resource,
    links: Links,
    directory: str,
    before: Written | None = None,
    kept: Collection[str] = (),
) -> Written | None:
    """Make the spec of a resource what it should be, if it has a dynamic one; nothing that is so already is touched.

    Devices in a file that the resource has no longer stay until ``prune``; those that the role gives by now are kept to
    what is declared until then, because this file goes before the role's.

    before: what the last call gave, so that thousands of devices are not rendered for nothing. kept: fully qualified
    names that go on meaning what they mean, until somebody else says that nobody holds them. Raises NotWritten.
    """
    resource, is_ours = _given(declared, links)
    path = os.path.join(directory, cdi.file_name(resource.cdi_kind))
    if resource.injection != "cdi" or not (is_ours or os.path.exists(path)):
        return None
    stay = frozenset(name for name in kept if name.startswith(resource.cdi_kind + "="))
    if before != (resource, stay, identity(path, with_status=True)):
        _write(resource, path, is_ours, stay)
    found = identity(path, with_status=True)
    return None if found is None else Written(resource, stay, found)


def missing(resources: Sequence[Resource], links: Links, directory: str) -> frozenset[str]:
    """The fully qualified names that our specs are to have and lack. resources: with all their devices."""
    return frozenset(_names_of(resources, links) - set(devices(directory)))


def _given(resource: Resource, links: Links) -> tuple[Resource, bool]:
    """The resource with its links followed, and whether its spec is the plugin's."""
    given = links.followed(resource) if resource.injection == "cdi" else resource
    return given, resource.dynamic_cdi or given is not resource


def _write(resource: Resource, path: str, is_ours: bool, kept: Collection[str]) -> None:
    wanted = cdi.render_spec(resource)
    present = _read(path)
    if present is None and os.path.exists(path):
        log.warning("rewriting a malformed CDI spec", path=path)
    if wanted is not None and (kept or not is_ours):
        there = set(_names(present))
        stay = {name for name in there if _qualified(wanted, name) in kept}
        devices = [device for device in wanted["devices"] if device["name"] not in stay]
        wanted = {**wanted, "devices": [device for device in devices if is_ours or device["name"] in there]}
    if wanted is not None and wanted["devices"]:
        names = {device["name"] for device in wanted["devices"]}
        others = [name for name in _names(present) if name not in names]
        try:
            _replace(path, cdi.serialise(cdi.with_kept(wanted, present, others)))
        except OSError as error:
            CDI_WRITES.increment("failed")
            is_other = present is None or present.get("containerEdits") != wanted.get("containerEdits")
            there_already = [] if is_other else (present or {}).get("devices", [])
            lacking = [device["name"] for device in wanted["devices"] if device not in there_already]
            raise NotWritten(path, error, frozenset(_qualified(wanted, name) for name in lacking)) from error


def redefined(
    resources: Sequence[Resource], links: Links, directory: str, former: Sequence[Resource] = ()
) -> frozenset[str]:
    """The fully qualified names that mean other devices in our specs than the resources now declare.

    Who holds one gets it by this name again when its container restarts. One more node of the host, or one less, makes
    no other device. Nor does another node behind a link, as after a re-plug; so of links only the former declaration
    tells. resources: as declared. former: what was declared before, as far as this process knows.
    """
    there = {name: each.nodes | each.mounts for spec in given([directory]) for name, each in spec.items()}
    declared = {each.cdi_name(device): device.host_paths for each in former for device in each.devices}
    found = set()
    for resource in resources:
        for device in resource.devices:
            name, now = resource.cdi_name(device), device.host_paths
            if name in there:
                before = declared.get(name, now) if any(map(links.is_link, now)) else there[name]
                if not (before <= now or now <= before):
                    found.add(name)
    return frozenset(found)


def orphans(resources: Sequence[Resource], links: Links, directory: str) -> list[str]:
    """The fully qualified names in our specs that no resource has. resources: with all their devices."""
    known = _names_of(resources, links)
    return [name for name in devices(directory) if name not in known]


def prune(
    resources: Sequence[Resource], links: Links, held: Collection[str], directory: str, dry_run: bool = False
) -> list[str]:
    """Take devices out of our specs that no resource has and nobody holds, and files without devices away.

    resources: with all their devices. held: the kubelet's ids. Who holds a device was given it by its name of that
    time, whatever the resource or its kind is called now: the id decides, which is one on the whole node. Gives the
    fully qualified names that were taken out, or with dry_run would be. Raises OSError.
    """
    known = _names_of(resources, links)
    held_ids = {device for each in held for device in devices_behind(each)}
    gone = []
    for path, spec in _own_files(directory):
        stay = [name for name in _names(spec) if _qualified(spec, name) in known or name in held_ids]
        gone += [_qualified(spec, name) for name in _names(spec) if name not in stay]
        if dry_run:
            continue
        if not stay:
            os.unlink(path)
            CDI_WRITES.increment("removed")
        elif len(stay) != len(_names(spec)):
            _replace(path, cdi.serialise(cdi.with_kept(None, spec, stay)))
    if not dry_run:
        _remove_half_written(directory)
    return gone


def remove_directory(directory: str, volatile: str = "/run") -> None:
    """Take the folder of our specs away where it is empty, and one that a boot takes away, so that nobody counts on it.

    volatile: below it folders are such. Raises OSError.
    """
    real = os.path.realpath(directory)
    if real.startswith(volatile + "/"):
        try:
            os.rmdir(real)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise


def offered(directory: str) -> dict[str, frozenset[str]]:
    """The nodes on the host of every device in our specs, by its id.

    A USB device with the serial number of another one keeps its id by this, in whichever process asks. A directory
    that cannot be read offers nothing.
    """
    try:
        return {name.partition("=")[2]: each.nodes for spec in given([directory]) for name, each in spec.items()}
    except OSError:
        return {}


class Given(NamedTuple):
    """What a CDI device gives of the host.

    nodes: as the spec says; links may lead elsewhere. common: what each device of its kind mounts.
    """

    nodes: frozenset[str]
    mounts: frozenset[str]
    common: frozenset[str]


def given(directories: Sequence[str]) -> list[dict[str, Given]]:
    """What the devices of our specs give, by fully qualified name; of each spec one mapping.

    directories: a later one goes before an earlier one.
    """
    return [
        {
            _qualified(spec, device["name"]): Given(
                frozenset(_host_paths(device)), frozenset(_mounted(device)), frozenset(_mounted(spec))
            )
            for device in spec.get("devices", [])
        }
        for directory in directories
        for _, spec in _own_files(directory)
    ]


class HostPaths(NamedTuple):
    """What a device of our specs gives of the host, links followed.

    own: without what another one of its kind gives beside other things, as a node that controls all of them. Two that
    give the very same are one device by two names.
    """

    own: frozenset[str]
    all: frozenset[str]


def host_paths(specs: Sequence[Mapping[str, Given]], links: Links) -> dict[str, HostPaths]:
    """What each device of our specs gives, by its fully qualified name."""
    found: dict[str, HostPaths] = {}
    for spec in specs:
        paths = {name: frozenset([*map(links.real, each.nodes), *each.mounts]) for name, each in spec.items()}
        givers = collections.Counter(path for of_device in set(paths.values()) for path in of_device)
        for name, of_device in paths.items():
            own = frozenset(path for path in of_device if givers[path] == 1)
            found[name] = HostPaths(own, of_device | spec[name].common)
    return found


def _host_paths(device: Mapping[str, Any]) -> list[str]:
    return [node.get("hostPath") or node["path"] for node in device["containerEdits"].get("deviceNodes") or ()]


def _mounted(part: Mapping[str, Any]) -> list[str]:
    """part: a device, or a spec, which need not have edits of its own."""
    mounts = part.get("containerEdits", {}).get("mounts") or ()
    return [mount["hostPath"] for mount in mounts if {"bind", "rbind"} & set(mount.get("options") or ())]


def devices(directory: str) -> list[str]:
    """The fully qualified names in our specs."""
    return [_qualified(spec, name) for _, spec in _own_files(directory) for name in _names(spec)]


def _names_of(resources: Sequence[Resource], links: Links) -> set[str]:
    ours = (resource for resource in resources if _given(resource, links)[1])
    names = (resource.cdi_name(device) for resource in ours for device in resource.devices)
    return {name for name in names if name is not None}


def _qualified(spec: Mapping[str, Any], name: str) -> str:
    return qualified_cdi_name(str(spec.get("kind")), name)


def _own_files(directory: str) -> Iterator[tuple[str, dict[str, Any]]]:
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(directory)):
            if name.startswith(cdi.FILE_PREFIX) and name.endswith(".json"):
                path = os.path.join(directory, name)
                # A file by our name that is no spec is of no use to anybody.
                yield path, _read(path) or {}


def _names(spec: Mapping[str, Any] | None) -> list[str]:
    return [device["name"] for device in (spec or {}).get("devices", [])]


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            spec = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return None if any(shape_problems(spec, SPEC, "")) else dict(spec)


def _replace(path: str, text: str) -> None:
    """Put a file in place in one step, readable by everybody (a runtime drops what it cannot read)."""
    content = text.encode("utf-8")
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if file.read() == content and os.fstat(file.fileno()).st_mode & 0o777 == 0o644:
            return
    directory, name = os.path.split(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    # Runtimes read *.json and *.yaml only.
    descriptor, staged = tempfile.mkstemp(prefix=f".{name}.", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        os.replace(staged, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise
    CDI_WRITES.increment("written")
    log.info("wrote a CDI spec", path=path)


def _remove_half_written(directory: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            if entry.name.startswith("." + cdi.FILE_PREFIX) and time.time() - entry.stat().st_mtime > _STALE:
                os.unlink(entry.path)
