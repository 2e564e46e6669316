"""The CDI specs of kinds with discovered devices: written while the plugin runs, in a directory for dynamic specs.

A kind has one owner. What is only declared is the role's, in /etc/cdi; a kind with discovered devices is the plugin's,
its declared devices too. The directory is gone after a reboot, so specs are written before a resource is
registered. A device that is found no longer stays in its spec while a pod holds it, because the kubelet replays the CDI
names of its checkpoint when a container restarts. It reads and writes files: not for the event loop.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import time
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .declaration import Resource, cdi
from .observability.metrics import CDI_WRITES

log = logging.getLogger(__name__)

_SHARE = "::"
#: What a killed instance left half written is removed after so many seconds.
_STALE = 60.0


class Held(NamedTuple):
    """A device that a container holds: the kubelet's names for it."""

    resource: str
    kubelet_id: str


def write(resources: Sequence[Resource], directory: str) -> Dict[str, str]:
    """Make the spec of every resource that has a dynamic one what it should be; nothing that is so already is touched.

    Devices in a file that the resource has no longer stay until ``prune``. Gives the resources whose spec could not be
    written, each with the reason; the old file is then still there, whole.
    """
    problems = {}
    for resource in resources:
        wanted = cdi.render_spec(resource) if resource.dynamic_cdi else None
        if wanted is None:
            continue
        path = os.path.join(directory, cdi.file_name(resource.cdi_kind))
        present = _read(path)
        names = {device["name"] for device in wanted["devices"]}
        text = cdi.serialise(cdi.with_kept(wanted, present, [name for name in _names(present) if name not in names]))
        try:
            _replace(path, text)
        except OSError as error:
            CDI_WRITES.increment("failed")
            problems[resource.name] = "the CDI spec %s cannot be written: %s" % (path, error.strerror or error)
    return problems


def prune(resources: Sequence[Resource], held: Sequence[Held], directory: str) -> List[str]:
    """Take devices out of our specs that no resource has and nobody holds, and files without devices away.

    resources: with all their devices. Gives the fully qualified names that were taken out. Raises OSError.
    """
    kinds = {resource.name: resource.cdi_kind for resource in resources}
    known = {
        (resource.cdi_kind, device.id)
        for resource in resources
        if resource.dynamic_cdi
        for device in resource.devices
        if resource.cdi_name(device)
    }
    gone = []
    for path, spec in _own_files(directory):
        kind = str(spec.get("kind"))
        stay = [
            name for name in _names(spec) if (kind, name) in known or any(_is(each, kind, name, kinds) for each in held)
        ]
        gone += ["%s=%s" % (kind, name) for name in _names(spec) if name not in stay]
        if not stay:
            os.unlink(path)
            CDI_WRITES.increment("removed")
        elif len(stay) != len(_names(spec)):
            _replace(path, cdi.serialise(cdi.with_kept(None, spec, stay)))
    _remove_half_written(directory)
    return gone


def devices(directory: str) -> List[str]:
    """The fully qualified names in our specs."""
    return ["%s=%s" % (spec.get("kind"), name) for _, spec in _own_files(directory) for name in _names(spec)]


def _is(held: Held, kind: str, name: str, kinds: Mapping[str, str]) -> bool:
    """Whether a held device may be the one of a spec; of a resource that is not known (any more) the id decides."""
    return held.kubelet_id.partition(_SHARE)[0] == name and kinds.get(held.resource, kind) == kind


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
    except (OSError, ValueError):
        return None
    is_spec = isinstance(spec, dict) and isinstance(spec.get("devices"), list)
    if not is_spec or not all(isinstance(device, dict) and "name" in device for device in spec["devices"]):
        return None
    return dict(spec)


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
