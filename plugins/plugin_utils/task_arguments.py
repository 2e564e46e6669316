# SPDX-License-Identifier: Apache-2.0
"""What a task gives its action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleError

from .declaration import plain


def of(action: Any) -> dict[str, Any]:
    """The arguments of an action's task, as plain data, without what was left out."""
    given: dict[str, Any] = plain({key: value for key, value in action._task.args.items() if value is not None})
    return given


def minutes(arguments: Mapping[str, Any], variable: str) -> float:
    """The argument ``minutes``, 10 if left out. variable: which one users set, for the message. Raises AnsibleError."""
    given = arguments.get("minutes", 10)
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = -1
    # Nor is it a number that is none.
    if not number >= 0:
        raise AnsibleError(f"{variable} must be a number that is not below 0, not {given}")
    return number
