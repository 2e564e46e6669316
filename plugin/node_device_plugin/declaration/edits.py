"""Checks the key ``container_edits`` of a resource or a device."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from . import fields
from .model import BIND, ContainerEdits, Resource
from .patterns import placeholders
from .problems import Problem, element


def edit_problems(edits: ContainerEdits, where: str) -> Iterator[Problem]:
    """Problems of bind mounts: their host_path must be an absolute path."""
    for position, mount in enumerate(edits.mounts):
        message = fields.absolute(mount.host_path) if mount.host_path and mount.type in BIND else None
        if message:
            yield Problem("%s.container_edits.mounts[%d].host_path" % (where, position), message)


def placeholder_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """Known placeholders in edits, which stay literal. Allocate fills only env and annotations."""
    for place, device in resource.placed_devices(where):
        if device.container_edits != ContainerEdits():
            yield from _placeholders(device.container_edits, place, {"index", *device.template_values()})
    if resource.container_edits != ContainerEdits():
        of_devices = (name for device in resource.devices for name in device.template_values())
        known = {"index", *resource.discover.template_names(), *of_devices}
        yield from _placeholders(resource.container_edits, where, known)


def _placeholders(edits: ContainerEdits, where: str, known: Collection[str]) -> Iterator[Problem]:
    for place, text in _texts(edits):
        for name in placeholders(text):
            if name in known:
                message = f"{{{name}}} would stay literal: placeholders work only in the resource's env and annotations"
                yield Problem(f"{where}.container_edits.{place}", message)


def _texts(edits: ContainerEdits) -> Iterator[tuple[str, str]]:
    for position, assignment in enumerate(edits.env):
        yield "env[%d]" % position, assignment
    for position, mount in enumerate(edits.mounts):
        place = element("mounts", position, None)
        yield place + ".host_path", mount.host_path
        yield place + ".container_path", mount.container_path
    for position, hook in enumerate(edits.hooks):
        place = element("hooks", position, hook.name)
        for key, texts in (("args", hook.args), ("env", hook.env)):
            for number, text in enumerate(texts):
                yield "%s.%s[%d]" % (place, key, number), text
