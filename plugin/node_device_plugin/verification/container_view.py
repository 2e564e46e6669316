"""A container's view of its devices, and the mismatches between that view and the expected one.

On the controller, Ansible uses this module to check a container's own report. Therefore the module supports Python 3.9
and imports only the standard library and the declaration.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from ..declaration.env import allocate_annotations, allocate_env
from ..declaration.model import Device, DeviceNode, Mount, Resource


class Seen(NamedTuple):
    """A path in a container, with its values from stat(2). device: major and minor number of a device node."""

    mode: int
    uid: int
    gid: int
    device: list[int]


class View(NamedTuple):
    """A container's variables, its mount points with their file system types, and its paths.

    path: a function that returns the file at a path, or the reason why the file cannot be read.
    """

    env: Mapping[str, str]
    mounts: Mapping[str, str]
    path: Callable[[str], Seen | str]


def look_at(path: str, follow: bool = False) -> Seen | str:
    """The file at a path, or the error's text. follow: whether to follow symbolic links."""
    try:
        found = os.stat(path, follow_symlinks=follow)
    except OSError as error:
        return (error.strerror or "").lower()
    return Seen(found.st_mode, found.st_uid, found.st_gid, [os.major(found.st_rdev), os.minor(found.st_rdev)])


def own(paths: Iterable[str]) -> dict[str, Any]:
    """The view of this process's own container, as data for JSON; read_own converts the data back."""
    seen = {path: look_at(path) for path in paths}
    return {
        "env": dict(os.environ),
        "mounts": mounts_of("self"),
        "paths": {path: each if isinstance(each, str) else each._asdict() for path, each in seen.items()},
    }


def read_own(data: Mapping[str, Any]) -> View:
    """The view in the JSON data of ``own``. Raises KeyError, TypeError or ValueError for other data."""
    paths = {path: each if isinstance(each, str) else Seen(**each) for path, each in dict(data["paths"]).items()}
    return View(dict(data["env"]), dict(data["mounts"]), lambda path: paths.get(path, "not inspected"))


def mounts_of(process: int | str) -> dict[str, str]:
    """The mount points of a process (pid or ``self``), with file system types. Raises OSError if the process ended."""
    with open(f"/proc/{process}/mountinfo", "rb") as file:
        return mount_points(file.read())


def mount_points(mountinfo: bytes) -> dict[str, str]:
    """The mount points and file system types in a mountinfo file (proc(5)), in which spaces are octal escapes."""
    mounts = {}
    for line in mountinfo.split(b"\n"):
        before, _, after = line.partition(b" - ")
        if after:
            point = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal.group(1), 8)]), before.split(b" ")[4])
            mounts[os.fsdecode(point)] = os.fsdecode(after.split(b" ")[0])
    return mounts


class Expectation(NamedTuple):
    """What a container that got certain devices of a resource must contain.

    env: each variable with its allowed values: either those of the CDI edits, or Allocate's value.
    annotations: the container's annotations in the runtime.
    """

    env: dict[str, tuple[str, ...]]
    nodes: tuple[DeviceNode, ...]
    mounts: tuple[Mount, ...]
    annotations: dict[str, str]


def expected_in_container(resource: Resource, devices: Sequence[Device]) -> Expectation:
    """What a container that got ``devices`` must contain. devices: in the declaration's order."""
    variables: dict[str, list[str]] = {}
    nodes: list[DeviceNode] = []
    mounts: list[Mount] = []
    for edits in resource.edits_of(devices):
        for assignment in edits.env:
            name, _equals, value = assignment.partition("=")
            variables.setdefault(name, []).append(value)
        mounts.extend(mount for mount in edits.mounts if mount not in mounts)
    for device in devices:
        nodes.extend(node for node in (*device.foreign_nodes, *device.nodes) if node not in nodes)
    env = {name: tuple(values) for name, values in variables.items()}
    # CDI edits the container after the kubelet sets variables, so CDI's value replaces Allocate's.
    # Without CDI, Allocate applies the edits last, too.
    for name, value in allocate_env(resource, devices).items():
        env.setdefault(name, (value,))
    annotations = allocate_annotations(resource, devices)
    return Expectation(env, tuple(nodes), tuple(mounts), annotations)


def mismatches(view: View, expectation: Expectation, host: Callable[[str], Seen | str] | None = None) -> list[str]:
    """One sentence for each mismatch between a container and ``expectation``; ignores annotations.

    host: returns the file at a path of the node. If the expectation has no numbers for a device node, the numbers of
    the file at its host path are expected.
    """
    found: list[str] = []
    for name, allowed in expectation.env.items():
        value = view.env.get(name)
        if value not in allowed:
            found.append(
                "variable {}: expected {}, found {}".format(
                    name, " or ".join(map(repr, allowed)), "nothing" if value is None else repr(value)
                )
            )
    for node in expectation.nodes:
        found.extend(_node(view, node, host))
    for mount in expectation.mounts:
        found.extend(_mount(view.mounts, mount))
    return found


def _node(view: View, node: DeviceNode, host: Callable[[str], Seen | str] | None) -> Iterator[str]:
    found = view.path(node.path)
    if isinstance(found, str):
        yield f"device node {node.path}: {found}"
        return
    if not (stat.S_ISCHR(found.mode) or stat.S_ISBLK(found.mode)):
        yield f"{node.path}: expected a device node, found another kind of file"
        return
    if node.major is not None and node.minor is not None:
        given = "%s %d:%d" % (node.type or numbers(found)[0], node.major, node.minor)
        if numbers(found) != given:
            yield f"device node {node.path}: expected numbers {given}, found {numbers(found)}"
    elif host is not None:
        there = host(node.host_path)
        if isinstance(there, str):
            yield f"device node {node.path}: {node.host_path} on the host: {there}"
            return
        if numbers(found) != numbers(there):
            expected = f"{numbers(there)} ({node.host_path} on the host)"
            yield f"device node {node.path}: expected numbers {expected}, found {numbers(found)}"
    for what, wanted, has in (
        ("owner", node.uid, found.uid),
        ("group", node.gid, found.gid),
        ("mode", node.mode, stat.S_IMODE(found.mode)),
    ):
        if wanted is not None and wanted != has:
            form = "%04o" if what == "mode" else "%d"
            yield f"device node {node.path}: expected {what} {form % wanted}, found {form % has}"


def numbers(seen: Seen) -> str:
    """The type and numbers of a device node, such as ``c 1:8``."""
    major, minor = seen.device
    return "%s %d:%d" % ("c" if stat.S_ISCHR(seen.mode) else "b", major, minor)


def _mount(mounts: Mapping[str, str], mount: Mount) -> Iterator[str]:
    kind = mounts.get(mount.container_path)
    if kind is None:
        yield f"mount {mount.container_path}: expected a mount, found nothing"
    elif not mount.is_bind and mount.type != kind:
        yield f"mount {mount.container_path}: expected type {mount.type}, found {kind}"
