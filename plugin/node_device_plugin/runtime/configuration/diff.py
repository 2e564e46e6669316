"""Shows a change of a runtime's file as a diff. It has our lines only, because any other line may have a secret."""

from __future__ import annotations

import difflib
import re

from .cdi import Change
from .containerd_config import KEYS, TABLES

#: What a diff has instead of any other line, and instead of a comment.
HIDDEN = "(hidden)"
_TABLE = "|".join(map(re.escape, (*TABLES.values(), "plugins", "crio", "runtime")))
_PART = rf"""["']?(?:{_TABLE})["']?[ ]*\.[ ]*"""
_DIRECTORY = r"""(?:"/[^"\\]*"|'/[^']*')"""
# A table's header; a key with its value, or with the first line of its value; an item or the end of a list.
_OURS = re.compile(
    rf"""(?P<shown>\s*(?:
      \[\s*(?:{_PART})+["']?(?:{_TABLE})["']?\s*\]
    | version\s*=\s*\d+
    | (?:{_PART})*(?:{"|".join(KEYS)})\s*=\s*(?:true|false|\[\s*(?:{_DIRECTORY}\s*,?\s*)*\]?)
    | {_DIRECTORY}\s*,?
    | \]
    )?)\s*(?P<comment>\#.*)?""",
    re.VERBOSE | re.DOTALL,
)


def diff(change: Change) -> str:
    """Return a unified diff with only the changed lines."""
    before, after = ((text or "").splitlines(keepends=True) for text in (change.before, change.after))
    head, tail = f"before: {change.path}", f"after: {change.path}"
    return "".join(
        line if number < 2 or line.startswith("@@") else f"{line[0]}{shown(line[1:])}\n"
        for number, line in enumerate(difflib.unified_diff(before, after, head, tail, n=0))
    )


def added(change: Change) -> list[str]:
    """Return the lines that the change adds, without indents and empty lines."""
    return [text for line in diff(change).splitlines()[2:] if line[0] == "+" and (text := line[1:].strip())]


def shown(line: str) -> str:
    """Return a line of ours without its comment and its end, or HIDDEN."""
    found = _OURS.fullmatch(line)
    if not found:
        return HIDDEN
    ours = found["shown"].rstrip()
    comment = f"# {HIDDEN}" if found["comment"] else ""
    return f"{ours} {comment}" if ours and comment else ours or comment
