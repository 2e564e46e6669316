"""Whether a CDI name resolves in the specs that are really there, by the rules of the runtimes' own CDI library."""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Sequence, Tuple

from ...cdi.directories import MODE, SpecFile, check_directories
from ...declaration.names import qualified_cdi_name

_CONFLICT = "device "

_Signature = Tuple[Tuple[str, int, int, int], ...]


class CdiNames:
    """The devices of all specs. directories: a later one goes before an earlier one.

    It reads the file system: not for the event loop. Files are read again when they have changed.
    """

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = tuple(dict.fromkeys(directories))
        self._signature: Optional[_Signature] = None
        self._resolved: Dict[str, str] = {}
        self._broken: Dict[str, str] = {}

    def read(self) -> None:
        """Take in what is there now."""
        signature = self._look()
        if signature != self._signature:
            self._take_in(check_directories(self._directories, None))
            self._signature = signature

    def is_as_read(self) -> bool:
        """Whether what is there is what was read last."""
        return self._look() == self._signature

    def problem(self, name: str) -> Optional[str]:
        """Why a fully qualified name does not resolve, or None."""
        if name in self._resolved:
            return None
        why = self._broken.get(name)
        return "the CDI name %s is in no valid spec of %s%s" % (
            name,
            ", ".join(self._directories),
            ": " + why if why else "",
        )

    def _take_in(self, files: Sequence[SpecFile]) -> None:
        self._resolved, self._broken = {}, {}
        dropped: List[str] = []
        for file in files:
            problems = [problem for problem in file.problems if problem.where != MODE]
            names = [qualified_cdi_name(file.kind, device) for device in file.devices]
            conflicts = {problem.where[len(_CONFLICT) :] for problem in problems if _is_conflict(problem.where)}
            fatal = [problem for problem in problems if not _is_conflict(problem.where)]
            for name in names:
                if fatal:
                    self._broken[name] = "%s: %s" % (file.path, fatal[0])
                elif name in conflicts:
                    # Dropped even where a directory that goes before has it, too.
                    dropped.append(name)
                    self._broken[name] = "%s and another file of its directory both have it" % file.path
                else:
                    self._resolved[name] = file.path
        for name in dropped:
            self._resolved.pop(name, None)

    def _look(self) -> _Signature:
        found = []
        for directory in self._directories:
            try:
                entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
            except OSError:
                continue
            for entry in entries:
                try:
                    status = entry.stat()
                except OSError:
                    continue
                found.append((entry.path, status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)


def _is_conflict(where: str) -> bool:
    return where.startswith(_CONFLICT) and "=" in where
