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
import logging
import os
import tempfile
import time
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ..declaration import Resource, cdi
from ..declaration.model import devices_behind
from ..declaration.names import qualified_cdi_name
from ..telemetry.metrics import CDI_WRITES
from .fields import SPEC, shape_problems
from .links import with_links_followed

log = logging.getLogger(__name__)

#: What a killed instance left half written is removed after so many seconds.
_STALE = 60.0


class Held(NamedTuple):
    """A device that a container holds: the kubelet's names for it."""

    resource: str
    kubelet_id: str


class Written(NamedTuple):
    """A spec that is what it should be. found: tells the file from what anybody else may put there."""

    resource: Resource
    found: Tuple[int, ...]


def write(
    resources: Sequence[Resource], directory: str, written: Optional[Dict[str, Written]] = None
) -> Dict[str, str]:
    """Make the spec of every resource that has a dynamic one what it should be; nothing that is so already is touched.

    Devices in a file that the resource has no longer stay until ``prune``; those that the role gives by now are kept to
    what is declared until then, because this file goes before the role's. Gives the resources whose spec could not be
    written, each with the reason; the old file is then still there, whole.

    written: by path, kept from call to call, so that thousands of devices are not rendered for nothing.
    """
    before = dict(written or {})
    now: Dict[str, Written] = {}
    problems = {}
    for declared in resources:
        resource, is_ours = _given(declared)
        path = os.path.join(directory, cdi.file_name(resource.cdi_kind))
        if resource.injection != "cdi" or not (is_ours or os.path.exists(path)):
            continue
        if before.get(path) != (resource, _found(path)):
            try:
                _write(resource, path, is_ours)
            except OSError as error:
                CDI_WRITES.increment("failed")
                problems[resource.name] = "the CDI spec %s cannot be written: %s" % (path, error.strerror or error)
                continue
        found = _found(path)
        if found is not None:
            now[path] = Written(resource, found)
    if written is not None:
        written.clear()
        written.update(now)
    return problems


def missing(resources: Sequence[Resource], directory: str) -> FrozenSet[str]:
    """The fully qualified names that our specs are to have and lack. resources: with all their devices."""
    return frozenset(_names_of(resources) - set(devices(directory)))


def _given(resource: Resource) -> Tuple[Resource, bool]:
    """The resource with its links followed, and whether its spec is the plugin's."""
    given = with_links_followed(resource) if resource.injection == "cdi" else resource
    return given, resource.dynamic_cdi or given is not resource


def _write(resource: Resource, path: str, is_ours: bool) -> None:
    wanted = cdi.render_spec(resource)
    present = _read(path)
    if present is None and os.path.exists(path):
        log.warning("%s is no CDI spec; the plugin writes it again", path)
    if wanted is not None and not is_ours:
        there = set(_names(present))
        wanted = {**wanted, "devices": [device for device in wanted["devices"] if device["name"] in there]}
    if wanted is not None and wanted["devices"]:
        names = {device["name"] for device in wanted["devices"]}
        _replace(
            path, cdi.serialise(cdi.with_kept(wanted, present, [name for name in _names(present) if name not in names]))
        )


def _found(path: str) -> Optional[Tuple[int, ...]]:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def orphans(resources: Sequence[Resource], directory: str) -> List[str]:
    """The fully qualified names in our specs that no resource has. resources: with all their devices."""
    known = _names_of(resources)
    return [name for name in devices(directory) if name not in known]


def prune(resources: Sequence[Resource], held: Sequence[Held], directory: str) -> List[str]:
    """Take devices out of our specs that no resource has and nobody holds, and files without devices away.

    resources: with all their devices. Who holds a device was given it by its name of that time, whatever the resource
    or its kind is called now: the id decides, which is one on the whole node. Gives the fully qualified names that were
    taken out. Raises OSError.
    """
    known = _names_of(resources)
    held_ids = {device for each in held for device in devices_behind(each.kubelet_id)}
    gone = []
    for path, spec in _own_files(directory):
        stay = [name for name in _names(spec) if _qualified(spec, name) in known or name in held_ids]
        gone += [_qualified(spec, name) for name in _names(spec) if name not in stay]
        if not stay:
            os.unlink(path)
            CDI_WRITES.increment("removed")
        elif len(stay) != len(_names(spec)):
            _replace(path, cdi.serialise(cdi.with_kept(None, spec, stay)))
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


def offered(directory: str) -> Dict[str, FrozenSet[str]]:
    """The nodes on the host of every device in our specs, by its id.

    A USB device with the serial number of another one keeps its id by this, in whichever process asks.
    """
    return {
        device["name"]: frozenset(_host_paths(device))
        for _, spec in _own_files(directory)
        for device in spec.get("devices", [])
    }


def host_paths(directories: Sequence[str]) -> Dict[str, FrozenSet[str]]:
    """What each device of our specs gives of the host: fully qualified name to its nodes, links followed, and mounts.

    Without what another one of its kind gives beside other things, as a node that controls all of them. Two that give
    the very same are one device by two names. directories: a later one goes before an earlier one.
    """
    found: Dict[str, FrozenSet[str]] = {}
    for directory in directories:
        for _, spec in _own_files(directory):
            given = {
                device["name"]: frozenset([*map(os.path.realpath, _host_paths(device)), *_mounted(device)])
                for device in spec.get("devices", [])
            }
            givers = collections.Counter(path for paths in set(given.values()) for path in paths)
            for name, paths in given.items():
                found[_qualified(spec, name)] = frozenset(path for path in paths if givers[path] == 1)
    return found


def _host_paths(device: Mapping[str, Any]) -> Iterator[str]:
    for node in _edits(device, "deviceNodes"):
        path = node.get("hostPath") or node.get("path")
        if isinstance(path, str):
            yield path


def _mounted(device: Mapping[str, Any]) -> Iterator[str]:
    for mount in _edits(device, "mounts"):
        path, options = mount.get("hostPath"), mount.get("options")
        if isinstance(path, str) and isinstance(options, list) and ("bind" in options or "rbind" in options):
            yield path


def _edits(device: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    edits = device.get("containerEdits")
    items = edits.get(key) if isinstance(edits, dict) else None
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            yield item


def devices(directory: str) -> List[str]:
    """The fully qualified names in our specs."""
    return [_qualified(spec, name) for _, spec in _own_files(directory) for name in _names(spec)]


def _names_of(resources: Sequence[Resource]) -> Set[str]:
    ours = (resource for resource in resources if _given(resource)[1])
    names = (resource.cdi_name(device) for resource in ours for device in resource.devices)
    return {name for name in names if name is not None}


def _qualified(spec: Mapping[str, Any], name: str) -> str:
    return qualified_cdi_name(str(spec.get("kind")), name)


def _own_files(directory: str) -> Iterator[Tuple[str, Dict[str, Any]]]:
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(directory)):
            if name.startswith(cdi.FILE_PREFIX) and name.endswith(".json"):
                path = os.path.join(directory, name)
                # A file by our name that is no spec is of no use to anybody.
                yield path, _read(path) or {}


def _names(spec: Optional[Mapping[str, Any]]) -> List[str]:
    return [device["name"] for device in (spec or {}).get("devices", [])]


def _read(path: str) -> Optional[Dict[str, Any]]:
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
    descriptor, staged = tempfile.mkstemp(prefix=".%s." % name, dir=directory)
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
    log.info("wrote %s", path)


def _remove_half_written(directory: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            if entry.name.startswith("." + cdi.FILE_PREFIX) and time.time() - entry.stat().st_mtime > _STALE:
                os.unlink(entry.path)
