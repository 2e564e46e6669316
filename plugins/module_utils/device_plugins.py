# SPDX-License-Identifier: Apache-2.0
"""Finds a node's device plugins by their sockets and the kubelet's checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_process import peer

# Seconds that a status request may take.
_TIMEOUT = 5
_OWN_DIRECTORY = "node-device-plugin"
_CHECKPOINT = "kubelet_internal_checkpoint"
_UNIT = "node-device-plugin.service"
# A DRA driver's socket for the kubelet is <driver>-reg.sock or <driver>-<pod uid>-reg.sock. CSI drivers use the same
# directory and ending. Source: package kubeletplugin of k8s.io/dynamic-resource-allocation.
_REGISTRATION = re.compile(r"(?P<driver>[a-z0-9.-]+?)(-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?-reg\.sock")


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
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT)
            connection.connect(os.path.join(directory, _OWN_DIRECTORY, "status.sock"))
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            connection.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        resources = [each["name"] for each in json.loads(answer.partition(b"\r\n\r\n")[2])["resources"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return {"mode": _mode(struct.unpack("3i", credentials)[0], proc), "resources": resources}


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
        with open(os.path.join(directory, _CHECKPOINT)) as file:
            known = json.load(file)["Data"]["RegisteredDevices"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return sorted(name for name, devices in (known or {}).items() if devices)


def _others(directory):
    found = []
    for parent, directories, files in os.walk(directory):
        if parent == directory and _OWN_DIRECTORY in directories:
            directories.remove(_OWN_DIRECTORY)
        for name in files:
            path = os.path.join(parent, name)
            if path != os.path.join(directory, "kubelet.sock"):
                with contextlib.suppress(OSError):
                    # `peer` raises OSError if no process listens.
                    peer(path)
                    found.append(path)
    return sorted(found)


def _drivers(registry):
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(registry):
            match = _REGISTRATION.fullmatch(name)
            if match and "csi" not in match["driver"]:
                with contextlib.suppress(OSError):
                    peer(os.path.join(registry, name))
                    found.add(match["driver"])
    return sorted(found)
