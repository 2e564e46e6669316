"""Checks the spec directories of a node: each file alone, then the files against each other."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..declaration import Problem, cdi
from ..declaration.names import qualified_cdi_name
from ..support import bounded_reads, directory_names
from . import readings
from .fields import Crash
from .kinds import may_have
from .parsing import parse

#: The runtimes' default spec directories; a later directory takes precedence.
DEFAULT_DIRECTORIES = directory_names.CDI_DIRS
_ENDINGS = (".json", ".yaml")
#: Also the ending that people mistake for a spec's. Runtimes load hidden files, too.
_SEEN = (*_ENDINGS, ".yml")
#: The place of a problem with the file's mode; a runtime runs as root and reads the file anyway.
MODE = "the file's mode"
OURS, FOREIGN = "ours", "foreign"
#: Bytes; a larger file is not a spec.
_LARGEST = 16 << 20


class SpecFile(NamedTuple):
    """A file in a spec directory, with its problems.

    owner: OURS or FOREIGN. devices: their names. refusals: problems for which runtimes load nothing of the file.
    warnings: not every user can read the file, and text that runtimes read differently. unclear: qualified names that
    the file has for some runtimes only, each with its warning. conflicts: qualified names that runtimes drop, because
    another file of the directory has them, too. overrides: our names for which containers get this file's device. harm:
    all problems that keep our devices from their containers. spec: the content of the file, if runtimes load it.
    """

    path: str
    owner: str
    kind: str
    version: str
    devices: tuple[str, ...]
    refusals: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    unclear: Mapping[str, Problem] = MappingProxyType({})
    conflicts: Mapping[str, Problem] = MappingProxyType({})
    overrides: Mapping[str, Problem] = MappingProxyType({})
    harm: tuple[Problem, ...] = ()
    spec: Mapping[str, Any] | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems for which runtimes refuse the file or one of its devices, and the warnings."""
        return (*self.warnings, *self.refusals, *self.conflicts.values())

    @property
    def crashes(self) -> tuple[Crash, ...]:
        """The problems for which a runtime with CDI crashes at its start, because it reads every file."""
        return tuple(problem for problem in self.refusals if isinstance(problem, Crash))

    @property
    def names(self) -> Iterable[str]:
        """The qualified names of the devices, each once; an unclear one in each reading."""
        return dict.fromkeys([*(qualified_cdi_name(self.kind, device) for device in self.devices), *self.unclear])

    @property
    def every_problem(self) -> tuple[Problem, ...]:
        """All problems, each once."""
        return tuple(dict.fromkeys((*self.problems, *self.harm)))


def check_directories(directories: Sequence[str], accepted: str | None) -> list[SpecFile]:
    """Every file of the spec directories. A later directory takes precedence.

    A missing directory is no problem. accepted: see spec_problems.
    """
    every = []
    for directory in directories:
        try:
            paths = spec_paths(directory)
        except FileNotFoundError:
            continue
        except OSError as error:
            every.append([_unread(directory, error.strerror or str(error))])
            continue
        every.append([check_file(path, accepted) for path in paths])
    return against_each_other(every)


def spec_paths(directory: str) -> list[str]:
    """The paths of the directory's files that are specs by their names. Raises OSError."""
    return [os.path.join(directory, name) for name in sorted(os.listdir(directory)) if name.endswith(_SEEN)]


def check_file(path: str, accepted: str | None, kinds: Collection[str] | None = None) -> SpecFile:
    """Read and check one file. accepted: see spec_problems.

    kinds: if given, a file that has none of these kinds is not parsed, and the result has no kind.
    """
    try:
        found = os.stat(path)
        if found.st_size > _LARGEST:
            return _unread(path, "is too large for a CDI spec (%d bytes)" % found.st_size)
        content = bounded_reads.read_file(path, _LARGEST)
    except OSError as error:
        return _unread(path, error.strerror or str(error))
    if kinds is not None and not may_have(content, kinds):
        return SpecFile(path, _owner(path), "", "", ())
    checked = check_content(path, content, accepted)
    if found.st_mode & stat.S_IROTH:
        return checked
    message = f"{stat.S_IMODE(found.st_mode):04o}: other users cannot read the file: run chmod 0644"
    return checked._replace(warnings=(Problem(MODE, message), *checked.warnings))


