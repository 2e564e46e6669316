"""The spec directories of a node: each file by itself, and files against each other."""

from __future__ import annotations

import os
import stat
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..declaration import Problem, cdi
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
#: Bytes; a larger file is nobody's spec.
_LARGEST = 16 << 20


class SpecFile(NamedTuple):
    """A file in a spec directory, and what is wrong with it. owner: ours or foreign. devices: their names."""

    path: str
    owner: str
    kind: str
    version: str
    devices: Tuple[str, ...]
    problems: Tuple[Problem, ...]


def check_directories(directories: Sequence[str], accepted: Optional[str]) -> List[SpecFile]:
    """Every file of the spec directories. One that is not there is no problem. accepted: see spec_problems."""
    files = []
    for directory in directories:
        try:
            names = sorted(os.listdir(directory))
        except FileNotFoundError:
            continue
        except OSError as error:
            files.append(_unread(directory, error.strerror or str(error)))
            continue
        here = [check_file(os.path.join(directory, name), accepted) for name in names if name.endswith(_SEEN)]
        files.extend(_with_conflicts(here))
    return files


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
    if not path.endswith(_ENDINGS):
        problems.append(Problem("the file's name", "ends in neither .json nor .yaml: runtimes ignore it; rename it"))
    if not found.st_mode & stat.S_IROTH:
        message = "%04o: others than its owner cannot read it; chmod 0644" % stat.S_IMODE(found.st_mode)
        problems.append(Problem(MODE, message))
    try:
        spec = _parse(path, content)
    except (ValueError, RecursionError) as error:
        return _unread(path, "cannot be parsed: %s" % " ".join(str(error).split()), problems)
    wrong = list(spec_problems(spec, accepted))
    if wrong:
        # Only then: thousands of devices, as ours are, are not gone through once more.
        spec = as_read(spec, SPEC)
        wrong = list(spec_problems(spec, accepted))
    problems.extend(wrong)
    described = spec if isinstance(spec, dict) else {}
    listed = described.get("devices")
    return SpecFile(
        path=path,
        owner=_owner(path),
        kind=str(described.get("kind", "")),
        version=str(described.get("cdiVersion", "")),
        devices=tuple(
            str(device["name"])
            for device in (listed if isinstance(listed, list) else [])
            if isinstance(device, dict) and "name" in device
        ),
        problems=tuple(problems),
    )


def _with_conflicts(files: Sequence[SpecFile]) -> List[SpecFile]:
    """The files of one directory: a device that two of them have is dropped from both.

    A file that is refused as a whole has no devices, and takes none from another.
    """
    owners: Dict[Tuple[str, str], List[str]] = {}
    for file in files:
        if all(problem.where == MODE for problem in file.problems):
            for device in dict.fromkeys(file.devices):
                owners.setdefault((file.kind, device), []).append(file.path)
    return [
        file._replace(
            problems=(
                *file.problems,
                *(
                    Problem(
                        "device %s=%s" % (file.kind, device),
                        "is in %s, too: runtimes drop both" % ", ".join(p for p in paths if p != file.path),
                    )
                    for (_, device), paths in owners.items()
                    if file.path in paths and len(paths) > 1
                ),
            )
        )
        for file in files
    ]


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
    return "ours" if os.path.basename(path).startswith(cdi.FILE_PREFIX) else "foreign"
