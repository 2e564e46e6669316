"""Shell patterns of paths for discovery, and templates for discovery and Allocate."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from re import Pattern

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NEARLY = re.compile(r"\{\s*([A-Za-z_]\w*)\s*(?:![rsa]\s*)?(?:\}|$)|(?<![\w{])([A-Za-z_]\w*)\}")
_WILDCARD = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]")


def placeholders(template: str) -> list[str]:
    """The names in braces, in order, including repetitions."""
    return _PLACEHOLDER.findall(template)


def nearly_placeholders(template: str) -> list[tuple[str, str]]:
    """Texts that look like a placeholder but are none, such as ``{ path }`` or ``{path``, each with the name."""
    return [(match[0], match[1] or match[2]) for match in _NEARLY.finditer(_PLACEHOLDER.sub("\0", template))]


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with all placeholders replaced. Raises KeyError for one without a value."""
    return _PLACEHOLDER.sub(lambda match: values[match.group(1)], template)


def wildcards(pattern: str) -> int:
    """How many wildcards (``*``, ``?``, ``[...]``) a pattern has."""
    return len(_WILDCARD.findall(pattern))


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str) -> Pattern[str]:
    """The pattern as a regular expression, one group per wildcard. No wildcard matches ``/``."""
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
            # A ']' in first position is literal.
            inner = inner.replace("]", r"\]")
            parts.append(f"((?!/)[{inner}])")
    parts.append(re.escape(pattern[end:]))
    return re.compile("".join(parts) + r"\Z", re.DOTALL)


def pattern_problem(pattern: str, is_template: bool = False) -> str:
    """Why ``pattern`` is invalid, or empty. is_template: whether ``pattern`` may have placeholders.

    Unsupported shell syntax is an error, because the pattern would silently match nothing.
    """
    if "**" in pattern:
        return "'**' is not supported: write one '*' for each path component"
    found = _WILDCARD.findall(pattern)
    if any(wildcard.startswith("[^") for wildcard in found):
        return "'[^' is not supported: write '[!' to match other characters"
    literal = _WILDCARD.sub("", _PLACEHOLDER.sub("", pattern) if is_template else pattern)
    if "[" in literal:
        return "has a '[' without a ']': write '[[]' for a literal '['"
    if "{" in literal or "}" in literal:
        return "'{' and '}' are not supported: write one pattern for each alternative, or '[{]' for a literal '{'"
    wrong = [wildcard for wildcard in found if not _is_valid(wildcard)]
    return f"the range in {wrong[0]!r} ends before it begins: swap its ends" if wrong else ""


def _is_valid(wildcard: str) -> bool:
    try:
        compiled(wildcard)
    except re.error:
        return False
    return True
