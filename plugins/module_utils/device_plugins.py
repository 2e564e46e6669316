# SPDX-License-Identifier: Apache-2.0
"""Finds a node's device plugins by their sockets and the kubelet's checkpoint."""

from __future__ import annotations

import os
import re
import socket
import struct
import time

from .node_device_plugin.kubelet import checkpoint
from .node_device_plugin.support import bounded_reads
from .node_device_plugin.support.node_process import peer

# Seconds that a status request may take.
_TIMEOUT = 5
# Entries of a directory and its subdirectories. Any pod that mounts the directory can fill it.
_MOST_ENTRIES = 10000
_OWN_DIRECTORY = "node-device-plugin"
_UNIT = "node-device-plugin.service"
# A DRA driver's socket for the kubelet is <driver>-reg.sock or <driver>-<pod uid>-reg.sock. CSI drivers use the same
# directory and ending. From Kubernetes 1.37 on, a path that would be too long has a hash of the uid, in base64. A hash
# without a capital letter or underscore (one of 400) is taken for a part of the name. A name of more than about 50
# characters is not in the path at all, so such a driver is not found. Source: function RollingUpdateRegistrarSocketFile
# of package kubeletplugin of k8s.io/dynamic-resource-allocation.
_REGISTRATION = re.compile(
    r"(?P<driver>[a-z0-9.-]+?)"
    r"(-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|-(?=[a-z0-9-]*[A-Z_])[A-Za-z0-9_-]{11})?"
    r"-reg\.sock"
)


def device_plugin_facts(directory, registry, proc="/proc"):
    """Return the facts about device plugins in a kubelet's device plugin directory.

    registry: the kubelet's directory plugins_registry.

    The result has these keys. instance: mode (service, pod or process) and resources of our running plugin, or None.
    registered: names of resources with at least one device in the kubelet's checkpoint. others: sockets on which other
    plugins listen. drivers: names of DRA drivers that listen in the registry.
    """
    return {
        "instance": _instance(directory, proc),
        "registered": _registered(directory),
        "others": _others(directory),
        "drivers": _drivers(registry),
    }


def _instance(directory, proc):
    until = time.monotonic() + _TIMEOUT
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT)
            connection.connect(os.path.join(directory, _OWN_DIRECTORY, "status.sock"))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = bounded_reads.received(connection, until)
        state = bounded_reads.json_of(answer.partition(b"\r\n\r\n")[2])
        resources = [_text(each["name"]) for each in state["resources"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {"mode": _mode(struct.unpack("3i", credentials)[0], proc), "resources": resources}


def _text(value):
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _mode(pid, proc):
    """Return service, pod or process. A service runs in our systemd unit, a pod in its own PID namespace."""
    try:
        with open("%s/%d/cgroup" % (proc, pid)) as file:
            if _UNIT in file.read():
                return "service"
        own = os.readlink("%s/%d/ns/pid" % (proc, pid)) != os.readlink(f"{proc}/1/ns/pid")
    except OSError:
        return "process"
    return "pod" if own else "process"


def _registered(directory):
    try:
        return sorted(name for name, devices in checkpoint.read_registered(directory).items() if devices)
    except (OSError, checkpoint.CheckpointError):
        return []


def _others(directory):
    found, left, pending = [], _MOST_ENTRIES, [directory]
    while pending and left:
        parent = pending.pop()
        entries = bounded_reads.entries(parent, left)
        left -= len(entries)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending += [] if entry.path == os.path.join(directory, _OWN_DIRECTORY) else [entry.path]
            elif entry.path != os.path.join(directory, "kubelet.sock") and _listens(entry.path):
                found.append(entry.path)
    return sorted(found)


def _drivers(registry):
    matches = [(entry, _REGISTRATION.fullmatch(entry.name)) for entry in bounded_reads.entries(registry, _MOST_ENTRIES)]
    return sorted(
        {match["driver"] for entry, match in matches if match and "csi" not in match["driver"] and _listens(entry.path)}
    )


def _listens(path):
    """Return whether a process listens on a socket."""
    try:
        peer(path)
    except OSError:
        return False
    return True
