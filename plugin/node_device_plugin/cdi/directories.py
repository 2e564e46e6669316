"""The spec directories of a node: each file by itself, and files against each other."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..declaration import Problem, cdi
from ..declaration.names import qualified_cdi_name
from ..support.documents import read_json, read_yaml
from .fields import SPEC, as_read
from .spec import spec_problems

#: Where runtimes look unless they are told otherwise; a later one goes before an earlier one.
DEFAULT_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
_ENDINGS = (".json", ".yaml")
#: And what people take for one. Runtimes load hidden files, too.
_SEEN = (*_ENDINGS, ".yml")
#: Where a problem is that has to do with who may read the file; a runtime is root, and reads it all the same.
MODE = "the file's mode"
OURS, FOREIGN = "ours", "foreign"
#: Bytes; a larger file is nobody's spec.
_LARGEST = 16 << 20


class SpecFile(NamedTuple):
    """A file in a spec directory, and what is wrong with it.

    owner: OURS or FOREIGN. devices: their names. refusals: for which runtimes load nothing of the file. mode: that not
    everybody can read it. conflicts: qualified names that runtimes drop, because another file of the directory has
    them, too. overrides: names of ours in whose place containers get this file's device. harm: all problems by which
    devices of ours do not reach their containers. spec: what the file says, if it is loaded.
    """

    path: str
    owner: str
    kind: str
    version: str
    devices: tuple[str, ...]
    refusals: tuple[Problem, ...] = ()
    mode: tuple[Problem, ...] = ()
    conflicts: Mapping[str, Problem] = MappingProxyType({})
    overrides: Mapping[str, Problem] = MappingProxyType({})
    harm: tuple[Problem, ...] = ()
    spec: Mapping[str, Any] | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """For which runtimes refuse the file, or a device of it."""
        return (*self.mode, *self.refusals, *self.conflicts.values())

    @property
    def every_problem(self) -> tuple[Problem, ...]:
        """Each once."""
        return tuple(dict.fromkeys((*self.problems, *self.harm)))


def check_directories(directories: Sequence[str], accepted: str | None) -> list[SpecFile]:
    """Every file of the spec directories, of which a later one goes before an earlier one.

    One that is not there is no problem. accepted: see spec_problems.
    """
    every = []
    for directory in directories:
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            continue
        except OSError as error:
            every.append([_unread(directory, error.strerror or str(error))])
            continue
        every.append([check_file(os.path.join(directory, name), accepted) for name in names if name.endswith(_SEEN)])
    return against_each_other(every)


def check_file(path: str, accepted: str | None) -> SpecFile:
    """One file."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return _unread(path, "is no regular file")
        if found.st_size > _LARGEST:
            return _unread(path, "is larger than any spec (%d bytes)" % found.st_size)
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        return _unread(path, error.strerror or str(error))
    checked = check_content(path, content, accepted)
    if found.st_mode & stat.S_IROTH:
        return checked
    message = f"{stat.S_IMODE(found.st_mode):04o}: others than its owner cannot read it; chmod 0644"
    return checked._replace(mode=(Problem(MODE, message),))


def check_content(path: str, content: bytes, accepted: str | None) -> SpecFile:
    """A file whose content was read before."""
    refusals = []
    if not path.endswith(_ENDINGS):
        refusals.append(Problem("the file's name", "ends in neither .json nor .yaml: runtimes ignore it; rename it"))
    try:
        spec = _parse(path, content)
    except (ValueError, RecursionError) as error:
        return _unread(path, "cannot be parsed: {}".format(" ".join(str(error).split())), refusals)
    wrong = list(spec_problems(spec, accepted))
    if wrong:
        # Only then: thousands of devices, as ours are, are not gone through once more.
        spec = as_read(spec, SPEC)
        wrong = list(spec_problems(spec, accepted))
    return of_spec(path, spec if isinstance(spec, dict) else {}, (*refusals, *wrong))


def of_spec(path: str, spec: Mapping[str, Any], refusals: Sequence[Problem] = (), owner: str = "") -> SpecFile:
    """A file of which it is known what it says. owner: by its name, unless it is given."""
    listed = spec.get("devices")
    return SpecFile(
        path=path,
        owner=owner or _owner(path),
        kind=str(spec.get("kind", "")),
        version=str(spec.get("cdiVersion", "")),
        devices=tuple(
            str(device["name"])
            for device in (listed if isinstance(listed, list) else [])
            if isinstance(device, dict) and "name" in device
        ),
        refusals=tuple(refusals),
        # What runtimes do not load may be anything, such as another program's secrets.
        spec=None if refusals else spec,
    )


