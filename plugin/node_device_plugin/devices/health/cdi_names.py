"""Checks whether a container can get the device of a CDI name."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from ...cdi.directories import check_directories
from ...cdi.resolution import HostPath, Resolution, resolution
from ...declaration.named_directories import HIDDEN
from ...support.bounded_calls import Key
from ...support.file_identity import Identity, identity
from ..reason import Reason

#: Directories that the service's unit hides from the plugin (HIDDEN, ProtectHome and PrivateTmp).
_HIDDEN = (*HIDDEN, "/home", "/root", "/tmp", "/var/tmp")  # noqa: S108 - only compared
#: A variable of every pod; a pod sees only the directories that it mounts.
_POD_VARIABLE = "KUBERNETES_SERVICE_HOST"
_Signature = tuple[tuple[str, Optional[Identity]], ...]


class _Read(NamedTuple):
    """The specs as they were read. paths: the host paths of other programs' devices, by fully qualified name."""

    signature: _Signature
    names: Resolution
    paths: Mapping[str, tuple[HostPath, ...]]


class CdiNames:
    """The devices of all specs. directories: a later directory takes precedence.

    Reads the file system, so it must not run in the event loop. Reads the files again only after a change.
    """

    def __init__(self, directories: Sequence[str]) -> None:
        self._directories = tuple(dict.fromkeys(directories))
        #: The key of the call that reads the specs; its group is empty, because no resource has an empty name.
        self.key = Key("", "CDI specs of " + " ".join(self._directories))
        #: Replaced as a whole, because device checks run meanwhile.
        self._read: _Read | None = None

    @property
    def is_known(self) -> bool:
        """Whether the specs were ever read."""
        return self._read is not None

    def read(self) -> None:
        """Read the specs again if any file changed."""
        signature = self._look()
        if self._read is None or signature != self._read.signature:
            names = resolution(check_directories(self._directories, None))
            self._read = _Read(signature, names, names.foreign_paths())

    def is_as_read(self) -> bool:
        """Whether the files are unchanged since the last read."""
        return self._read is not None and self._look() == self._read.signature

    def problem(self, name: str) -> str | None:
        """Why a container cannot get the device of a fully qualified name, or would get another one; None if it can."""
        read = self._read or _Read((), resolution(()), {})
        names = read.names
        if name in names.files:
            if name in names.overridden:
                path, why = names.overridden[name]
                return Reason(why, path)
            return next((_missing(name, each) for each in read.paths.get(name, ()) if not _exists(each)), None)
        places = "is in no valid spec of {}".format(", ".join(self._directories))
        broken = names.broken.get(name)
        why = f": {broken}" if broken else ""
        return Reason(f"the CDI name {name} {places}{why}", "the CDI name " + places)

    def _look(self) -> _Signature:
        paths: list[str] = []
        for directory in self._directories:
            with contextlib.suppress(OSError):
                paths.extend(os.path.join(directory, name) for name in sorted(os.listdir(directory)))
        return tuple((path, identity(path)) for path in paths)


def _missing(name: str, each: HostPath) -> Reason:
    what = "is no device node" if each.what == "device node" and os.path.lexists(each.path) else "does not exist"
    why = f"the {each.what} of its CDI spec {what}"
    return Reason(f"{each.path}: {why}, so no container with {name} starts: generate the spec again", why)


def _exists(each: HostPath) -> bool:
    """Whether a container's start would find the path; True for a path that the plugin's sandbox hides."""
    if not each.is_needed:
        return True
    if each.what == "device node":
        with contextlib.suppress(OSError):
            # The CDI library follows no link.
            mode = os.lstat(each.path).st_mode
            return stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode)
        return not each.path.startswith("/dev/")
    if os.environ.get(_POD_VARIABLE) or any(each.path.startswith(hidden + "/") for hidden in _HIDDEN):
        return True
    return os.path.exists(each.path)
