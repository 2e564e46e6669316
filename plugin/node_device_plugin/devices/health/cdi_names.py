"""Whether a CDI name resolves in the specs that are really there, by the rules of the runtimes' own CDI library."""

from __future__ import annotations

import os
from typing import Dict, Optional, Sequence, Tuple

from ...cdi.directories import SpecFile, check_directories, dropped, fatal
from ...declaration.names import qualified_cdi_name

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
        #: Where a problem is, to the problem: containers would get another device.
        self._overridden: Dict[str, str] = {}

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
        """Why a fully qualified name does not resolve, or resolves to what is not ours; or None."""
        if name in self._resolved:
            return self._overridden.get("device " + name)
        why = self._broken.get(name)
        return "the CDI name %s is in no valid spec of %s%s" % (
            name,
            ", ".join(self._directories),
            ": " + why if why else "",
        )

    def _take_in(self, files: Sequence[SpecFile]) -> None:
        self._resolved, self._broken, self._overridden = {}, {}, {}
        conflicts = {name: file.path for file in files for name in dropped(file)}
        for file in files:
            wrong = fatal(file)
            for device in file.devices:
                name = qualified_cdi_name(file.kind, device)
                if wrong:
                    self._broken[name] = "%s: %s" % (file.path, wrong[0])
                elif name not in conflicts:
                    self._resolved[name] = file.path
            for problem in file.harm:
                if problem not in file.problems:
                    self._overridden[problem.where] = "%s: %s" % (file.path, problem)
        for name, path in conflicts.items():
            # Dropped even where a directory that goes before has it, too.
            self._broken[name] = "%s and another file of its directory both have it" % path

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
