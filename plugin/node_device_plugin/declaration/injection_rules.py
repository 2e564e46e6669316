"""Rules for container edits and for the injection of devices: reports combinations that cannot work."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from . import fields
from .cdi import ANNOTATION_PREFIX
from .model import BIND, ContainerEdits, Device, DeviceNode, Discovery, HealthChecks, PreStart, Resource
from .patterns import placeholders
from .problems import Problem, element

#: An option of a bind mount. Source: "Linux mount options" in config.md of the OCI runtime specification. Runtimes pass
#: other text on to the kernel, which ignores it.
_BIND_OPTION = re.compile(
    "r?(ro|rw|(no)?(atime|dev|diratime|exec|relatime|strictatime|suid|symfollow))"
    "|r?(bind|private|shared|slave|unbindable)"
    "|(no)?(iversion|lazytime|mand)|async|defaults|dirsync|loud|remount|silent|sync"
)
#: Mount options that the kubelet can pass on. All its mounts are recursive bind mounts.
_MOUNT_OPTIONS = frozenset({"ro", "rw", "bind", "rbind"})
_ONLY_CDI = "works only with CDI: remove it, or set injection: cdi instead of device_nodes"
#: Annotation prefixes that have a meaning for runtimes or the kubelet.
_RESERVED = {
    ANNOTATION_PREFIX: "the runtime would read the annotation as a CDI request",
    "io.kubernetes.": "these annotations belong to the kubelet",
}


def problems(resource: Resource, where: str, refused: Collection[str]) -> Iterator[Problem]:
    """Every problem with the injection of ``resource``. refused: fields with a known problem."""
    for key, given, default in (
        ("pre_start", resource.pre_start, PreStart()),
        ("health", resource.health, HealthChecks(open=resource.health.open)),
    ):
        place = f"{where}.{key}.command"
        if given != default and not any(field.startswith(place) for field in refused):
            yield from _command_problems(given.command, place)
    if resource.health.open:
        yield from _unopenable(resource, where)
    for name in resource.annotations:
        for prefix, why in _RESERVED.items():
            if name.startswith(prefix):
                yield Problem(f"{where}.annotations.{name}", f"must not begin with {prefix!r}: {why}")
    if resource.injection == "device_nodes":
        yield from _only_by_cdi(resource, where)


def _command_problems(command: tuple[str, ...], where: str) -> Iterator[Problem]:
    """Problems of a command. It must begin with an absolute path, because no shell runs it."""
    if not command:
        yield Problem(where, "is missing")
    elif not command[0].startswith("/"):
        yield Problem(where + "[0]", "must be the absolute path of a program")


def _only_by_cdi(resource: Resource, where: str) -> Iterator[Problem]:
    """Problems of edits that CDI supports but the kubelet's device plugin API does not."""
    yield from _set(resource.discover, ("uid", "gid", "mode"), where + ".discover")
    if resource.discover.cdi:
        yield Problem(where + ".discover.cdi", _ONLY_CDI)
    yield from _edits(resource.container_edits, where + ".container_edits")
    for place, device in resource.placed_devices(where):
        yield from _edits(device.container_edits, place + ".container_edits")
        yield from _set(device, ("cdi_devices",), place)
        for number, node in enumerate(device.nodes):
            yield from _set(node, ("uid", "gid", "mode"), "%s.nodes[%d]" % (place, number))


def _unopenable(resource: Resource, where: str) -> Iterator[Problem]:
    """Problems of health.open: it opens nodes with the container's permissions and needs r or w."""
    message = "has neither r nor w, so that health.open cannot open the node: add one, or remove health.open"
    if resource.discover.methods and not set(resource.discover.permissions) & set("rw"):
        yield Problem(where + ".discover.permissions", message)
    if resource.discover.cdi and not resource.discover.nodes:
        message = "devices of CDI specs have no nodes of the declaration, so that health.open has nothing to open"
        yield Problem(where + ".health.open", message)
    for place, device in resource.placed_devices(where):
        if not device.nodes:
            yield Problem(place + ".nodes", "is empty, so that health.open has no node to open: remove health.open")
        for number, node in enumerate(device.nodes):
            if not set(node.permissions) & set("rw"):
                yield Problem("%s.nodes[%d].permissions" % (place, number), message)


