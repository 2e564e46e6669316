"""Writes the plugin's CDI specs in a directory for dynamic specs.

A kind has one owner. The role owns kinds with only declared devices, in /etc/cdi, unless only the plugin reaches the
node (``cdi_owner``). The plugin owns kinds with discovered devices, including their declared ones. If a declared node
is a link on this node, the plugin also writes its kind, with the link resolved: runtimes follow no links, and the
plugin's directory takes precedence. A reboot empties that directory, so the plugin writes specs before it registers a
resource. A lost device stays in its spec while a pod holds it, because the kubelet reuses the CDI names of its
checkpoint when a container restarts. This module reads and writes files, so it must not run in the event loop.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..declaration import Device, Resource, cdi
from ..declaration.model import DeviceNode
from ..declaration.names import qualified_cdi_name
from ..support import bounded_reads
from ..support.file_identity import Identity, identity
from ..support.new_file import replace
from ..telemetry.logs import Log
from ..telemetry.metrics import CDI_WRITES
from . import resolution
from .fields import SPEC, shape_problems
from .links import Links

log = Log(__name__)

#: Behind the host path of a device node that belongs to another device now, so that no runtime finds the node.
_TAKEN = " (another device has this path now)"
#: The prefix of the names of specs that one claim has. It is not that of a kind's spec, so ``prune`` leaves these specs
#: alone.
_CLAIM_PREFIX = "node-device-plugin-claim_"


class Written(NamedTuple):
    """A spec that is up to date. found: the file's identity, which shows whether another writer replaced the file."""

    resource: Resource
    kept: frozenset[str]
    found: Identity


class NotWritten(Exception):
    """A spec cannot be written; the old file stays intact. names: fully qualified names not in it, or not as wanted."""

    def __init__(self, path: str, error: OSError, names: frozenset[str]) -> None:
        super().__init__(f"cannot write the CDI spec {path}: {error.strerror or error}")
        self.names = names


def write(
    declared: Resource,
    links: Links,
    directory: str,
    before: Written | None = None,
    kept: Collection[str] = (),
    blocked: Collection[str] = (),
) -> Written | None:
    """Write the spec of a resource if the plugin owns the spec; a file that is up to date is not touched.

    Devices that the resource no longer has stay in the file until ``prune``. If the role now owns the spec, devices
    that are in this file stay and follow the declaration, because this file takes precedence over the role's file.

    before: the last call's result, which saves rendering thousands of unchanged devices. kept: fully qualified names
    that must keep their meaning while containers hold them. blocked: names whose device nodes belong to other devices
    now; no container with such a name starts, also if the role owns the spec. Raises NotWritten.
    """
    resource, is_ours = _given(declared, links)
    path = os.path.join(directory, cdi.file_name(resource.cdi_kind))
    stay, closed = (
        frozenset(name for name in names if name.startswith(resource.cdi_kind + "=")) for names in (kept, blocked)
    )
    if resource.injection != "cdi" or not (is_ours or closed or os.path.exists(path)):
        return None
    resource = _with_closed(resource, closed)
    if before != (resource, stay, identity(path, with_status=True)):
        _write(resource, path, is_ours, stay, closed)
    found = identity(path, with_status=True)
    return None if found is None else Written(resource, stay, found)


def missing(resources: Sequence[Resource], links: Links, directory: str) -> frozenset[str]:
    """The fully qualified names that are missing from our specs. resources: with all their devices."""
    return _names_of(resources, links).difference(devices(directory))


def _given(resource: Resource, links: Links) -> tuple[Resource, bool]:
    """The resource with its links resolved, and whether the plugin owns its spec."""
    given = links.followed(resource) if resource.injection == "cdi" else resource
    return given, resource.dynamic_cdi or given is not resource


def _with_closed(resource: Resource, names: Collection[str]) -> Resource:
    """The resource, in which the devices of these CDI names have device nodes that no runtime finds."""

    def closed(device: Device, node: DeviceNode) -> DeviceNode:
        if resource.cdi_name(device) not in names:
            return node
        return node._replace(host_path=node.host_path + _TAKEN, type=None, major=None, minor=None)

    return resource.with_nodes(closed) if names else resource


