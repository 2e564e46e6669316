# SPDX-License-Identifier: Apache-2.0
"""Compares a node with what site.yml would do there, from the modules' answers in check mode."""

from __future__ import annotations

import pathlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils import node_code
from ..declaration import plain

# The modules of roles whose results no running program reports.
_MODULES = ("node_tools", "host_devices", "cdi_specs", "managed_files")
_COLLECTION = pathlib.Path(__file__).resolve().parents[3]
_CODE = posixpath.dirname(node_code.path_of(""))


def arguments(action: Any, task_vars: Mapping[str, Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that site.yml gives to the modules, in a play without the roles.

    declared: the result of module declaration. Raises any exception of an expression.
    """

    def loaded(*files: pathlib.Path) -> dict[str, Any]:
        texts = [action._loader.load_from_file(str(file), trusted_as_template=True) for file in files]
        return {name: value for each in texts for name, value in each.items()}

    known = {
        **loaded(*_COLLECTION.glob("roles/*/defaults/main.yml")),
        **task_vars,
        **loaded(*_COLLECTION.glob("roles/*/vars/main.yml")),
        "device_plugin_declaration": declared,
        "extended_resources_declaration": declared,
    }
    templar = action._templar.copy_with_new_env(available_variables=known)
    given = {name: templar.template(known["node_devices_converge"][name]) for name in _MODULES}
    found: dict[str, Any] = plain(given)
    return found


def found(facts: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return one line for each difference, and notes. facts: of module node_preflight, which has looked at the modules.

    A note is no reason to run site.yml.
    """
    problems: list[str] = []
    notes: list[str] = []
    answers = {name: [each["answer"] for each in facts["converged"].get(name, ()) if each] for name in _MODULES}
    for answer in answers.pop("node_tools"):
        other_version, is_rolled_back = _of_version(answer, facts["ledger"])
        (notes if is_rolled_back else problems).extend(other_version or _of(answer))
    for answer in (answer for each in answers.values() for answer in each):
        problems += _of(answer)
    return problems, notes


def _of(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a module would refuse the node, or what it would change there."""
    yield from (*answer.get("problems", ()), *answer.get("in_use", ()))
    removed, edited = answer.get("removed", ()), answer.get("edited", ())
    differing = [path for path in (*answer.get("written", ()), *removed) if path not in edited]
    # Another controller may have other packages, so another archive of the code is no difference.
    differing = [path for path in differing if posixpath.dirname(path) != _CODE]
    for paths, what in ((differing, "not as declared"), (edited, "changed or removed on the node since the last run")):
        # The paths in a directory stand for the directory.
        shown = sorted(path for path in paths if not any(other.startswith(f"{path}/") for other in paths))
        if shown:
            yield f"{', '.join(shown)}: {what}: run site.yml"
    for action in answer.get("actions", ()):
        done, _space, path = action.partition(" ")
        if done == "made":
            yield f"{path}: role host_devices has not created this device node: run site.yml"
        elif path not in removed:
            yield f"role host_devices has something to do ({action}): run site.yml"


def _of_version(answer: Mapping[str, Any], ledger: Sequence[str]) -> tuple[list[str], bool]:
    """Return a sentence if another version is in use, and whether someone rolled this collection's version back.

    A rollback keeps the version's environment and removes the link ``previous``.
    """
    was, directory = answer.get("was"), answer.get("environment", "")
    versions, name = posixpath.split(directory)
    if was in (None, name):
        return [], False
    if directory in answer["written"] or posixpath.join(posixpath.dirname(versions), "previous") in ledger:
        return [f"version {was} is installed, but this collection installs {name}: run site.yml"], False
    note = (
        f"version {was} is in use, and {name} is installed beside it, as after rollback.yml: site.yml upgrades this "
        "node again"
    )
    return [note], True
