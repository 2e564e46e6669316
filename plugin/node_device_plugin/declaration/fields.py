"""Rules for single fields that several parts of a declaration have; what does not fit is appended to ``problems``."""

from __future__ import annotations

import os
import re
from typing import Any, List, Optional

from .problems import Problem

#: Characters with a meaning of their own in systemd's units or in a pod's mounts.
_SPECIAL = frozenset(":%$;\\'\"")


def absolute(path: Any, where: str, problems: List[Problem]) -> None:
    """A path has to be absolute, in its shortest form, and none of the root directory; None is left out."""
    if path is None:
        return
    if path == "/":
        problems.append(Problem(where, "must not be the root directory"))
    # POSIX leaves two slashes at the front alone.
    elif not path.startswith("/") or path.startswith("//") or os.path.normpath(path) != path:
        problems.append(Problem(where, "must be an absolute path in its shortest form, not %r" % path))


def not_empty(text: Optional[str], where: str, problems: List[Problem]) -> None:
    """Text that is there has to say something; None is left out."""
    if text is not None and not text.strip():
        problems.append(Problem(where, "is empty"))


def directory(path: Any, where: str, problems: List[Problem]) -> None:
    """A directory that goes into the service's unit and the pod's mounts, which take some characters for their own.

    None is left out.
    """
    absolute(path, where, problems)
    letters = set(path or "")
    odd = sorted(letter for letter in letters if letter in _SPECIAL or letter.isspace() or not letter.isprintable())
    if odd:
        named = ", ".join(map(repr, odd))
        problems.append(Problem(where, "must hold none of %s: systemd's units and pods' mounts read them" % named))


def permissions(text: str, where: str, problems: List[Problem]) -> str:
    """What a container may do with a device node."""
    if not text or set(text) - set("rwm") or len(set(text)) != len(text):
        problems.append(Problem(where, "must be made of r, w and m, each at most once"))
    return text


def mode(text: Optional[str], where: str, problems: List[Problem]) -> Optional[int]:
    """An octal file mode as a number."""
    if text is None:
        return None
    if re.fullmatch(r"0?[0-7]{3}", text):
        return int(text, 8)
    problems.append(Problem(where, 'must be three octal digits such as "0660"'))
    return None
