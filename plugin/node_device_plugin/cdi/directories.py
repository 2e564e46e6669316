"""The spec directories of a node: each file by itself, and files against each other."""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

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
_CONFLICT = "device "
OURS, FOREIGN = "ours", "foreign"
#: Bytes; a larger file is nobody's spec.
_LARGEST = 16 << 20


class SpecFile(NamedTuple):
    """A file in a spec directory, and what is wrong with it.

    owner: OURS or FOREIGN. devices: their names. problems: for which runtimes refuse the file, or a device of it.
    harm: problems by which devices of ours do not reach their containers. spec: what the file says, if it is loaded.
    """

    path: str
    owner: str
    kind: str
    version: str
    devices: Tuple[str, ...]
    problems: Tuple[Problem, ...]
    harm: Tuple[Problem, ...] = ()
    spec: Optional[Mapping[str, Any]] = None

    @property
    def is_loaded(self) -> bool:
        """Whether runtimes load it, by what is known of the file alone."""
        return all(problem.where == MODE for problem in self.problems)

    @property
    def every_problem(self) -> Tuple[Problem, ...]:
        """Each once."""
        return tuple(dict.fromkeys((*self.problems, *self.harm)))


def check_directories(directories: Sequence[str], accepted: Optional[str]) -> List[SpecFile]:
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


def check_file(path: str, accepted: Optional[str]) -> SpecFile:
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
    problems = []
    if not found.st_mode & stat.S_IROTH:
        message = "%04o: others than its owner cannot read it; chmod 0644" % stat.S_IMODE(found.st_mode)
        problems.append(Problem(MODE, message))
    return check_content(path, content, accepted, problems)


def check_content(path: str, content: bytes, accepted: Optional[str], also: Sequence[Problem] = ()) -> SpecFile:
    """A file whose content was read before. also: problems that were seen then."""
    problems = list(also)
    if not path.endswith(_ENDINGS):
        problems.insert(0, Problem("the file's name", "ends in neither .json nor .yaml: runtimes ignore it; rename it"))
    try:
        spec = _parse(path, content)
    except (ValueError, RecursionError) as error:
        return _unread(path, "cannot be parsed: %s" % " ".join(str(error).split()), problems)
    wrong = list(spec_problems(spec, accepted))
    if wrong:
        # Only then: thousands of devices, as ours are, are not gone through once more.
        spec = as_read(spec, SPEC)
        wrong = list(spec_problems(spec, accepted))
    return of_spec(path, spec if isinstance(spec, dict) else {}, (*problems, *wrong))


def of_spec(path: str, spec: Mapping[str, Any], problems: Sequence[Problem] = (), owner: str = "") -> SpecFile:
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
        problems=tuple(problems),
        # What runtimes do not load may be anything, such as another program's secrets.
        spec=spec if all(problem.where == MODE for problem in problems) else None,
    )


def against_each_other(directories: Sequence[Sequence[SpecFile]]) -> List[SpecFile]:
    """The files of all directories, with what is wrong between them. A later directory goes before an earlier one."""
    files = [file for directory in directories for file in _with_conflicts(directory)]
    if not any(file.owner == FOREIGN for file in files):
        return [file._replace(harm=file.problems) for file in files]
    overrides = _overrides(files)
    return [
        file._replace(
            harm=file.problems
            if file.owner == OURS
            else (*(_at_odds_with_ours(file, files)), *overrides.get(file.path, ()))
        )
        for file in files
    ]


def _with_conflicts(files: Sequence[SpecFile]) -> List[SpecFile]:
    """The files of one directory: a device that two of them have is dropped from both.

    A file that is refused as a whole has no devices, and takes none from another.
    """
    owners: Dict[Tuple[str, str], List[str]] = {}
    for file in files:
        if file.is_loaded:
            for device in dict.fromkeys(file.devices):
                owners.setdefault((file.kind, device), []).append(file.path)
    several = {key: paths for key, paths in owners.items() if len(paths) > 1}
    return [
        file._replace(
            problems=(
                *file.problems,
                *(
                    Problem(
                        "device %s=%s" % (file.kind, device),
                        "is in %s, too: runtimes drop both" % ", ".join(p for p in paths if p != file.path),
                    )
                    for (_, device), paths in several.items()
                    if file.path in paths
                ),
            )
        )
        for file in files
    ]


def dropped(file: SpecFile) -> Dict[str, Problem]:
    """The qualified names that runtimes drop because another file of the directory has them, too."""
    return {problem.where[len(_CONFLICT) :]: problem for problem in file.problems if _is_conflict(problem.where)}


def fatal(file: SpecFile) -> List[Problem]:
    """The problems for which runtimes load nothing of the file."""
    return [problem for problem in file.problems if problem.where != MODE and not _is_conflict(problem.where)]


def _is_conflict(where: str) -> bool:
    return where.startswith(_CONFLICT) and "=" in where


def _at_odds_with_ours(file: SpecFile, files: Sequence[SpecFile]) -> Iterator[Problem]:
    """Why runtimes drop devices of ours for a file of others that stands in the same directory."""
    conflicts = dropped(file)
    if conflicts:
        directory = os.path.dirname(file.path)
        beside = [each for each in files if each.owner == OURS and os.path.dirname(each.path) == directory]
        ours = {name for each in beside for name in dropped(each)}
        yield from (problem for name, problem in conflicts.items() if name in ours)


def _overrides(files: Sequence[SpecFile]) -> Dict[str, List[Problem]]:
    """By its path, why a file of others takes the place of ours: its directory goes before that of ours.

    A container then gets what that file says. Where that is the very same, nothing is wrong.
    """
    winners: Dict[str, SpecFile] = {}
    ours: Dict[str, SpecFile] = {}
    gone = {name for file in files for name in dropped(file)}
    for file in files:
        for device in file.devices:
            name = qualified_cdi_name(file.kind, device)
            if file.owner == OURS:
                ours[name] = file
            if not fatal(file):
                winners[name] = file
    result: Dict[str, List[Problem]] = {}
    edits: Dict[str, Dict[str, Any]] = {}
    for name, mine in ours.items():
        other = winners.get(name)
        if other is None or other.owner == OURS or name in gone:
            continue
        for file in (mine, other):
            if file.path not in edits:
                edits[file.path] = _edits(file)
        if edits[mine.path].get(name) != edits[other.path].get(name):
            message = "overrides that of %s: containers get the device of this file" % mine.path
            result.setdefault(other.path, []).append(Problem(_CONFLICT + name, message))
    return result


def _edits(file: SpecFile) -> Dict[str, Any]:
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
        return read_yaml(content)
    try:
        return read_json(content)
    except ValueError as error:
        try:
            return read_yaml(content)
        except ValueError:
            raise error from None


def _unread(path: str, why: str, also: Sequence[Problem] = ()) -> SpecFile:
    return SpecFile(path, _owner(path), "", "", (), (*also, Problem("the file", why)))


def _owner(path: str) -> str:
    return OURS if os.path.basename(path).startswith(cdi.FILE_PREFIX) else FOREIGN
