"""Patterns of paths (shell globs), and templates with placeholders: what discovery looks for, what Allocate adds."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from re import Pattern

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WILDCARD = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]")


def placeholders(template: str) -> list[str]:
    """The names that stand in braces, in their order, repetitions too."""
    return _PLACEHOLDER.findall(template)


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with every placeholder replaced. KeyError where ``values`` lacks one."""
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], template)


def wildcards(pattern: str) -> int:
    """How many wildcards (``*``, ``?``, ``[...]``) a pattern has."""
    return len(_WILDCARD.findall(pattern))


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str) -> Pattern[str]:
    """The pattern as a regular expression with one group for each wildcard; none of them matches a ``/``."""
    parts, end = [], 0
    for match in _WILDCARD.finditer(pattern):
        parts.append(re.escape(pattern[end : match.start()]))
        end = match.end()
        text = match.group()
        if text.startswith("*"):
            parts.append("([^/]*)")
        elif text == "?":
            parts.append("([^/])")
        else:
            inner = text[1:-1].replace("\\", r"\\").replace("[", r"\[")
            inner = "^" + inner[1:] if inner.startswith("!") else inner.replace("^", r"\^")
            # A ']' that stands first is meant literally.
            inner = inner.replace("]", r"\]")
            parts.append(f"((?!/)[{inner}])")
    parts.append(re.escape(pattern[end:]))
    return re.compile("".join(parts) + r"\Z", re.DOTALL)


def pattern_problem(pattern: str, is_template: bool = False) -> str:
    """Why it is no usable pattern; empty where it is. is_template: whether placeholders may stand in it.

    What shells know and this does not is refused, instead of finding nothing.
    """
    if "**" in pattern:
        return "'**' is not known: each '/' has to be written"
    if any(wildcard.startswith("[^") for wildcard in _WILDCARD.findall(pattern)):
        return "'[^' is not known: '[!' stands for all others"
    literal = _WILDCARD.sub("", _PLACEHOLDER.sub("", pattern) if is_template else pattern)
    if "[" in literal:
        return "has a '[' without its ']' ('[[]' is the character itself)"
    if "{" in literal or "}" in literal:
        return "'{' and '}' are not known here: write each alternative by itself ('[{]' is the character itself)"
    try:
        compiled(pattern)
    except re.error as error:
        return f"is not a pattern: {error}"
    return ""