def _write(resource: Resource, path: str, is_ours: bool, kept: Collection[str], closed: Collection[str]) -> None:
    wanted = cdi.render_spec(resource)
    # At most starts of the plugin, the file is as wanted. Comparing bytes takes a tenth of the time of parsing.
    if wanted is not None and _is_there(path, cdi.serialise(wanted)):
        return
    present = _read(path)
    if not present and os.path.exists(path):
        log.warning("replacing an invalid CDI spec", path=path)
    if wanted is not None and (kept or not is_ours):
        there = set(_names(present))
        stay = {name for name in there if _qualified(wanted, name) in kept}
        ours = there | {name.partition("=")[2] for name in closed}
        devices = [device for device in wanted["devices"] if device["name"] not in stay]
        wanted = {**wanted, "devices": [device for device in devices if is_ours or device["name"] in ours]}
    if wanted is not None and wanted["devices"]:
        names = {device["name"] for device in wanted["devices"]}
        others = [name for name in _names(present) if name not in names]
        try:
            _replace(path, cdi.serialise(cdi.with_kept(wanted, present, others)))
        except OSError as error:
            CDI_WRITES.increment("failed")
            is_other = present.get("containerEdits") != wanted.get("containerEdits")
            there_already = [] if is_other else present.get("devices", [])
            unwritten = [device["name"] for device in wanted["devices"] if device not in there_already]
            raise NotWritten(path, error, frozenset(_qualified(wanted, name) for name in unwritten)) from error


def prune(
    resources: Sequence[Resource], links: Links, held: Collection[str], directory: str, dry_run: bool = False
) -> list[str]:
    """Remove devices that no resource has and no pod holds from our specs, and specs without devices.

    resources: with all their devices. held: the ids of held devices. The id decides, because it is unique on the node,
    while the resource or its kind may have been renamed since a pod got the device. Returns the fully qualified names
    that were removed (with dry_run: that would be). Raises OSError if a file cannot be read, written or removed.
    """
    known = _names_of(resources, links)
    gone = [name for name in devices(directory) if name not in known and name.partition("=")[2] not in held]
    if not dry_run:
        omit(frozenset(gone), directory)
        _remove_half_written(directory, cdi.FILE_PREFIX)
    return gone


def omit(names: Collection[str], directory: str) -> list[str]:
    """Remove devices from our specs by their fully qualified names, and specs without devices.

    Returns and raises like ``prune``.
    """
    gone = []
    for path, spec in _own_files(directory):
        there = {_qualified(spec, name): name for name in _names(spec)}
        stay = [name for qualified, name in there.items() if qualified not in names]
        gone += [qualified for qualified in there if qualified in names]
        if not stay:
            os.unlink(path)
            CDI_WRITES.increment("removed")
        elif len(stay) < len(there):
            _replace(path, cdi.serialise(cdi.with_kept(None, spec, stay)))
    return gone


def write_claim(directory: str, uid: str, kind: str, devices: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the spec of a claim. devices: the edits of each device, by name. Raises OSError."""
    listed = [{"name": name, "containerEdits": edits} for name, edits in devices.items()]
    spec = {"cdiVersion": "", "kind": kind, "devices": listed}
    text = cdi.serialise({**spec, "cdiVersion": cdi.minimum_version(spec)})
    # Another line of the log names what each claim got.
    _replace(_claim_path(directory, uid), text, logging.DEBUG)


def remove_claim(directory: str, uid: str) -> None:
    """Remove the spec of a claim if it has one, and what a killed instance left of its writes. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_claim_path(directory, uid))
        CDI_WRITES.increment("removed")
    _remove_half_written(directory, _CLAIM_PREFIX)


def _claim_path(directory: str, uid: str) -> str:
    return os.path.join(directory, f"{_CLAIM_PREFIX}{uid}.json")


