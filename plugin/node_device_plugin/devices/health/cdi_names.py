"""Checks whether a container can get the device of a CDI name."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
from collections.abc import Iterable, Iterator, Sequence

from ...cdi.directories import OURS, SpecFile
from ...cdi.reader import SpecReader
from ...cdi.resolution import NO_SPECS, HostPath, Resolution
from ...declaration import Device, Resource
from ...declaration.cdi import TEMPLATE_PREFIX
from ...declaration.names import kinds_of
from ...support import directory_names
from ...support.bounded_calls import BoundedCalls, Key
from ..reason import Reason

#: Directories that the service's unit hides from the plugin. /var/run is a link to one of them.
_HIDDEN = (*directory_names.HIDDEN, "/var/run")
#: A variable of every pod; a pod sees only the directories that it mounts.
_POD_VARIABLE = "KUBERNETES_SERVICE_HOST"
_LATE = "the CDI specs are not read yet"


class CdiNames:
    """The CDI names that devices need, in the specs. directories: a later directory takes precedence.

    Reads the file system, so it must not run in the event loop. Parses a file again only after a change.
    """

    def __init__(self, directories: Sequence[str]) -> None:
        self._reader = SpecReader(directories)
        #: The key of the call that reads the specs; its group is empty, because no resource has an empty name.
        self.key = Key("", "CDI specs of " + " ".join(self._reader.directories))
        #: The names as last read, and whether they were ever read. Device checks run while they are replaced.
        self.resolution, self.is_known = NO_SPECS, False
        #: Mounts and hooks, each with whether it exists. Every device of a kind may have the same ones.
        self._looked: dict[HostPath, bool | Exception] = {}
        self.is_as_read = self._reader.is_as_read

    def read(self, names: Iterable[str]) -> None:
        """Read the specs of these names' kinds if any file changed. The next checks look at their host paths again."""
        self._looked = {}
        self.resolution, self.is_known = self._reader.read(kinds_of(names)), True

    def problem(self, name: str) -> str | None:
        """Why a container cannot get the device of a CDI name, or would get another device; None if it can get it."""
        names = self.resolution
        if name in names.files:
            if name in names.overridden:
                file, problem = names.overridden[name]
                return Reason(f"{file.path}: {problem}", file.path)
            missing = next((each for each in _to_check(name, names) if not self._exists(each)), None)
            return None if missing is None else _missing(name, missing, names.files[name])
        directories = ", ".join(self._reader.directories)
        if not kinds_of([name]) <= names.kinds:
            return Reason(f"cannot check the CDI name {name}: the specs in {directories} were not read in time", _LATE)
        places = f"is in no valid spec of {directories}"
        broken = names.broken.get(name)
        why = f": {broken}" if broken else ""
        return Reason(f"the CDI name {name} {places}{why}", "the CDI name " + places)

    async def look_at_mounts_and_hooks(self, calls: BoundedCalls, names: Iterable[str]) -> None:
        """Look at the mounts and hooks of these names, each once: one that hangs takes one thread, not one a device."""
        known = self.resolution
        found = {each for name in names if name in known.files for each in _to_check(name, known)}
        shared = {Key(each.path, each.what): each for each in found if each.what != "device node"}
        answers = await calls.run([(key, functools.partial(_exists, each)) for key, each in shared.items()])
        self._looked.update((shared[key], answer) for key, answer in answers.items())

    def _exists(self, each: HostPath) -> bool:
        if each.what == "device node":
            return _exists(each)
        if each not in self._looked:
            self._looked[each] = _exists(each)
        answer = self._looked[each]
        if isinstance(answer, Exception):
            raise answer
        return answer


def _to_check(name: str, names: Resolution) -> Iterator[HostPath]:
    """The host paths to check for a name that resolves. nodes.py checks the device nodes of our own devices."""
    is_foreign = names.is_foreign(name)
    return (each for each in names.host_paths(name) if is_foreign or each.what != "device node")


