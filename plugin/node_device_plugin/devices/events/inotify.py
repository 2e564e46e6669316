"""Watches directories with inotify(7), through the C library instead of a package."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct
from collections.abc import Iterable
from typing import Callable

from ...support.bounded_calls import BoundedCalls, Key

_ADD_OR_REMOVE = 0x00000040 | 0x00000080 | 0x00000100 | 0x00000200  # IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE
_CLOSE_WRITE = 0x00000008
_SELF = 0x00000400 | 0x00000800  # IN_DELETE_SELF, IN_MOVE_SELF
_ONLYDIR = 0x01000000
_MASK_ADD = 0x20000000
_OVERFLOW = 0x00004000
_IGNORED = 0x00008000
_MOVE_SELF = 0x00000800
_ENTRIES = _ADD_OR_REMOVE | _SELF | _ONLYDIR
#: Represents an unknown directory in a set of changed directories; not a path.
UNKNOWN = ""
_HEADER = struct.Struct("iIII")
_READ_SIZE = 1 << 16
_Add = Callable[[], tuple[int, int]]


class Inotify:
    """Reports that an entry of a watched directory was created, removed or renamed.

    Raises OSError if no inotify instance is left. fileno(): readable after an event.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, "inotify: " + os.strerror(number))
        self._descriptors: dict[str, int] = {}
        self._of_files: frozenset[str] = frozenset()

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)

    @property
    def watched(self) -> set[str]:
        """The directories that are being watched."""
        return set(self._descriptors)

    def watch_now(self, directories: Iterable[str]) -> list[str]:
        """Like ``watch``, for directories that never hang."""
        due = self._due(directories, ())
        return self._taken_in((path, add()) for path, add in due)

    async def watch(self, directories: Iterable[str], of_files: Iterable[str], calls: BoundedCalls) -> list[str]:
        """Watch these directories and no others; skip missing or hanging directories.

        of_files: directories in which a write to a file also counts. Never pass directories of
        device nodes, where writes happen all the time. calls: runs the calls to the kernel.

        Returns a message for each directory that cannot be watched because of a kernel limit
        (fs.inotify.max_user_watches) or another error.
        """
        answers = await calls.run([(Key(path, "inotify"), add) for path, add in self._due(directories, of_files)])
        return self._taken_in((key.group, each) for key, each in answers.items() if not isinstance(each, Exception))

    def _due(self, directories: Iterable[str], of_files: Iterable[str]) -> list[tuple[str, _Add]]:
        files = frozenset(of_files)
        wanted = files.union(directories)
        # A mask loses nothing, so all watches end if files of a directory no longer count.
        for path in self.watched - (wanted if files >= self._of_files else frozenset()):
            self._leave(path)
        self._of_files = files
        # Add every directory each time, because a link in its path may change without an event. Two paths may lead to
        # one directory, and a slow call may be overtaken, so only a path with files sets the whole mask.
        return [
            (path, functools.partial(self._add, path, _ENTRIES | (_CLOSE_WRITE if path in files else _MASK_ADD)))
            for path in sorted(wanted)
        ]

    def _add(self, path: str, mask: int) -> tuple[int, int]:
        """The descriptor (< 0: error) and errno. Until ``_taken_in``, its events are UNKNOWN."""
        descriptor = self._libc.inotify_add_watch(self._fd, os.fsencode(path), ctypes.c_uint32(mask))
        return descriptor, ctypes.get_errno()

    def _taken_in(self, answers: Iterable[tuple[str, tuple[int, int]]]) -> list[str]:
        refused = []
        for path, (descriptor, number) in answers:
            if self._descriptors.get(path, descriptor) != descriptor:
                self._leave(path)
            if descriptor >= 0:
                self._descriptors[path] = descriptor
            elif number == errno.ENOSPC:
                refused.append(f"inotify: {os.strerror(number)}: raise fs.inotify.max_user_watches")
            elif number not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
                refused.append(f"{path}: inotify: {os.strerror(number)}")
        return refused

    def _leave(self, path: str) -> None:
        descriptor = self._descriptors.pop(path)
        if descriptor not in self._descriptors.values():
            self._libc.inotify_rm_watch(self._fd, descriptor)

    def read(self) -> set[str]:
        """Read all events. Returns the changed directories, with UNKNOWN for an unknown directory.

        The end of a removed watch is not a change. A removed or renamed directory is no longer
        watched. If the kernel dropped events (fs.inotify.max_queued_events), a removal may be lost.
        All watches therefore end until the next ``watch``.
        """
        news: set[str] = set()
        while True:
            try:
                events = os.read(self._fd, _READ_SIZE)
            except BlockingIOError:
                return news
            position = 0
            while position < len(events):
                descriptor, mask, _cookie, length = _HEADER.unpack_from(events, position)
                position += _HEADER.size + length
                if not mask & _IGNORED:
                    paths = {path for path, known in self._descriptors.items() if known == descriptor}
                    news.update(paths or {UNKNOWN})
                if mask & _OVERFLOW:
                    for path in self.watched:
                        self._leave(path)
                elif mask & (_IGNORED | _MOVE_SELF):
                    if mask & _MOVE_SELF:
                        self._libc.inotify_rm_watch(self._fd, descriptor)
                    self._descriptors = {p: d for p, d in self._descriptors.items() if d != descriptor}