def remove_directory(directory: str, volatile: str = "/run") -> None:
    """Remove the directory of our specs if it is empty and volatile: a reboot removes it anyway, so nothing needs it.

    volatile: a directory that a reboot empties. Raises OSError if the removal fails otherwise.
    """
    real = os.path.realpath(directory)
    if real.startswith(volatile + "/"):
        try:
            os.rmdir(real)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise


def offered(directory: str) -> dict[str, frozenset[str]]:
    """The host paths of the nodes of every device in our specs, by device id.

    With this, a USB device that shares a serial number keeps its id in every process. If the directory cannot be read,
    the result is empty.
    """
    try:
        return {name.partition("=")[2]: resolution.paths("device node", found) for name, found in given(directory)}
    except OSError:
        return {}


def given(directory: str) -> Iterator[tuple[str, Sequence[resolution.HostPath]]]:
    """The fully qualified name of each device of our specs, with the host paths that it gives."""
    return (each for _path, spec in _own_files(directory) for each in resolution.paths_by_name(spec).items())


def devices(directory: str) -> list[str]:
    """The fully qualified names in our specs."""
    return [_qualified(spec, name) for _, spec in _own_files(directory) for name in _names(spec)]


def _names_of(resources: Sequence[Resource], links: Links) -> frozenset[str]:
    return cdi_names(resource for resource in resources if _given(resource, links)[1])


def cdi_names(resources: Iterable[Resource]) -> frozenset[str]:
    """The fully qualified names of the devices in our specs."""
    names = (resource.cdi_name(device) for resource in resources for device in resource.devices)
    return frozenset(name for name in names if name is not None)


def _qualified(spec: Mapping[str, Any], name: str) -> str:
    return qualified_cdi_name(str(spec.get("kind")), name)


def _own_files(directory: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((path, _read(path)) for path in _own_paths(directory))


def _own_paths(directory: str) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(directory)):
            if name.startswith(cdi.FILE_PREFIX) and name.endswith(".json"):
                yield os.path.join(directory, name)


def exists(directory: str) -> bool:
    """Whether the directory has a spec of ours. Raises OSError if it cannot be read."""
    return next(_own_paths(directory), None) is not None


def _names(spec: Mapping[str, Any]) -> list[str]:
    return [device["name"] for device in spec.get("devices", [])]


def _read(path: str) -> dict[str, Any]:
    """The spec in a file; empty if the file is none, so that prune removes it."""
    try:
        spec = json.loads(bounded_reads.read_file(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return {} if any(shape_problems(spec, SPEC, "")) else dict(spec)


def _replace(path: str, text: str, level: int = logging.INFO) -> None:
    """Replace a file in one step, with mode 0644 so that every runtime can read it; an equal file is not touched."""
    if _is_there(path, text):
        return
    directory, name = os.path.split(path)
    if not os.path.isdir(directory):
        os.makedirs(directory, mode=0o755, exist_ok=True)
    # Runtimes read *.json and *.yaml only. Another instance may write the same spec.
    staged = os.path.join(directory, f".{name}.{os.urandom(6).hex()}")
    # The lock tells a file that is being written from one that a killed instance left.
    replace(path, text.encode("utf-8"), staged, 0o644, is_locked=True)
    CDI_WRITES.increment("written")
    log.log(level, "wrote a CDI spec", path=path)


def _is_there(path: str, text: str) -> bool:
    """Whether the file has this content and a mode with which every runtime can read it."""
    with contextlib.suppress(OSError):
        return bounded_reads.read_file(path) == text.encode("utf-8") and os.stat(path).st_mode & 0o777 == 0o644
    return False


def _remove_half_written(directory: str, prefix: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(directory):
            if entry.name.startswith("." + prefix) and not _is_being_written(entry.path):
                os.unlink(entry.path)


def _is_being_written(path: str) -> bool:
    """Whether a process holds the lock of a staged file, or the file has gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