def source_problem(resource: Resource, device: Device) -> Reason | None:
    """Why no container with the device can start: the declared source of a mount, or a hook, is missing; else None.

    For callers that must know this before the CDI spec exists. Only with CDI does such a container not start.
    """
    if resource.injection != "cdi":
        return None
    edits = resource.edits_of([device])
    sources = [HostPath("mount", each.host_path) for edit in edits for each in edit.mounts if each.has_source]
    hooks = [HostPath("hook", each.path) for edit in edits for each in edit.hooks]
    missing = next((each for each in (*sources, *hooks) if not _exists(each)), None)
    return None if missing is None else _missing(resource.cdi_name(device) or device.id, missing, None)


def _missing(name: str, each: HostPath, spec: SpecFile | None) -> Reason:
    """The reason for a missing path. spec: the file that defines the name; None before the file exists."""
    what = "does not exist"
    # With numbers from the spec, a container starts, whatever device of the host has them.
    starts = each.is_complete or (each.number.startswith("/") and _is_device_node(each.path))
    if each.what == "device node" and "\0" not in each.path and os.path.lexists(each.path):
        what = "is no device node"
        if each.number and (starts or _is_device_node(each.path)):
            what = f"is not the device {each.number.strip('/')}"
    why = f"the {each.what} of its CDI spec {what}"
    effect = f"{name} does not work in a container" if starts else f"no container with {name} starts"
    fix = "generate the spec again"
    if spec is None or spec.owner == OURS:
        fix = "create it, or change the declaration"
    elif os.path.basename(spec.path).startswith(TEMPLATE_PREFIX):
        fix = "create it, or change the template in cdi_specs_templates"
    return Reason(f"{each.path}: {why}, so {effect}: {fix}", why)


def _exists(each: HostPath) -> bool:
    """Whether a container's start would find the path; True for a path that the plugin's sandbox hides."""
    if each.what == "device node":
        return _has_number(each) if each.is_complete else _is_device_node(each.path) and _fits(each)
    if not is_visible(each.path):
        return True
    try:
        os.stat(each.path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        # The runtime may be allowed to look where the plugin is not.
        return True
    return True


def is_visible(path: str) -> bool:
    """Whether the plugin can see what a container's start finds at a path that is no device node."""
    return not (os.environ.get(_POD_VARIABLE) or _is_hidden(path))


def _is_device_node(path: str) -> bool:
    try:
        # The CDI library follows no link.
        mode = os.lstat(path).st_mode
    except ValueError:
        return False
    except OSError:
        return not path.startswith("/dev/")
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode)


def _is(number: str, found: os.stat_result) -> bool:
    """Whether a node has the type, and the numbers, that the spec gives (HostPath.number). A pipe has no numbers."""
    kind, _slash, numbers = number.partition("/")
    is_kind = {"": True, "block": stat.S_ISBLK(found.st_mode), "char": stat.S_ISCHR(found.st_mode)}.get(kind, False)
    own = "%d:%d" % (os.major(found.st_rdev), os.minor(found.st_rdev))
    return is_kind and (stat.S_ISFIFO(found.st_mode) or numbers in ("", own))


def _fits(each: HostPath) -> bool:
    """Whether the node at the path is of the type, or has the numbers, that the spec gives."""
    try:
        return _is(each.number, os.lstat(each.path))
    except OSError:
        return True


def _has_number(each: HostPath) -> bool:
    """Whether the kernel has the device with the spec's numbers. If the path exists, it must be this device."""
    if each.number == "pipe":
        return True
    with contextlib.suppress(OSError, ValueError):
        if each.is_of_host:
            return _is(each.number, os.stat(each.path))
    return os.path.exists("/sys/dev/" + each.number) or _has_driver(each.number)


def _has_driver(number: str) -> bool:
    """Whether a driver has the major number; some drivers have no device in sysfs. Source: proc_devices(5)."""
    kind, _slash, numbers = number.partition("/")
    try:
        with open("/proc/devices", encoding="ascii") as file:
            characters, _title, blocks = file.read().partition("Block devices:")
    except OSError:
        return True
    lines = (blocks if kind == "block" else characters).splitlines()
    return numbers.partition(":")[0] in (line.split()[0] for line in lines if line.strip())


def _is_hidden(path: str) -> bool:
    """Whether the path or the target of its links is in a directory that the plugin's sandbox hides."""
    paths = (path, path if "\0" in path else os.path.realpath(path))
    return any(each.startswith(hidden + "/") for hidden in _HIDDEN for each in paths)
