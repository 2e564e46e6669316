"""The file system that discovery reads: the node's own, or a copy of parts of it below another directory."""

from __future__ import annotations

import glob
import os
import stat
from typing import Dict, List, Optional

from ..device_table import natural_order

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
        directory, name = os.path.split(path)
        if directory not in self._directories:
            self._directories[directory] = self._walk(directory)
        base = self._directories[directory]
        return None if base is None else self._walk(name, base)

    def _walk(self, path: str, base: str = "") -> Optional[str]:
        pending = [part for part in path.split("/") if part][::-1]
        resolved, links = base, 0
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

    def is_device_node(self, path: str) -> bool:
        """Whether a path, links followed, is a character or block device."""
        resolved = self.resolve(path)
        if resolved is None:
            return False
        try:
            mode = os.stat(self._prefix + resolved).st_mode
        except OSError:
            return False
        return stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or (bool(self._prefix) and stat.S_ISREG(mode))
