"""The file system that discovery reads: the node's own, or a partial copy below another directory."""

from __future__ import annotations

import contextlib
import glob
import os
import stat
from collections.abc import Sequence

from ...cdi.resolution import NO_SPECS, Resolution
from ..table import natural_order

#: PATH_MAX of Linux, in bytes.
_LONGEST_PATH = 4096


class Root:
    """Takes and returns paths inside the root ``path``; links resolve inside it. It caches, so make one Root per scan.

    spec_dirs: where the runtime reads CDI specs. specs: other programs' specs, as last read. If ``path`` is not ``/``,
    regular files stand for device nodes, because making device nodes needs root.
    """

    def __init__(self, path: str = "/", spec_dirs: Sequence[str] = (), specs: Resolution = NO_SPECS) -> None:
        self.spec_dirs, self.specs = spec_dirs, specs
        self._prefix = "" if path == "/" else os.path.normpath(path)
        self._resolved: dict[str, str | None] = {}

    def glob(self, pattern: str) -> list[str]:
        """The existing paths that match a pattern (see declaration.patterns; no placeholders), in natural order."""
        if not _is_path(pattern):
            return []
        found = glob.glob(glob.escape(self._prefix) + pattern)
        return sorted((path[len(self._prefix) :] for path in found), key=natural_order)

    def on_host(self, path: str) -> str:
        """The path outside of the root."""
        return self._prefix + path

    def names(self, directory: str) -> list[str]:
        """The entries of a directory; none if the directory cannot be read."""
        try:
            return os.listdir(self._prefix + directory)
        except OSError:
            return []

    def text(self, path: str) -> str:
        """A small file's text, stripped; empty if the file cannot be read, because sysfs may return an error."""
        try:
            with open(self._prefix + path, encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return ""

    def resolve(self, path: str) -> str | None:
        """The path with links resolved; None if links form a loop. The target need not exist."""
        if not _is_path(path):
            return None
        if path not in self._resolved:
            # If links reach this path again before it is resolved, they form a loop and get this None.
            self._resolved[path] = None
            with contextlib.suppress(RecursionError):
                self._resolved[path] = self._follow(path)
        return self._resolved[path]

    def _follow(self, path: str) -> str | None:
        directory, name = os.path.split(path.rstrip("/"))
        if not name:
            return ""
        base = self.resolve(directory)
        if base is None or name == ".":
            return base
        if name == "..":
            return os.path.dirname(base).rstrip("/")
        step = f"{base}/{name}"
        try:
            target = os.readlink(self._prefix + step)
        except OSError:
            return step
        return self.resolve(os.path.join(base + "/", target))

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a symbolic link."""
        return os.path.islink(self._prefix + path)

    def is_directory(self, path: str) -> bool:
        """Whether the path leads to a directory."""
        return os.path.isdir(self._prefix + (self.resolve(path) or path))

    def exists(self, path: str) -> bool:
        """Whether the path leads to anything."""
        resolved = self.resolve(path)
        return resolved is not None and os.path.lexists(self._prefix + resolved)

    def link_name(self, path: str) -> str | None:
        """The last part of a symbolic link's target; None if the path is not a link."""
        try:
            return os.path.basename(os.readlink(self._prefix + path))
        except OSError:
            return None

    def stat(self, path: str) -> os.stat_result | None:
        """The status of what a path leads to; None if it leads to nothing."""
        try:
            return os.stat(self._prefix + path)
        except (OSError, ValueError):
            return None

    def device_number(self, path: str) -> str:
        """The name of a device node below /sys/dev, such as ``char/1:3``; empty if the path does not exist."""
        found = self.stat(path)
        return "" if found is None else device_number(found)

    def device_node(self, path: str) -> str | None:
        """The character or block device that a path leads to, with links resolved; None if there is none."""
        directory, name = os.path.split(path)
        base = self.resolve(directory) if _is_path(path) else None
        if base is None:
            return None
        resolved: str | None = f"{base}/{name}"
        try:
            # Most paths are not links, so one lstat is enough for each of thousands of nodes.
            mode = os.lstat(f"{self._prefix}{resolved}").st_mode
            if stat.S_ISLNK(mode):
                resolved = self.resolve(path)
                if resolved is None:
                    return None
                mode = os.stat(self._prefix + resolved).st_mode
        except OSError:
            return None
        is_node = stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or (bool(self._prefix) and stat.S_ISREG(mode))
        return resolved if is_node else None


def device_number(node: os.stat_result) -> str:
    """The name of a device node below /sys/dev, such as ``char/1:3``."""
    kind = "block" if stat.S_ISBLK(node.st_mode) else "char"
    return "%s/%d:%d" % (kind, os.major(node.st_rdev), os.minor(node.st_rdev))


def _is_path(text: str) -> bool:
    """Whether a path can exist. Other programs' CDI specs may have any text as a path."""
    return "\0" not in text and len(text) < _LONGEST_PATH