def check_content(path: str, content: bytes, accepted: str | None) -> SpecFile:
    """Check a file by its content. accepted: see spec_problems."""
    refusals = []
    if not path.endswith(_ENDINGS):
        refusals.append(
            Problem("the file's name", "does not end in .json or .yaml, so that runtimes ignore the file: rename it")
        )
    try:
        found = readings.read(parse(path, content), accepted)
    except (ValueError, RecursionError) as error:
        return _unread(path, "cannot be parsed: {}".format(" ".join(str(error).split())), refusals)
    file = of_spec(path, found.spec if isinstance(found.spec, dict) else {}, (*refusals, *found.refusals))
    return file._replace(warnings=tuple(found.unclear), unclear={} if file.refusals else found.names)


def of_spec(path: str, spec: Mapping[str, Any], refusals: Sequence[Problem] = (), owner: str = "") -> SpecFile:
    """A file from its parsed spec. owner: if empty, the file's name decides."""
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
        # A refused file may hold anything, such as another program's secrets.
        spec=None if refusals else spec,
    )


def against_each_other(directories: Sequence[Sequence[SpecFile]]) -> list[SpecFile]:
    """The files of all directories, with the conflicts between them. A later directory takes precedence."""
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
        result.append(file._replace(overrides=over, harm=(*file.crashes, *at_odds, *over.values())))
    return result


def _with_conflicts(files: Sequence[SpecFile]) -> list[SpecFile]:
    """The files of one directory with their conflicts: runtimes drop a device that two files have.

    A refused file counts as having no devices, so it causes no conflict.
    """
    owners: dict[str, list[str]] = {}
    for file in files:
        if not file.refusals:
            for name in file.names:
                owners.setdefault(name, []).append(file.path)
    several = {name: paths for name, paths in owners.items() if len(paths) > 1}
    return [
        file._replace(
            conflicts={
                name: Problem(
                    "device " + name,
                    "is also defined in {}, and runtimes drop both: remove one".format(
                        ", ".join(p for p in paths if p != file.path)
                    ),
                )
                for name, paths in several.items()
                if file.path in paths
            }
        )
        for file in files
    ]


def _overrides(files: Sequence[SpecFile]) -> dict[str, dict[str, Problem]]:
    """The problems of each foreign file whose directory takes precedence over ours, by path.

    A container gets the foreign file's device instead of ours. If both files give the same edits, there is no problem.
    """
    winners: dict[str, SpecFile] = {}
    ours: dict[str, SpecFile] = {}
    gone = {name for file in files for name in file.conflicts}
    for file in files:
        for name in file.names:
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
            message = f"overrides the same name in {mine.path}, so that containers get the device of this file"
            result.setdefault(other.path, {})[name] = Problem("device " + name, message)
    return result


def _edits(file: SpecFile) -> dict[str, Any]:
    """The edits that containers get for each device, the kind's and its own; none if the file is not loaded."""
    spec = file.spec or {}
    result = {}
    for device in spec.get("devices") or []:
        edits = cdi.joined(spec.get("containerEdits") or {}, device.get("containerEdits") or {})
        result[qualified_cdi_name(file.kind, device["name"])] = {key: value for key, value in edits.items() if value}
    return result


def _unread(path: str, why: str, also: Sequence[Problem] = ()) -> SpecFile:
    return SpecFile(path, _owner(path), "", "", (), (*also, Problem("the file", why)))


def _owner(path: str) -> str:
    return OURS if os.path.basename(path).startswith(cdi.FILE_PREFIX) else FOREIGN
