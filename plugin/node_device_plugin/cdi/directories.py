"""Checks the spec directories of a node, each file alone. ``resolution`` looks at the files beside each other."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..declaration import Problem, cdi
from ..declaration.names import qualified_cdi_name
from ..support import bounded_reads, directory_names
from . import readings
from .fields import Crash
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
#: In double quotes, an escape may stand for a character of a kind, and an escaped line break for nothing (YAML 1.2.2,
#: 5.7 and 7.3.1; RFC 8259, 7). YAML 1.1 has more line breaks: U+0085, U+2028 and U+2029.
_ESCAPED = re.compile(rb"\\[xuU/\r\n\xc2\xe2]")
#: The zero bytes of UTF-16 and UTF-32, and all ways to write the tag of base64 (YAML 1.2.2, 6.8.2 and 6.9.1).
_ENCODED = (b"\0", b"!!", b"!<", b"%TAG")


@dataclasses.dataclass(frozen=True)
class SpecFile:
    """A file in a spec directory, with its own problems.

    owner: OURS or FOREIGN. devices: their names. refusals: problems for which runtimes load nothing of the file.
    warnings: not every user can read the file, and text that runtimes read differently. unclear: qualified names that
    the file has for some runtimes only, each with its warning. spec: the content of the file, if runtimes load it.
    """

    path: str
    owner: str
    kind: str = ""
    version: str = ""
    devices: tuple[str, ...] = ()
    refusals: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    unclear: Mapping[str, Problem] = dataclasses.field(default_factory=dict)
    spec: Mapping[str, Any] | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems for which runtimes refuse the file, and the warnings."""
        return (*self.warnings, *self.refusals)

    @property
    def crashes(self) -> tuple[Crash, ...]:
        """The problems for which a runtime with CDI crashes at its start, because it reads every file."""
        return tuple(problem for problem in self.refusals if isinstance(problem, Crash))

    @property
    def names(self) -> Iterable[str]:
        """The qualified names of the devices, each once; an unclear one in each reading."""
        return dict.fromkeys([*(qualified_cdi_name(self.kind, device) for device in self.devices), *self.unclear])

    @functools.cached_property
    def edits(self) -> Mapping[str, Mapping[str, Any]]:
        """The edits of each device by its qualified name, without those of its kind; none if the file is refused."""
        return edits_by_name(self.spec or {})

    def given(self, name: str) -> dict[str, Any] | None:
        """What a container gets for a name, with the edits of its kind; None if the file does not have the device."""
        own = self.edits.get(name)
        every = cdi.joined((self.spec or {}).get("containerEdits") or {}, own or {})
        return None if own is None else {key: value for key, value in every.items() if value}


def edits_by_name(spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The edits of each device of a spec, by fully qualified name, without those of its kind."""
    kind, devices = str(spec.get("kind")), spec.get("devices") or ()
    return {qualified_cdi_name(kind, device["name"]): device.get("containerEdits") or {} for device in devices}


def check_directories(directories: Sequence[str], accepted: str | None) -> list[SpecFile]:
    """Every file of the spec directories, in order of precedence: a later directory takes precedence.

    A missing directory is no problem. accepted: see spec_problems.
    """
    files = []
    for directory in directory_names.by_precedence(directories):
        try:
            files += [check_file(path, accepted) for path in spec_paths(directory)]
        except FileNotFoundError:
            continue
        except OSError as error:
            files.append(_unread(directory, error.strerror or str(error)))
    return files


def spec_paths(directory: str) -> list[str]:
    """The paths of the directory's files that are specs by their names. Raises OSError.

    Runtimes skip a directory in it, but not a link to one.
    """
    with os.scandir(directory) as entries:
        found = [each for each in entries if each.name.endswith(_SEEN) and not each.is_dir(follow_symlinks=False)]
    return [os.path.join(directory, name) for name in sorted(each.name for each in found)]


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
        return SpecFile(path, _owner(path))
    checked = check_content(path, content, accepted)
    if found.st_mode & stat.S_IROTH:
        return checked
    message = f"{stat.S_IMODE(found.st_mode):04o}: other users cannot read the file: run chmod 0644"
    return dataclasses.replace(checked, warnings=(Problem(MODE, message), *checked.warnings))


def may_have(content: bytes, kinds: Collection[str]) -> bool:
    """Whether the content of a file may give one of these kinds. If not, it gives none of them, however it is written.

    This saves parsing: YAML of a megabyte takes a second. A kind is ASCII text without line breaks. So a file that
    gives the kind contains it byte for byte, unless the file escapes or encodes it.
    """
    marks = (*(kind.encode() for kind in kinds), *_ENCODED)
    return any(mark in content for mark in marks) or _ESCAPED.search(content) is not None


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
    unclear = {} if file.refusals else found.names
    return dataclasses.replace(file, warnings=tuple(found.unclear), unclear=unclear)


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


def _unread(path: str, why: str, also: Sequence[Problem] = ()) -> SpecFile:
    return SpecFile(path, _owner(path), refusals=(*also, Problem("the file", why)))


def _owner(path: str) -> str:
    return OURS if os.path.basename(path).startswith(cdi.FILE_PREFIX) else FOREIGN
