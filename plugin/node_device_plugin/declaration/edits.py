"""The key ``container_edits`` of a resource or a device, read and checked."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence

from . import fields, names, schema
from .model import BIND, ContainerEdits, Hook, Mount
from .problems import Problem, element


def container_edits(item: Mapping[str, Any], where: str, problems: List[Problem]) -> ContainerEdits:
    """``item``: normalised. What does not fit is appended to ``problems``."""
    _assignments(item["env"], where + ".env", problems)
    mounts = []
    for position, mount in enumerate(item["mounts"]):
        place = element(where + ".mounts", position, None)
        fields.absolute(mount["container_path"], place + ".container_path", problems)
        if mount["type"] in BIND:
            fields.absolute(mount["host_path"], place + ".host_path", problems)
        else:
            fields.not_empty(mount["host_path"], place + ".host_path", problems)
            fields.not_empty(mount["type"], place + ".type", problems)
        for number, option in enumerate(mount["options"]):
            fields.not_empty(option, "%s.options[%d]" % (place, number), problems)
        mounts.append(
            Mount(mount["host_path"] or "", mount["container_path"] or "", mount["type"], tuple(mount["options"] or ()))
        )
    hooks = []
    for position, hook in enumerate(item["hooks"]):
        place = element(where + ".hooks", position, hook["name"])
        fields.absolute(hook["path"], place + ".path", problems)
        _assignments(hook["env"], place + ".env", problems)
        hooks.append(
            Hook(hook["name"] or "", hook["path"] or "", tuple(hook["args"]), tuple(hook["env"]), hook["timeout"])
        )
    for position, gid in enumerate(item["additional_gids"]):
        if gid is not None and not 1 <= gid <= schema.LARGEST_ID:
            message = "must be between 1 and %d, not %d" % (schema.LARGEST_ID, gid)
            problems.append(Problem("%s.additional_gids[%d]" % (where, position), message))
    return ContainerEdits(tuple(item["env"]), tuple(mounts), tuple(hooks), tuple(item["additional_gids"]))


def _assignments(items: Sequence[Any], where: str, problems: List[Problem]) -> None:
    for position, assignment in enumerate(items):
        if assignment is None:
            continue
        if "=" in assignment:
            message = names.env_name_problem(assignment.partition("=")[0])
        else:
            message = "must have the form NAME=value, not %r" % assignment
        if message:
            problems.append(Problem("%s[%d]" % (where, position), message))
