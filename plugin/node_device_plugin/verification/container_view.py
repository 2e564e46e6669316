"""What a container has of its devices, and in what that falls short of what it should have.

Standard library only, Python 3.9, and of the package it imports the declaration alone, because Ansible's side compares
on the controller what a container said of itself.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Union

from ..declaration.expectations import Expectation
from ..declaration.model import DeviceNode, Mount


class Seen(NamedTuple):
    """A path as a container has it: as stat(2) calls it. device: major and minor number of a device node."""

    mode: int
    uid: int
    gid: int
    device: List[int]


class View(NamedTuple):
    """A container's variables, mount points with their file system types, and its paths.

    path: what is there, or why nothing can be seen of it, in words.
    """

    env: Mapping[str, str]
    mounts: Mapping[str, str]
    path: Callable[[str], Union[Seen, str]]


def look_at(path: str) -> Union[Seen, str]:
    """A path of this file system, not followed where it is a link."""
    try:
        found = os.lstat(path)
    except OSError as error:
        return (error.strerror or "").lower()
    return seen_in(found)


def seen_in(found: os.stat_result) -> Seen:
    """The same from what the system has said."""
    return Seen(found.st_mode, found.st_uid, found.st_gid, [os.major(found.st_rdev), os.minor(found.st_rdev)])


def own(paths: Iterable[str]) -> Dict[str, Any]:
    """What the container that this process is in has, as JSON takes it; read_own reads it again."""
    with open("/proc/self/mountinfo", "rb") as file:
        mounts = mount_points(file.read())
    seen = {path: look_at(path) for path in paths}
    return {
        "env": dict(os.environ),
        "mounts": mounts,
        "paths": {path: each if isinstance(each, str) else each._asdict() for path, each in seen.items()},
    }


def read_own(data: Mapping[str, Any]) -> View:
    """What ``own`` gave, from JSON. Raises KeyError, TypeError where it is something else."""
    paths = {path: each if isinstance(each, str) else Seen(**each) for path, each in dict(data["paths"]).items()}
    return View(dict(data["env"]), dict(data["mounts"]), lambda path: paths.get(path, "it was not looked at"))


def mount_points(mountinfo: bytes) -> Dict[str, str]:
    """Mount point to file system type, from a mountinfo of proc(5), in which spaces and the like are octal numbers."""
    mounts = {}
    for line in mountinfo.split(b"\n"):
        before, _, after = line.partition(b" - ")
        if after:
            point = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal.group(1), 8)]), before.split(b" ")[4])
            mounts[os.fsdecode(point)] = os.fsdecode(after.split(b" ")[0])
    return mounts


def mismatches(
    view: View, expectation: Expectation, host: Optional[Callable[[str], Union[Seen, str]]] = None
) -> List[str]:
    """In what a container falls short of ``expectation``, but for annotations: one sentence each, expected and found.

    host: a path of the node; None where nobody can look at it, and then a device node's numbers are held to what is
    declared of them alone.
    """
    found: List[str] = []
    for name, allowed in expectation.env.items():
        value = view.env.get(name)
        if value not in allowed:
            found.append(
                "variable %s: expected %s, found %s"
                % (name, " or ".join(map(repr, allowed)), "nothing" if value is None else repr(value))
            )
    for node in expectation.nodes:
        found.extend(_node(view, node, host))
    for mount in expectation.mounts:
        found.extend(_mount(view.mounts, mount))
    return found


def _node(view: View, node: DeviceNode, host: Optional[Callable[[str], Union[Seen, str]]]) -> Iterator[str]:
    found = view.path(node.path)
    if isinstance(found, str):
        yield "device node %s: %s" % (node.path, found)
        return
    if not (stat.S_ISCHR(found.mode) or stat.S_ISBLK(found.mode)):
        yield "%s: expected a device node, found another kind of file" % node.path
        return
    if host is not None:
        there = host(node.host_path)
        if isinstance(there, str):
            yield "device node %s: %s on the host: %s" % (node.path, node.host_path, there)
            return
        if _numbers(found) != _numbers(there):
            yield "device node %s: expected numbers %s (%s on the host), found %s" % (
                node.path,
                _numbers(there),
                node.host_path,
                _numbers(found),
            )
    elif node.type and node.major is not None and node.minor is not None:
        declared = "%s %d:%d" % (node.type, node.major, node.minor)
        if _numbers(found) != declared:
            yield "device node %s: expected numbers %s, found %s" % (node.path, declared, _numbers(found))
    for what, wanted, has in (
        ("owner", node.uid, found.uid),
        ("group", node.gid, found.gid),
        ("mode", node.mode, stat.S_IMODE(found.mode)),
    ):
        if wanted is not None and wanted != has:
            form = "%04o" if what == "mode" else "%d"
            yield "device node %s: expected %s %s, found %s" % (node.path, what, form % wanted, form % has)


def _numbers(seen: Seen) -> str:
    major, minor = seen.device
    return "%s %d:%d" % ("c" if stat.S_ISCHR(seen.mode) else "b", major, minor)


def _mount(mounts: Mapping[str, str], mount: Mount) -> Iterator[str]:
    kind = mounts.get(mount.container_path)
    if kind is None:
        yield "mount %s: expected, found nothing" % mount.container_path
    elif not mount.is_bind and mount.type != kind:
        yield "mount %s: expected type %s, found %s" % (mount.container_path, mount.type, kind)