def open_probes(resources: Sequence[Resource], where: str) -> Iterator[Problem]:
    """The problems of health.open in an unprivileged pod, whose device cgroup denies access to host devices."""
    for position, resource in enumerate(resources):
        if resource.health.open:
            yield Problem(
                element(where, position, resource.name) + ".health.open",
                "an unprivileged pod cannot open devices of its host, so every device would be unhealthy: remove "
                "health.open, or run the plugin as a service",
            )


def _edits(edits: ContainerEdits, where: str) -> Iterator[Problem]:
    yield from _set(edits, ("hooks", "additional_gids"), where)
    for position, mount in enumerate(edits.mounts):
        place = "%s.mounts[%d]" % (where, position)
        if mount.type not in BIND:
            yield Problem(place + ".type", _ONLY_CDI)
        for option in mount.options:
            if option not in _MOUNT_OPTIONS:
                message = "with injection: device_nodes, only %s are possible, not %r"
                yield Problem(place + ".options", message % (", ".join(sorted(_MOUNT_OPTIONS)), option))


def _set(part: ContainerEdits | Device | DeviceNode | Discovery, keys: Sequence[str], where: str) -> Iterator[Problem]:
    """A problem for each of these keys that is set."""
    for key in keys:
        if getattr(part, key) not in (None, ()):
            yield Problem(f"{where}.{key}", _ONLY_CDI)


def edit_problems(edits: ContainerEdits, where: str) -> Iterator[Problem]:
    """Problems of bind mounts: their host_path must be an absolute path, and a runtime must know their options."""
    for position, mount in enumerate(edits.mounts):
        place = "%s.container_edits.mounts[%d]" % (where, position)
        message = fields.absolute(mount.host_path) if mount.host_path and mount.type in BIND else None
        if message:
            yield Problem(place + ".host_path", message)
        if not mount.is_bind:
            continue
        for number, option in enumerate(mount.options):
            if not _BIND_OPTION.fullmatch(option):
                message = f"{option!r} is no option of a bind mount, and has no effect: for a read-only mount, write ro"
                yield Problem("%s.options[%d]" % (place, number), message)
        if {"ro", "rw"} <= set(mount.options):
            yield Problem(place + ".options", "has both ro and rw: remove one")


def placeholder_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """Known placeholders in edits and commands, which stay literal. Allocate fills only env and annotations."""
    for place, device in resource.placed_devices(where):
        if device.container_edits != ContainerEdits():
            yield from _literal(_texts(device.container_edits), place, {"index", *device.template_values()})
    texts = list(_texts(resource.container_edits))
    for key, command in (("pre_start", resource.pre_start.command), ("health", resource.health.command)):
        texts += [("%s.command[%d]" % (key, number), text) for number, text in enumerate(command)]
    if any(placeholders(text) for _place, text in texts):
        of_devices = (name for device in resource.devices for name in device.template_values())
        yield from _literal(texts, where, {"index", *resource.discover.template_names(), *of_devices})


def _literal(texts: Iterable[tuple[str, str]], where: str, known: Collection[str]) -> Iterator[Problem]:
    for place, text in texts:
        for name in placeholders(text):
            if name in known:
                why = "placeholders work only in the resource's env and annotations"
                if not place.startswith("container_edits"):
                    why = "the command has the device's values in its environment, such as DEVICE_ID"
                yield Problem(f"{where}.{place}", f"{{{name}}} would stay literal: {why}")


def _texts(edits: ContainerEdits) -> Iterator[tuple[str, str]]:
    for position, assignment in enumerate(edits.env):
        yield "container_edits.env[%d]" % position, assignment
    for position, mount in enumerate(edits.mounts):
        place = element("container_edits.mounts", position, None)
        yield place + ".host_path", mount.host_path
        yield place + ".container_path", mount.container_path
    for position, hook in enumerate(edits.hooks):
        place = element("container_edits.hooks", position, hook.name)
        yield place + ".path", hook.path
        for key, texts in (("args", hook.args), ("env", hook.env)):
            for number, text in enumerate(texts):
                yield "%s.%s[%d]" % (place, key, number), text
