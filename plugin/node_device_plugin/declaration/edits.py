"""The key ``container_edits`` of a resource or a device, read and checked."""

from __future__ import annotations

from typing import Any, Collection, Iterator, List, Mapping, Sequence, Tuple

from . import fields, names, schema
from .model import BIND, ContainerEdits, Hook, Mount, Resource
from .patterns import placeholders
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


def placeholder_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """What stands in edits as if it were filled in, as in the resource's env: containers would get it as it is."""
    known = {"index", *resource.discover.template_names()}
    for position, device in enumerate(resource.devices):
        values = {"index", *device.template_values()}
        known |= values
        yield from _placeholders(device.container_edits, element(where + ".devices", position, device.id), values)
    yield from _placeholders(resource.container_edits, where, known)


def _placeholders(edits: ContainerEdits, where: str, known: Collection[str]) -> Iterator[Problem]:
    for place, text in _texts(edits):
        for name in placeholders(text):
            if name in known:
                message = "{%s} would be given as it is: only the resource's env and annotations are filled in" % name
                yield Problem("%s.container_edits.%s" % (where, place), message)


def _texts(edits: ContainerEdits) -> Iterator[Tuple[str, str]]:
    for position, assignment in enumerate(edits.env):
        yield "env[%d]" % position, assignment or ""
    for position, mount in enumerate(edits.mounts):
        place = element("mounts", position, None)
        yield place + ".host_path", mount.host_path
        yield place + ".container_path", mount.container_path
    for position, hook in enumerate(edits.hooks):
        place = element("hooks", position, hook.name)
        for key, texts in (("args", hook.args), ("env", hook.env)):
            for number, text in enumerate(texts):
                yield "%s.%s[%d]" % (place, key, number), text or ""


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
