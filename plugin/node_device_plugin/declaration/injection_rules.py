"""Rules for how a resource's devices are given to containers: what cannot work is a problem of the declaration."""

from __future__ import annotations

from typing import Iterator, List, Tuple

from .model import BIND, ContainerEdits, DeviceNode, HealthChecks, PreStart, Resource
from .problems import Problem

#: Seconds: the kubelet gives PreStartContainer 30, and the answer has to get there.
_LONGEST_PRE_START = 25
#: Options of a mount that the kubelet can pass on; all its mounts are recursive binds.
_MOUNT_OPTIONS = frozenset({"ro", "rw", "bind", "rbind"})
#: Annotations that mean something to runtimes and to the kubelet itself.
_RESERVED = {
    "cdi.k8s.io/": "the runtime takes it for a CDI request",
    "io.kubernetes.": "it is the kubelet's own",
}
#: A NUMA node's number is an int32 in Linux.
_LARGEST_NUMA_NODE = 2**31 - 1


def problems(resource: Resource, where: str) -> Iterator[Problem]:
    """Everything that is wrong with how ``resource`` is given away."""
    if resource.pre_start.command or resource.pre_start != PreStart():
        yield from command_problems(resource.pre_start.command, where + ".pre_start.command")
    if resource.pre_start.timeout > _LONGEST_PRE_START:
        yield Problem(
            where + ".pre_start.timeout", "must be at most %d: the kubelet waits for 30 s" % _LONGEST_PRE_START
        )
    if resource.health.command or resource.health != HealthChecks(open=resource.health.open):
        yield from command_problems(resource.health.command, where + ".health.command")
    if resource.health.open:
        yield from _unopenable(resource, where)
    for name in resource.annotations:
        for prefix, why in _RESERVED.items():
            if name.startswith(prefix):
                yield Problem("%s.annotations.%s" % (where, name), "must not begin with %r: %s" % (prefix, why))
    for position, device in enumerate(resource.devices):
        if device.numa_node is not None and device.numa_node > _LARGEST_NUMA_NODE:
            place = "%s.devices[%d] (%s)" % (where, position, device.id)
            yield Problem(place + ".numa_node", "must be at most %d" % _LARGEST_NUMA_NODE)
    if resource.injection == "device_nodes":
        yield from _only_by_cdi(resource, where)


def command_problems(command: Tuple[str, ...], where: str) -> Iterator[Problem]:
    """A command has to be there, and to begin with an absolute path: it is run without a shell."""
    if not command:
        yield Problem(where, "is missing")
    elif not command[0].startswith("/"):
        yield Problem(where + "[0]", "must be the absolute path of a program, not %r" % command[0])


def _only_by_cdi(resource: Resource, where: str) -> Iterator[Problem]:
    """Edits that CDI can make and the kubelet's device plugin API cannot."""
    for key in ("uid", "gid", "mode"):
        if getattr(resource.discover, key) is not None:
            yield _refused("%s.discover.%s" % (where, key))
    yield from _edits(resource.container_edits, where + ".container_edits")
    for position, device in enumerate(resource.devices):
        place = "%s.devices[%d]%s" % (where, position, " (%s)" % device.id if device.id else "")
        yield from _edits(device.container_edits, place + ".container_edits")
        for number, node in enumerate(device.nodes):
            for key in _owned(node):
                yield _refused("%s.nodes[%d].%s" % (place, number, key))


def _unopenable(resource: Resource, where: str) -> Iterator[Problem]:
    """An open probe asks for no more than a container gets, so there has to be something that it gets."""
    message = "gives neither r nor w, so that health.open cannot open it"
    if resource.discover.methods and not set(resource.discover.permissions) & set("rw"):
        yield Problem(where + ".discover.permissions", message)
    for position, device in enumerate(resource.devices):
        place = "%s.devices[%d]%s" % (where, position, " (%s)" % device.id if device.id else "")
        if not device.nodes:
            yield Problem(place + ".nodes", "is empty, so that health.open has nothing to open")
        for number, node in enumerate(device.nodes):
            if not set(node.permissions) & set("rw"):
                yield Problem("%s.nodes[%d].permissions" % (place, number), message)


def _owned(node: DeviceNode) -> List[str]:
    return [key for key in ("uid", "gid", "mode") if getattr(node, key) is not None]


def _edits(edits: ContainerEdits, where: str) -> Iterator[Problem]:
    if edits.hooks:
        yield _refused(where + ".hooks")
    if edits.additional_gids:
        yield _refused(where + ".additional_gids")
    for position, mount in enumerate(edits.mounts):
        place = "%s.mounts[%d]" % (where, position)
        if mount.type not in BIND:
            yield _refused(place + ".type")
        for option in mount.options:
            if option not in _MOUNT_OPTIONS:
                yield Problem(
                    place + ".options",
                    "injection: device_nodes takes only %s, not %r" % (", ".join(sorted(_MOUNT_OPTIONS)), option),
                )


def _refused(where: str) -> Problem:
    return Problem(where, "can only be given by CDI, not with injection: device_nodes")
