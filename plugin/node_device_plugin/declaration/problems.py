"""Problems of a declaration, collected and raised together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..support.tables import printable

#: The types of values in YAML, with their names in messages.
_KINDS: tuple[tuple[Any, str], ...] = (
    (str, "text"),
    (int, "a number"),
    (float, "a decimal number"),
    (dict, "a mapping"),
    ((list, tuple), "a list"),
    (bytes, "binary data"),
    ((set, frozenset), "a set"),
)


class Problem(NamedTuple):
    """One problem of a declaration.

    where: path of the field, e.g. ``resources[2] (example.com/serial).devices[0].id``.
    message: what is wrong and what is allowed.
    """

    where: str
    message: str

    def __str__(self) -> str:
        # Names and keys of the declaration may contain line breaks and control sequences.
        return printable(f"{self.where}: {self.message}")


class DeclarationError(ValueError):
    """A declaration is invalid; ``problems`` has every problem, in the order of the resources."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: list[Problem] = sorted(problems, key=_position)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def element(where: str, position: int, label: Any) -> str:
    """The path of a list's element, with its label if it has one."""
    return "%s[%d]%s" % (where, position, f" ({label})" if label else "")


def shown(value: Any) -> str:
    """A value of a wrong type, in the words of YAML."""
    if isinstance(value, str):
        return f"the text {str.__str__(value)!r}"
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return re.sub("inf|nan", r".\g<0>", repr(value))
    return kind(value)


def kind(value: Any) -> str:
    """What a value is, without its content, which may be a secret."""
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    if hasattr(value, "isoformat"):
        return "a date"
    return next((name for types, name in _KINDS if isinstance(value, types)), "a value of another type")


def first(problems: Sequence[Any]) -> str:
    """The first problem, and how many others there are."""
    return f"{problems[0]} (and {len(problems) - 1} more)" if len(problems) > 1 else str(problems[0])


def _position(problem: Problem) -> int:
    found = re.search(r"\[(\d+)\]", problem.where)
    return int(found.group(1)) if found else -1
