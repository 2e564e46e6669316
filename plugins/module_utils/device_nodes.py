# SPDX-License-Identifier: Apache-2.0
"""Reads device nodes from tmpfiles.d lines, from the node, and from the ledger.

The ledger has an entry such as this for each declared device node:

    {"kind": "node", "owner": "host_devices nodes", "type": "c", "major": 1, "minor": 8, "before": null}

``before`` is null if we created the node; removal then deletes the node. Otherwise ``before`` has the node's former
access: {"kind": "node", "mode", "uid", "gid"}.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from .account_numbers import numbers
from .ledger import LedgerConflict

OWNER = "host_devices nodes"
_KINDS = {"c": stat.S_IFCHR, "b": stat.S_IFBLK}


class Device(NamedTuple):
    """A device as the kernel identifies it. kind: c (character) or b (block). number: the result of os.makedev."""

    kind: str
    number: int

    def __str__(self):
        return "%s %d:%d" % (self.kind, os.major(self.number), os.minor(self.number))

    @property
    def in_sysfs(self):
        """The device's path in sysfs. The path exists if the kernel has the device."""
        kind = {"c": "char", "b": "block"}[self.kind]
        return "/sys/dev/%s/%d:%d" % (kind, os.major(self.number), os.minor(self.number))


class DeviceNode:
    """A declared device node. line: the tmpfiles.d line that declares the node."""

    def __init__(self, line):
        self.line = line
        kind, self.path, mode, owner, group, _age, numbers = line.split()
        major, minor = numbers.split(":")
        self.device = Device(kind, os.makedev(int(major), int(minor)))
        self._mode, self._owner, self._group = int(mode, 8), owner, group

    @property
    def access(self):
        """The declared mode, uid and gid. Raises LedgerConflict if the user or group does not exist."""
        return {"mode": self._mode, "uid": _id("users", self._owner), "gid": _id("groups", self._group)}

    def entry(self, before):
        """Return the ledger entry. before: mode, uid and gid before our change; None if we created the node."""
        number = self.device.number
        device = {"type": self.device.kind, "major": os.major(number), "minor": os.minor(number)}
        return {"kind": "node", "owner": OWNER, **device, "before": before and {"kind": "node", **before}}


def parsed(lines):
    """Return the DeviceNode for each path that the tmpfiles.d lines declare. Ignores other lines."""
    nodes = [DeviceNode(line) for line in lines if len(line.split()) == 7 and line[:1] in _KINDS]
    return {node.path: node for node in nodes}


def of_entry(entry):
    """Return the device of a ledger entry."""
    return Device(entry["type"], os.makedev(entry["major"], entry["minor"]))


def is_node(path, device):
    """Return whether the path is a node of exactly this device; None if the path does not exist."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return stat.S_IFMT(found.st_mode) == _KINDS[device.kind] and found.st_rdev == device.number


def access_of(path):
    """Return the mode, uid and gid of the file at a path."""
    found = os.lstat(path)
    return {"mode": stat.S_IMODE(found.st_mode), "uid": found.st_uid, "gid": found.st_gid}


def set_access(path, access):
    """Set the path's mode, uid and gid."""
    os.chown(path, access["uid"], access["gid"])
    os.chmod(path, access["mode"])


def is_the_kernels(path, device):
    """Return whether the kernel uses this path for this device. Source: DEVNAME in the device's uevent in sysfs."""
    try:
        with open(os.path.join(device.in_sysfs, "uevent"), encoding="utf-8") as file:
            return "DEVNAME={}".format(path[len("/dev/") :]) in file.read().splitlines()
    except OSError:
        return False


def in_sysfs(path):
    """Return the subsystem and the sysfs name of a node's device; None if the kernel does not have the device."""
    try:
        found = os.stat(path)
        kind = "c" if stat.S_ISCHR(found.st_mode) else "b" if stat.S_ISBLK(found.st_mode) else None
        if kind is None:
            return None
        directory = os.path.realpath(Device(kind, found.st_rdev).in_sysfs)
        if not os.path.isdir(directory):
            return None
        return os.path.basename(os.path.realpath(os.path.join(directory, "subsystem"))), os.path.basename(directory)
    except OSError:
        return None


def is_device(path):
    """Return whether a path is a device node or a link to one."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode) in _KINDS.values()
    except OSError:
        return False


def shown(device, access):
    """Return a device node as text for a diff."""
    return "%s, mode %04o, owner %d:%d\n" % (device, access["mode"], access["uid"], access["gid"])


def _id(kind, name):
    number = int(name) if name.isdigit() else numbers(**{kind: [name]})[kind][name]
    if number is None:
        raise LedgerConflict(f"the node has no {kind[:-1]} {name}: create it, or set another one in host_devices_nodes")
    return number
