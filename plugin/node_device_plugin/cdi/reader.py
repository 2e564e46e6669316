"""Reads the CDI specs of a node again and again, and parses them only after a change."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Optional

from ..support.file_identity import Identity, identity
from .directories import check_directories
from .resolution import Resolution, nodes_by_number, resolution

_Signature = tuple[tuple[tuple[str, Optional[Identity]], ...], Mapping[str, Optional[str]]]


class SpecReader:
    """Reads the specs of some directories. A later directory takes precedence.

    Reads the file system, so it must not run in the event loop.
    """

    def __init__(self, directories: Sequence[str], sysfs: str = "/sys") -> None:
        self.directories = tuple(dict.fromkeys(directories))
        self._sysfs = sysfs
        #: Replaced as a whole, because several threads may read.
        self._last: tuple[_Signature, Resolution] | None = None

    def read(self) -> Resolution:
        """The names in the specs. If no file and no node's number changed since the last read, the same object."""
        last, signature = self._last, self._look()
        if last is None or signature != last[0]:
            found = resolution(check_directories(self.directories, None), self._sysfs)
            last = self._last = (signature[0], found.by_number), found
        return last[1]

    def is_as_read(self) -> bool:
        """Whether the files are unchanged since the last read."""
        return self._last is not None and self._look() == self._last[0]

    def _look(self) -> _Signature:
        paths: list[str] = []
        for directory in self.directories:
            with contextlib.suppress(OSError):
                paths.extend(os.path.join(directory, name) for name in sorted(os.listdir(directory)))
        numbers = self._last[1].by_number if self._last else ()
        return tuple((path, identity(path)) for path in paths), nodes_by_number(numbers, self._sysfs)
