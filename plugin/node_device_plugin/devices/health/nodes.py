"""Checks that the device nodes of a device exist, have the expected type and numbers, and can be opened."""

from __future__ import annotations

import errno
import os
import stat

from ...declaration import Device
from ...declaration.model import DeviceNode
from ..reason import Reason

#: Open flags by the container's permissions. An open never blocks and never takes a controlling terminal.
_ACCESS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR}
_FLAGS = os.O_NONBLOCK | os.O_NOCTTY


def unhealthy_reason(device: Device) -> str | None:
    """Why a device cannot be used, or None. Reads the file system, so it must not run in the event loop."""
    for node in device.nodes:
        try:
            status = os.stat(node.host_path)
        except OSError as error:
            return _reason(node, str(error.strerror))
        if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
            return _reason(node, "not a device node")
        problem = _other_than_expected(node, status)
        if problem is not None:
            return _reason(node, problem)
    return None


def open_problem(device: Device) -> str | None:
    """Why a device's nodes cannot be opened as a container would open them, or None. A busy node (EBUSY) passes."""
    for node in device.nodes:
        wanted = "".join(letter for letter in "rw" if letter in node.permissions)
        try:
            os.close(os.open(node.host_path, _ACCESS[wanted] | _FLAGS))
        except OSError as error:
            if error.errno != errno.EBUSY:
                return _reason(node, f"cannot be opened: {error.strerror}")
    return None


def _reason(node: DeviceNode, why: str) -> Reason:
    return Reason(f"{node.host_path}: {why}", why)


def _other_than_expected(node: DeviceNode, status: os.stat_result) -> str | None:
    if node.type is None and node.major is None and node.minor is None:
        return None
    kind = "c" if stat.S_ISCHR(status.st_mode) else "b"
    found = (kind, os.major(status.st_rdev), os.minor(status.st_rdev))
    expected = (node.type, node.major, node.minor)
    if all(want in (None, has) for want, has in zip(expected, found)):
        return None
    wanted = "{} {}:{}".format(*tuple("any" if part is None else part for part in expected))
    return "expected %s, found %s %d:%d" % (wanted, *found)
