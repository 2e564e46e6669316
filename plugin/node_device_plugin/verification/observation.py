"""What a container really got: its process's view, read from the node through /proc (the image needs no shell), and
the runtime's word for its annotations."""

from __future__ import annotations

import os
import re
import stat
from typing import Dict, Iterator, List, Mapping

from ..declaration.expectations import Expectation
from ..declaration.model import DeviceNode, Mount


def shortcomings(pid: int, expectation: Expectation) -> List[str]:
    """In what the process ``pid`` falls short of ``expectation``: one sentence each, expected and found.

    Raises ProcessLookupError where the process has gone.
    """
    root = "/proc/%d/root" % pid
    try:
        environment = _environment(pid)
        mounts = _mounts(pid)
    except FileNotFoundError as error:
        raise ProcessLookupError("the container's process %d has ended" % pid) from error
    found: List[str] = []
    for name, allowed in expectation.env.items():
        value = environment.get(name)
        if value not in allowed:
            found.append(
                "variable %s: expected %s, found %s"
                % (name, " or ".join(map(repr, allowed)), "nothing" if value is None else repr(value))
            )
    for node in expectation.nodes:
        found.extend(_node(root, node))
    for mount in expectation.mounts:
        found.extend(_mount(mounts, mount))
    return found


def annotation_shortcomings(found: Mapping[str, str], expectation: Expectation) -> List[str]:
    """The same for annotations. found: what the runtime says of the container."""
    return [
        "annotation %s: expected %r, found %s" % (name, value, repr(found[name]) if name in found else "nothing")
        for name, value in expectation.annotations.items()
        if found.get(name) != value
    ]


def _environment(pid: int) -> Dict[str, str]:
    with open("/proc/%d/environ" % pid, "rb") as file:
        assignments = os.fsdecode(file.read()).split("\0")
    return dict(assignment.split("=", 1) for assignment in assignments if "=" in assignment)


def _mounts(pid: int) -> Dict[str, str]:
    """Mount point to file system type, as the process sees them (proc(5), mountinfo)."""
    with open("/proc/%d/mountinfo" % pid, "rb") as file:
        return mount_points(file.read())


def mount_points(mountinfo: bytes) -> Dict[str, str]:
    """The same from the file's content, in which spaces and the like are octal numbers."""
    mounts = {}
    for line in mountinfo.split(b"\n"):
        before, _, after = line.partition(b" - ")
        if after:
            point = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal.group(1), 8)]), before.split(b" ")[4])
            mounts[os.fsdecode(point)] = os.fsdecode(after.split(b" ")[0])
    return mounts


def _node(root: str, node: DeviceNode) -> Iterator[str]:
    try:
        found = os.lstat(root + node.path)
    except OSError as error:
        yield "device node %s: %s" % (node.path, (error.strerror or "").lower())
        return
    if not (stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)):
        yield "%s: expected a device node, found another kind of file" % node.path
        return
    try:
        host = os.stat(node.host_path)
    except OSError as error:
        yield "device node %s: %s on the host: %s" % (node.path, node.host_path, (error.strerror or "").lower())
        return
    expected = (stat.S_IFMT(host.st_mode), host.st_rdev)
    if (stat.S_IFMT(found.st_mode), found.st_rdev) != expected:
        yield "device node %s: expected numbers %s (%s on the host), found %s" % (
            node.path,
            _numbers(host),
            node.host_path,
            _numbers(found),
        )
    for what, wanted, has in (
        ("owner", node.uid, found.st_uid),
        ("group", node.gid, found.st_gid),
        ("mode", node.mode, stat.S_IMODE(found.st_mode)),
    ):
        if wanted is not None and wanted != has:
            form = "%04o" if what == "mode" else "%d"
            yield "device node %s: expected %s %s, found %s" % (node.path, what, form % wanted, form % has)


def _numbers(status: os.stat_result) -> str:
    kind = "c" if stat.S_ISCHR(status.st_mode) else "b"
    return "%s %d:%d" % (kind, os.major(status.st_rdev), os.minor(status.st_rdev))


def _mount(mounts: Dict[str, str], mount: Mount) -> Iterator[str]:
    kind = mounts.get(mount.container_path)
    if kind is None:
        yield "mount %s: expected, found nothing" % mount.container_path
    elif mount.type not in (None, "bind", kind):
        yield "mount %s: expected type %s, found %s" % (mount.container_path, mount.type, kind)
