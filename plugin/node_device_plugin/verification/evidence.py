"""What of a container shows that the container was given a device. What every container has, shows nothing.

With CDI, only the edits of the device count: variables and annotations come from the kubelet, also if the runtime
ignores CDI. On the controller, Ansible uses this module, so it imports only the standard library and the declaration.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence

from ..declaration.env import allocate_env
from ..declaration.model import Device, DeviceNode, Resource
from .container_view import View, numbers

#: Device nodes of every container with their numbers (OCI runtime specification, config-linux.md, "Default Devices").
#: /dev/console is not among them: it exists only in a container with a terminal, and is then another device.
_NODES = {
    "/dev/null": "c 1:3",
    "/dev/zero": "c 1:5",
    "/dev/full": "c 1:7",
    "/dev/random": "c 1:8",
    "/dev/urandom": "c 1:9",
    "/dev/tty": "c 5:0",
    "/dev/ptmx": "c 5:2",
    "/dev/pts/ptmx": "c 5:2",
}
#: Nodes that a container has only if it was given them, or if it sees all of the host's nodes, as a privileged one.
_OF_HOST = ("/dev/kmsg", "/dev/mem")
#: Mount points of every container: the specification's file systems, and those of kubelet, containerd and CRI-O.
_MOUNTS = frozenset(
    {
        "/",
        "/dev",
        "/dev/mqueue",
        "/dev/pts",
        "/dev/shm",  # noqa: S108 - only compared
        "/dev/termination-log",
        "/etc/hostname",
        "/etc/hosts",
        "/etc/resolv.conf",
        "/proc",
        "/run/.containerenv",
        "/run/secrets",
        "/sys",
        "/var/run/secrets/kubernetes.io/serviceaccount",
    }
)
#: Below these, runtimes mount parts of their own: masked and read-only paths, and the controllers of cgroup v1.
_BELOW = ("/proc/", "/sys/firmware", "/sys/fs/cgroup", "/sys/devices/")
#: Variables that runtimes, the kubelet or the images of proofs set.
_VARIABLES = frozenset({"PATH", "HOSTNAME", "HOME", "TERM", "LANG", "PYTHONDONTWRITEBYTECODE", "container"})
_OF_KUBELET = "KUBERNETES_"


def shown(view: View, resource: Resource, devices: Sequence[Device], with_annotations: bool = False) -> list[str]:
    """The ids of the devices that the container shows, if it matches what is expected with ``devices``.

    with_annotations: whether the container's annotations are known and match, too.
    """
    nodes = [node.path for device in devices for node in (*device.foreign_nodes, *device.nodes)]
    sees_host = any(not isinstance(view.path(path), str) for path in _OF_HOST if path not in nodes)

    def is_sign(node: DeviceNode) -> bool:
        found = view.path(node.path)
        if isinstance(found, str) or not (stat.S_ISCHR(found.mode) or stat.S_ISBLK(found.mode)):
            return False
        return not (sees_host and node.path == node.host_path) and not _is_default(node, numbers(found))

    given = allocate_env(resource, devices)
    return [
        device.id
        for device in devices
        if any(map(is_sign, (*device.foreign_nodes, *device.nodes)))
        or any(not _is_by_cdi(resource, device) or view.env.get(n) != given.get(n) for n in _names(resource, device))
        or _mounts(resource, device)
        or _is_by_allocate(resource, device, given, with_annotations)
    ]


def can_show(resource: Resource, devices: Iterable[Device], with_annotations: bool = False) -> bool:
    """Whether some container can show one of the devices. with_annotations: see ``shown``."""
    return any(
        any(not _is_default(node, _expected(node)) for node in (*device.foreign_nodes, *device.nodes))
        or _mounts(resource, device)
        or _names(resource, device)
        or _is_by_allocate(resource, device, allocate_env(resource, [device]), with_annotations)
        for device in devices
    )


def why_none(resource: Resource, devices: Iterable[Device]) -> str:
    """Why a container that has all that it should have is no proof."""
    paths = {node.path: None for device in devices for node in (*device.foreign_nodes, *device.nodes)}
    advice = "set container_edits.env, for example to [DEVICE=given], and verify again"
    if paths:
        return (
            f"the container may have {', '.join(paths)} without the devices, as every container or as a privileged "
            f"one: give the nodes another path, or {advice}"
        )
    return f"the devices give a container no device node, mount or variable by which it shows them: {advice}"


def _is_by_cdi(resource: Resource, device: Device) -> bool:
    return resource.injection == "cdi" and (resource.edits(device) or bool(device.cdi_devices))


def _is_by_allocate(resource: Resource, device: Device, given: Iterable[str], with_annotations: bool) -> bool:
    """Whether what Allocate gives without CDI shows the device. given: the container's variables by Allocate."""
    shows = any(map(_is_own_name, given)) or (with_annotations and bool(resource.annotations))
    return shows and not _is_by_cdi(resource, device)


def _names(resource: Resource, device: Device) -> list[str]:
    """The variables of the device's edits that not every container has."""
    given = allocate_env(resource, [device]) if _is_by_cdi(resource, device) else {}
    assignments = (each.partition("=") for edits in resource.edits_of([device]) for each in edits.env)
    return [name for name, _equals, value in assignments if _is_own_name(name) and given.get(name) != value]


def _mounts(resource: Resource, device: Device) -> list[str]:
    """The mount points of the device's edits that not every container has."""
    paths = (mount.container_path for edits in resource.edits_of([device]) for mount in edits.mounts)
    return [path for path in paths if path not in _MOUNTS and not path.startswith(_BELOW)]


def _is_own_name(name: str) -> bool:
    return name not in _VARIABLES and not name.startswith(_OF_KUBELET)


def _is_default(node: DeviceNode, found: str) -> bool:
    """Whether every container has the node. found: its type and numbers."""
    has_own = node.uid not in (None, 0) or node.gid not in (None, 0) or node.mode not in (None, 0o666)
    return _NODES.get(node.path) == found and not has_own


def _expected(node: DeviceNode) -> str:
    """The type and numbers of the node in a container; empty if only the host knows them."""
    if node.type and node.major is not None and node.minor is not None:
        return "%s %d:%d" % (node.type, node.major, node.minor)
    return _NODES.get(node.host_path, "")