def against_each_other(directories: Sequence[Sequence[SpecFile]]) -> list[SpecFile]:
    """The files of all directories, with what is wrong between them. A later directory goes before an earlier one."""
    files = [file for directory in directories for file in _with_conflicts(directory)]
    if not any(file.owner == FOREIGN for file in files):
        return [file._replace(harm=file.problems) for file in files]
    overrides = _overrides(files)
    ours = {(os.path.dirname(file.path), name) for file in files if file.owner == OURS for name in file.conflicts}
    result = []
    for file in files:
        if file.owner == OURS:
            result.append(file._replace(harm=file.problems))
            continue
        directory, over = os.path.dirname(file.path), overrides.get(file.path, {})
        at_odds = [problem for name, problem in file.conflicts.items() if (directory, name) in ours]
        result.append(file._replace(overrides=over, harm=(*at_odds, *over.values())))
    return result


def _with_conflicts(files: Sequence[SpecFile]) -> list[SpecFile]:
    """The files of one directory: a device that two of them have is dropped from both.

    A file that is refused as a whole has no devices, and takes none from another.
    """
    owners: dict[str, list[str]] = {}
    for file in files:
        if not file.refusals:
            for device in dict.fromkeys(file.devices):
                owners.setdefault(qualified_cdi_name(file.kind, device), []).append(file.path)
    several = {name: paths for name, paths in owners.items() if len(paths) > 1}
    return [
        file._replace(
            conflicts={
                name: Problem(
                    "device " + name,
                    "is in {}, too: runtimes drop both".format(", ".join(p for p in paths if p != file.path)),
                )
                for name, paths in several.items()
                if file.path in paths
            }
        )
        for file in files
    ]


def _overrides(files: Sequence[SpecFile]) -> dict[str, dict[str, Problem]]:
    """By its path, why a file of others takes the place of ours: its directory goes before that of ours.

    A container then gets what that file says. Where that is the very same, nothing is wrong.
    """
    winners: dict[str, SpecFile] = {}
    ours: dict[str, SpecFile] = {}
    gone = {name for file in files for name in file.conflicts}
    for file in files:
        for device in file.devices:
            name = qualified_cdi_name(file.kind, device)
            if file.owner == OURS:
                ours[name] = file
            if not file.refusals:
                winners[name] = file
    result: dict[str, dict[str, Problem]] = {}
    edits: dict[str, dict[str, Any]] = {}
    for name, mine in ours.items():
        other = winners.get(name)
        if other is None or other.owner == OURS or name in gone:
            continue
        for file in (mine, other):
            if file.path not in edits:
                edits[file.path] = _edits(file)
        if edits[mine.path].get(name) != edits[other.path].get(name):
            message = f"overrides that of {mine.path}: containers get the device of this file"
            result.setdefault(other.path, {})[name] = Problem("device " + name, message)
    return result


def _edits(file: SpecFile) -> dict[str, Any]:
    """What containers get of each device: the edits of the kind, and its own. Nothing of a file that is not loaded."""
    spec = file.spec or {}
    common = spec.get("containerEdits") or {}
    result = {}
    for device in spec.get("devices") or []:
        edits = dict(common)
        for key, value in (device.get("containerEdits") or {}).items():
            both = isinstance(value, list) and isinstance(edits.get(key), list)
            edits[key] = [*edits[key], *value] if both else value
        result[qualified_cdi_name(file.kind, device["name"])] = {key: value for key, value in edits.items() if value}
    return result


def _parse(path: str, content: bytes) -> Any:
    """Runtimes read either ending as YAML, of which JSON is a part; JSON is read here in a tenth of the time."""
    if not path.endswith(".json"):
        return read_yaml(content, merges=False)
    try:
        return read_json(content)
    except ValueError as error:
        try:
            return read_yaml(content, merges=False)
        except ValueError:
            raise error from None


def _unread(path: str, why: str, also: Sequence[Problem] = ()) -> SpecFile:
    return SpecFile(path, _owner(path), "", "", (), (*also, Problem("the file", why)))


def _owner(path: str) -> str:
    return OURS if os.path.basename(path).startswith(cdi.FILE_PREFIX) else FOREIGN
