"""What is wrong with a declaration: collected, never raised one at a time."""

from __future__ import annotations

import re
from typing import Any, List, NamedTuple, Sequence


class Problem(NamedTuple):
    """One thing to fix.

    where: path of the field, e.g. ``resources[2] (example.com/serial).devices[0].id``.
    message: what is wrong and what is allowed.
    """

    where: str
    message: str

    def __str__(self) -> str:
        return "%s: %s" % (self.where, self.message)


class DeclarationError(ValueError):
    """A declaration that cannot be used; ``problems`` holds all of them, resource by resource."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: List[Problem] = sorted(problems, key=_position)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def element(where: str, position: int, label: Any) -> str:
    """The path of a list's element, with what it is called, if anything."""
    return "%s[%d]%s" % (where, position, " (%s)" % label if label else "")


def _position(problem: Problem) -> int:
    found = re.search(r"\[(\d+)\]", problem.where)
    return int(found.group(1)) if found else -1
