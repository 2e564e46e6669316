"""Reads the CDI specs of a node again and again: only files of wanted kinds, each once, and again after a change."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from typing import NamedTuple

from ..support.directory_names import by_precedence
from ..support.file_identity import Identity, identity
from .directories import SpecFile, check_file, spec_paths
from .resolution import NO_SPECS, Resolution, nodes_by_number

#: By path and identity, the files that some reader of this process needs. A file that no reader needs is not kept.
_PARSED: MutableMapping[tuple[str, Identity | None], SpecFile] = weakref.WeakValueDictionary()


class _Last(NamedTuple):
    """The last read. seen: the identity of each file, by path. files: those of the wanted kinds."""

    seen: Mapping[str, Identity | None]
    files: Mapping[str, SpecFile]
    resolution: Resolution


_UNREAD = _Last({}, {}, NO_SPECS)


class SpecReader:
    """Reads the specs of some directories. A later directory takes precedence.

    Reads the file system, so it must not run in the event loop.
    """

    def __init__(self, directories: Sequence[str], sysfs: str = "/sys") -> None:
        self.directories = tuple(by_precedence(directories))
        self._sysfs = sysfs
        #: Replaced as a whole, because several threads may read.
        self._last = _UNREAD

    def read(self, kinds: Collection[str]) -> Resolution:
        """The names of these kinds in the specs. Without kinds, no file is read.

        If no kind, file of the kinds or node's number changed since the last read, the result is the same object.
        """
        last, wanted = self._last, frozenset(kinds)
        seen = self._present(wanted)
        every = (_file(path, now, wanted, last) for path, now in seen.items())
        files = {file.path: file for file in every if file is not None}
        found = last.resolution
        if (wanted, files) != (found.kinds, last.files) or not self._has_same_numbers(found):
            found = Resolution(files.values(), wanted, self._sysfs)
        self._last = _Last(seen, files, found)
        return found

    def is_as_read(self) -> bool:
        """Whether the files are unchanged since the last read."""
        last = self._last
        if last is _UNREAD:
            return False
        return self._present(last.resolution.kinds) == last.seen and self._has_same_numbers(last.resolution)

    def _present(self, kinds: Collection[str]) -> dict[str, Identity | None]:
        seen: dict[str, Identity | None] = {}
        for directory in self.directories if kinds else ():
            with contextlib.suppress(OSError):
                seen.update((path, identity(path)) for path in spec_paths(directory))
        return seen

    def _has_same_numbers(self, found: Resolution) -> bool:
        return nodes_by_number(found.by_number, self._sysfs) == found.by_number


def _file(path: str, now: Identity | None, kinds: frozenset[str], last: _Last) -> SpecFile | None:
    """The file; None if it is of another kind. now: its identity."""
    found = _PARSED.get((path, now))
    is_known = kinds <= last.resolution.kinds and last.seen.get(path, ()) == now
    if found is None and not is_known:
        found = check_file(path, None, kinds)
    if found is None or found.kind not in kinds:
        return None
    _PARSED[path, now] = found
    return found
