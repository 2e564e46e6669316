"""What a container has of its devices, and in what that falls short of what it should have.

Standard library only, Python 3.9, and of the package it imports the declaration alone, because Ansible's side compares
on the controller what a container said of itself.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, NamedTuple

from ..declaration.expectations import Expectation
from ..declaration.model import DeviceNode, Mount


class Seen(NamedTuple):
    """A path as a container has it: as stat(2) calls it. device: major and minor number of a device node."""

    mode: int
    uid: int
    gid: int
    device: list[int]


class View(NamedTuple):
    """A container's variables, mount points with their file system types, and its paths.

    path: what is there, or why nothing can be seen of it, in words.
    """

    env: Mapping[str, str]
    mounts: Mapping[str, str]
    path: Callable[[str], Seen | str]


def look_at(path: str, follow: bool = False) -> Seen | str:
    """A path of this file system. follow: whether links are followed."""
    try:
        found = os.stat(path, follow_symlinks=follow)
    except OSError as error:
        return (error.strerror or "").lower()
    return Seen(found.st_mode, found.st_uid, found.st_gid, [os.major(found.st_rdev), os.minor(found.st_rdev)])


def own(paths: Iterable[str]) -> dict[str, Any]:
    """What the container that this process is in has, as JSON takes it; read_own reads it again."""
    seen = {path: look_at(path) for path in paths}
    return {
        "env": dict(os.environ),
        "mounts": mounts_of("self"),
        "paths": {path: each if isinstance(each, str) else each._asdict() for path, each in seen.items()},
    }


def read_own(data: Mapping[str, Any]) -> View:
    """What ``own`` gave, from JSON. Raises KeyError, TypeError where it is something else."""
    paths = {path: each if isinstance(each, str) else Seen(**each) for path, each in dict(data["paths"]).items()}
    return View(dict(data["env"]), dict(data["mounts"]), lambda path: paths.get(path, "it was not looked at"))


def mounts_of(process: int | str) -> dict[str, str]:
    """Mount point to file system type of a process, by its number, or ``self``. OSError where it has ended."""
    with open(f"/proc/{process}/mountinfo", "rb") as file:
        return mount_points(file.read())


def mount_points(mountinfo: bytes) -> dict[str, str]:
    """Mount point to file system type, from a mountinfo of proc(5), in which spaces and the like are octal numbers."""
    mounts = {}
    for line in mountinfo.split(b"\n"):
        before, _, after = line.partition(b" - ")
        if after:
            point = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal.group(1), 8)]), before.split(b" ")[4])
            mounts[os.fsdecode(point)] = os.fsdecode(after.split(b" ")[0])
    return mounts


def mismatches(view: View, expectation: Expectation, host: Callable[[str], Seen | str] | None = None) -> list[str]:
    """In what a container falls short of ``expectation``, but for annotations: one sentence each, expected and found.

    host: a path of the node; None where nobody can look at it, and then a device node's numbers are held to what is
    declared of them alone.
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
    if host is not None:
        there = host(node.host_path)
        if isinstance(there, str):
            yield f"device node {node.path}: {node.host_path} on the host: {there}"
            return
        if _numbers(found) != _numbers(there):
            expected = f"{_numbers(there)} ({node.host_path} on the host)"
            yield f"device node {node.path}: expected numbers {expected}, found {_numbers(found)}"
    elif node.type and node.major is not None and node.minor is not None:
        declared = "%s %d:%d" % (node.type, node.major, node.minor)
        if _numbers(found) != declared:
            yield f"device node {node.path}: expected numbers {declared}, found {_numbers(found)}"
    for what, wanted, has in (
        ("owner", node.uid, found.uid),
        ("group", node.gid, found.gid),
        ("mode", node.mode, stat.S_IMODE(found.mode)),
    ):
        if wanted is not None and wanted != has:
            form = "%04o" if what == "mode" else "%d"
            yield f"device node {node.path}: expected {what} {form % wanted}, found {form % has}"


def _numbers(seen: Seen) -> str:
    major, minor = seen.device
    return "%s %d:%d" % ("c" if stat.S_ISCHR(seen.mode) else "b", major, minor)


def _mount(mounts: Mapping[str, str], mount: Mount) -> Iterator[str]:
    kind = mounts.get(mount.container_path)
    if kind is None:
        yield f"mount {mount.container_path}: expected, found nothing"
    elif not mount.is_bind and mount.type != kind:
        yield f"mount {mount.container_path}: expected type {mount.type}, found {kind}"
