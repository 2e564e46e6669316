"""Checks whether a CDI name resolves in the existing specs, by the rules of the runtimes' own CDI library."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import NamedTuple, Optional

from ...cdi.directories import SpecFile, check_directories
from ...declaration.names import qualified_cdi_name
from ...support.bounded_calls import Key
from ...support.file_identity import Identity, identity
from ..reason import Reason

_Signature = tuple[tuple[str, Optional[Identity]], ...]


class _Names(NamedTuple):
    """resolved: fully qualified names, each with its file. broken: names that do not resolve, each with the reason.

    overridden: names for which containers would get another device, each with the reason.
    """

    resolved: dict[str, str]
    broken: dict[str, str]
    overridden: dict[str, str]


class CdiNames:
    """The devices of all specs. directories: a later directory takes precedence.

    Reads the file system, so it must not run in the event loop. Reads the files again only after a change.
    """

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = tuple(dict.fromkeys(directories))
        #: The key of the call that reads the specs; its group is empty, because no resource has an empty name.
        self.key = Key("", "CDI specs of " + " ".join(self._directories))
        #: The files read last and their names. Replaced as a whole, because device checks run meanwhile.
        self._read: tuple[_Signature, _Names] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the specs were ever read."""
        return self._read is not None

    def read(self) -> None:
        """Read the specs again if any file changed."""
        signature = self._look()
        if self._read is None or signature != self._read[0]:
            self._read = signature, _names(check_directories(self._directories, None))

    def is_as_read(self) -> bool:
        """Whether the files are unchanged since the last read."""
        return self._read is not None and self._look() == self._read[0]

    def problem(self, name: str) -> str | None:
        """Why a fully qualified name does not resolve, or resolves to a foreign device; None if all is well."""
        names = self._read[1] if self._read is not None else _names(())
        if name in names.resolved:
            return names.overridden.get(name)
        why, places = names.broken.get(name), "is in no valid spec of {}".format(", ".join(self._directories))
        return Reason("the CDI name {} {}{}".format(name, places, ": " + why if why else ""), "the CDI name " + places)

    def _look(self) -> _Signature:
        paths: list[str] = []
        for directory in self._directories:
            with contextlib.suppress(OSError):
                paths.extend(os.path.join(directory, name) for name in sorted(os.listdir(directory)))
        return tuple((path, identity(path)) for path in paths)


def _names(files: Sequence[SpecFile]) -> _Names:
    names = _Names({}, {}, {})
    conflicts = {name: file.path for file in files for name in file.conflicts}
    for file in files:
        for device in file.devices:
            name = qualified_cdi_name(file.kind, device)
            if file.refusals:
                names.broken[name] = f"{file.path}: {file.refusals[0]}"
            elif name not in conflicts:
                names.resolved[name] = file.path
        for name, why in file.overrides.items():
            names.overridden[name] = Reason(f"{file.path}: {why}", file.path)
    for name, path in conflicts.items():
        # Runtimes drop the name even if a directory with precedence has it, too.
        names.broken[name] = f"{path} and another file in its directory both define this name"
    return names
