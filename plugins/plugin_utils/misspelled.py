# SPDX-License-Identifier: Apache-2.0
"""Finds host variables whose names are nearly names of this collection's variables.

Ansible ignores a variable that no task reads, so a misspelled name would silently change what a run does.
"""

from __future__ import annotations

import difflib
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ...plugin.node_device_plugin.declaration.variables import PREFIX
from . import role_arguments

# More edits than a typing error has: an edit is a letter more, a letter less, another letter, or two swapped letters.
_TOO_MANY = 3
# Letters at the beginning or at the end of a name that must be right, so that few names are compared.
_SAME = 4
# Minimum similarity of a name that a warning suggests.
_SIMILAR = 0.8
# The variable with the names of the user's own variables.
_OWN = "node_devices_own_variables"
# The variables of the playbooks that users set (docs/playbooks.md).
_OF_PLAYBOOKS = """
    node_devices_drain node_devices_drain_delete_emptydir_data node_devices_drain_force node_devices_drain_minutes
    node_devices_gather_facts node_devices_hosts node_devices_in_use node_devices_in_use_minutes node_devices_lock_break
    node_devices_lock_minutes node_devices_max_fail_percentage node_devices_pods_have_claims node_devices_report_dir
    node_devices_scan_domain node_devices_serial node_devices_version
"""
# Variables with a copy of all variables, or with other hosts' variables.
_COPIES = frozenset(("hostvars", "vars", "groups", "ansible_facts", "node_devices_node"))


class Found(NamedTuple):
    """Names of a host's variables that no playbook and no role reads.

    errors: one line for each name that is nearly a name of ours. warnings: one for each other name with our prefix.
    """

    errors: list[str]
    warnings: list[str]


def found(variables: Mapping[str, Any]) -> Found:
    """Check the names of a host's variables.

    A name that occurs in another variable, or in the list ``node_devices_own_variables``, is the user's own variable.
    """
    own = variables.get(_OWN)
    own = own if isinstance(own, (list, tuple)) else ()
    unknown = [name for name in variables if isinstance(name, str) and not _is_known(name) and name not in own]
    meant = {name: _meant(name) for name in unknown}
    suspects = {name for name in unknown if meant[name] or name.startswith(_PREFIXES)}
    suspects -= _used(suspects, variables) if suspects else set()
    errors = [
        f"{name}: no role and no playbook reads this variable, and its name is nearly {meant[name]}: correct the name, "
        f"or add your own variable's name to {_OWN}"
        for name in sorted(suspects)
        if meant[name]
    ]
    return Found(errors, [_warning(name) for name in sorted(suspects) if not meant[name]])


def _warning(name: str) -> str:
    similar = difflib.get_close_matches(name, _PUBLIC, 1, _SIMILAR)
    hint = f" (similar: {similar[0]})" if similar else ""
    return f"{name}: no role and no playbook of this collection reads this variable{hint}"


def _is_known(name: str) -> bool:
    return name in _KNOWN or name.startswith((PREFIX, "ansible_"))


def _meant(name: str) -> str:
    """Return the variable of which ``name`` is a misspelling; empty if it is none."""
    # A declaration's variable has any ending.
    for length in range(len(PREFIX) - 2, len(PREFIX) + 3):
        head, rest = name[:length], name[length:]
        if len(head) == length and rest[:1] in ("", "_") and _edits(head, PREFIX) < _TOO_MANY:
            return PREFIX + rest
    near = [
        (_edits(name, public), public)
        for public in _PUBLIC
        if abs(len(name) - len(public)) < _TOO_MANY
        and (name[:_SAME] == public[:_SAME] or name[-_SAME:] == public[-_SAME:])
    ]
    edits, public = min(near, default=(_TOO_MANY, ""))
    return public if edits < _TOO_MANY else ""


def _edits(one: str, other: str) -> int:
    """Return the number of edits between two names: the optimal string alignment distance."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, wanted in enumerate(other, 1):
            now.append(min(last[column] + 1, now[-1] + 1, last[column - 1] + (letter != wanted)))
            if row > 1 and column > 1 and (letter, one[row - 2]) == (other[column - 2], wanted):
                now[-1] = min(now[-1], before[column - 2] + 1)
        before, last = last, now
    return last[-1]


def _used(names: Iterable[str], variables: Mapping[str, Any]) -> set[str]:
    """Return the names that occur in an expression of another variable."""
    names = set(names)
    pending = [(name, value) for name, value in variables.items() if name not in _COPIES]
    used: set[str] = set()
    while pending:
        owner, value = pending.pop()
        if isinstance(value, Mapping):
            pending += [(owner, item) for item in value.values()]
        elif isinstance(value, (list, tuple)):
            pending += [(owner, item) for item in value]
        elif isinstance(value, str) and "{" in value:
            used |= (names & set(re.findall(r"\w+", value))) - {owner}
    return used


def _written() -> Iterator[str]:
    """Yield the texts of the playbooks and of the roles."""
    collection = pathlib.Path(__file__).resolve().parents[2]
    for pattern in ("playbooks/**/*.yml", "roles/*/*/*.yml", "roles/*/templates/*.j2"):
        yield from (path.read_text(encoding="utf-8") for path in sorted(collection.glob(pattern)))


# The strategy imports this module before it forks a process for each host, so the files are read once.
_PREFIXES = ("node_devices_", *(f"{role}_" for role in role_arguments.OPTIONS))
_TEXTS = list(_written())
#: The variables that users set.
_PUBLIC = sorted(
    {_OWN, *_OF_PLAYBOOKS.split(), *(name for options in role_arguments.OPTIONS.values() for name in options)}
)
#: All variables in the playbooks and roles, among them their registered results.
_KNOWN = {*_PUBLIC, *(name for text in _TEXTS for name in re.findall(r"\w+", text) if name.startswith(_PREFIXES))}
del _TEXTS
