# SPDX-License-Identifier: Apache-2.0
"""Device nodes as tmpfiles.d describes them, as they are, and what the ledger knows of them.

Runs on nodes: Python 3.9, standard library only. The ledger has an entry for each device node that was asked for:

    {"kind": "node", "owner": "host_devices nodes", "type": "c", "major": 1, "minor": 8, "before": null}

``before`` is null where we made the node, which then goes with us; else {"kind": "node", "mode", "uid", "gid"} of it.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from typing import NamedTuple

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import LedgerConflict

OWNER = "host_devices nodes"
_KINDS = {"c": stat.S_IFCHR, "b": stat.S_IFBLK}


class Device(NamedTuple):
    """A device as the kernel knows it. kind: c or b."""

    kind: str
    number: int

    def __str__(self):
        return "%s %d:%d" % (self.kind, os.major(self.number), os.minor(self.number))

    @property
    def in_sysfs(self):
        """Where sysfs has it, if the kernel has it."""
        kind = {"c": "char", "b": "block"}[self.kind]
        return "/sys/dev/%s/%d:%d" % (kind, os.major(self.number), os.minor(self.number))


class DeviceNode:
    """A device node. line: of tmpfiles.d."""

    def __init__(self, line):
        self.line = line
        kind, self.path, mode, owner, group, _age, numbers = line.split()
        major, minor = numbers.split(":")
        self.device = Device(kind, os.makedev(int(major), int(minor)))
        self._mode, self._owner, self._group = int(mode, 8), owner, group

    @property
    def access(self):
        """Mode, uid and gid that it is to have. Raises LedgerConflict where the node has no such user or group."""
        return {
            "mode": self._mode,
            "uid": _id(self._owner, lambda name: pwd.getpwnam(name).pw_uid, "user"),
            "gid": _id(self._group, lambda name: grp.getgrnam(name).gr_gid, "group"),
        }

    def entry(self, before):
        """Its entry in the ledger."""
        number = self.device.number
        device = {"type": self.device.kind, "major": os.major(number), "minor": os.minor(number)}
        return {"kind": "node", "owner": OWNER, **device, "before": before and {"kind": "node", **before}}


def parsed(lines):
    """Lines of tmpfiles.d: path to DeviceNode; what others wrote there is left out."""
    nodes = [DeviceNode(line) for line in lines if len(line.split()) == 7 and line[:1] in _KINDS]
    return {node.path: node for node in nodes}


def before(entry):
    """Mode, uid and gid that it had before us; None where we made it."""
    return entry["before"] and {key: entry["before"][key] for key in ("mode", "uid", "gid")}


def of_entry(entry):
    """The device of an entry of the ledger."""
    return Device(entry["type"], os.makedev(entry["major"], entry["minor"]))


def is_node(path, device):
    """Whether the path is a node of this very device; None where there is nothing."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return stat.S_IFMT(found.st_mode) == _KINDS[device.kind] and found.st_rdev == device.number


def access_of(path):
    """Mode, uid and gid of what is there."""
    found = os.lstat(path)
    return {"mode": stat.S_IMODE(found.st_mode), "uid": found.st_uid, "gid": found.st_gid}


def set_access(path, access):
    """Put mode, uid and gid back."""
    os.chown(path, access["uid"], access["gid"])
    os.chmod(path, access["mode"])


def is_the_kernels(path, device):
    """Whether the kernel itself has this device with this node (DEVNAME of its uevent in sysfs)."""
    try:
        with open(os.path.join(device.in_sysfs, "uevent"), encoding="utf-8") as file:
            return "DEVNAME={}".format(path[len("/dev/") :]) in file.read().splitlines()
    except OSError:
        return False


def in_sysfs(path):
    """Subsystem and name of the device behind a node; None where sysfs has none, or the path is no device node."""
    try:
        found = os.stat(path)
        kind = "c" if stat.S_ISCHR(found.st_mode) else "b" if stat.S_ISBLK(found.st_mode) else None
        if kind is None:
            return None
        directory = os.path.realpath(Device(kind, found.st_rdev).in_sysfs)
        return os.path.basename(os.path.realpath(os.path.join(directory, "subsystem"))), os.path.basename(directory)
    except OSError:
        return None


def is_device(path):
    """Whether a path is a device node, or leads to one."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode) in _KINDS.values()
    except OSError:
        return False


def shown(device, access):
    """As a diff shows it."""
    return "%s, mode %04o, owner %d:%d\n" % (device, access["mode"], access["uid"], access["gid"])


def _id(name, look_up, what):
    if name.isdigit():
        return int(name)
    try:
        return look_up(name)
    except KeyError:
        raise LedgerConflict(f"the node has no {what} {name}") from None
