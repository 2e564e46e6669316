"""The file system that discovery reads: the node's own, or a copy of parts of it below another directory."""

from __future__ import annotations

import glob
import os
import stat
from typing import Dict, List, Optional

from ..table import natural_order

#: As many links as the kernel follows (path_resolution(7)).
_MOST_LINKS = 40


class Root:
    """Paths are given and returned as seen from inside of ``path``; links stay inside of it. For one look: it caches.

    Below another directory than ``/`` plain files stand for device nodes, which not everybody may make.
    """

    def __init__(self, path: str = "/") -> None:
        self._prefix = "" if path == "/" else os.path.normpath(path)
        self._directories: Dict[str, Optional[str]] = {}

    def glob(self, pattern: str) -> List[str]:
        """What is there by a pattern (of declaration.patterns, without placeholders), as people count."""
        found = glob.glob(glob.escape(self._prefix) + pattern)
        return sorted((path[len(self._prefix) :] for path in found), key=natural_order)

    def names(self, directory: str) -> List[str]:
        """The entries of a directory; none where it is not there."""
        try:
            return os.listdir(self._prefix + directory)
        except OSError:
            return []

    def text(self, path: str) -> str:
        """A small file's text without white space around it; empty where it cannot be read, as sysfs sometimes says."""
        try:
            with open(self._prefix + path, encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return ""

    def resolve(self, path: str) -> Optional[str]:
        """The path without links; None where links lead in a circle. What it leads to need not be there."""
        for _ in range(_MOST_LINKS + 1):
            directory, name = os.path.split(path)
            if name in ("", ".", ".."):
                return self._directory(path)
            base = self._directory(directory)
            if base is None:
                return None
            path = "%s/%s" % (base, name)
            try:
                target = os.readlink(self._prefix + path)
            except OSError:
                return path
            path = os.path.join(base + "/", target)
        return None

    def _directory(self, path: str) -> Optional[str]:
        if path not in self._directories:
            self._directories[path] = self._walk(path)
        return self._directories[path]

    def _walk(self, path: str) -> Optional[str]:
        pending = [part for part in path.split("/") if part][::-1]
        resolved, links = "", 0
        while pending:
            name = pending.pop()
            if name in (".", ".."):
                resolved = os.path.dirname(resolved).rstrip("/") if name == ".." else resolved
                continue
            step = "%s/%s" % (resolved, name)
            try:
                target = os.readlink(self._prefix + step)
            except OSError:
                resolved = step
                continue
            links += 1
            if links > _MOST_LINKS:
                return None
            if target.startswith("/"):
                resolved = ""
            pending.extend([part for part in target.split("/") if part][::-1])
        return resolved

    def is_link(self, path: str) -> bool:
        """Whether the path itself is a symbolic link."""
        return os.path.islink(self._prefix + path)

    def link_name(self, path: str) -> Optional[str]:
        """The last part of what a symbolic link leads to; None where the path is no link."""
        try:
            return os.path.basename(os.readlink(self._prefix + path))
        except OSError:
            return None

    def device_number(self, path: str) -> str:
        """The name of a device node below /sys/dev, such as ``char/1:3``; empty where there is none."""
        try:
            found = os.stat(self._prefix + path)
        except OSError:
            return ""
        kind = "block" if stat.S_ISBLK(found.st_mode) else "char"
        return "%s/%d:%d" % (kind, os.major(found.st_rdev), os.minor(found.st_rdev))

    def device_node(self, path: str) -> Optional[str]:
        """The character or block device that a path leads to, without links; None where it does not."""
        directory, name = os.path.split(path)
        base = self._directory(directory)
        if base is None:
            return None
        resolved: Optional[str] = "%s/%s" % (base, name)
        try:
            # Most are no links: one question to the kernel, for thousands of nodes.
            mode = os.lstat("%s%s" % (self._prefix, resolved)).st_mode
            if stat.S_ISLNK(mode):
                resolved = self.resolve(path)
                if resolved is None:
                    return None
                mode = os.stat(self._prefix + resolved).st_mode
        except OSError:
            return None
        is_node = stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or (bool(self._prefix) and stat.S_ISREG(mode))
        return resolved if is_node else None
