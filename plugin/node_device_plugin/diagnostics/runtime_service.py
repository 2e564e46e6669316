"""The systemd service of the node's container runtime, whose journal says what is wrong with it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
from typing import Optional, Tuple

from ..support.sockets import RUNTIME_SOCKET

#: Where unit files are, systemd.unit(5).
_UNIT_DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
)
#: Socket to the services that may listen there, the likeliest first. Those of k3s, RKE2 and k0s are the kubelet, too.
_KNOWN = {
    "/run/k3s/containerd/containerd.sock": ("k3s", "k3s-agent", "rke2-server", "rke2-agent"),
    "/run/k0s/containerd.sock": ("k0sworker", "k0scontroller"),
    "/var/snap/microk8s/common/run/containerd.sock": ("snap.microk8s.daemon-containerd",),
    RUNTIME_SOCKET: ("containerd",),
    "/run/crio/crio.sock": ("crio",),
    "/run/cri-dockerd.sock": ("cri-docker",),
}
_KUBELETS = {
    **{name: name for names in list(_KNOWN.values())[:2] for name in names},
    "snap.microk8s.daemon-containerd": "snap.microk8s.daemon-kubelite",
}
_SERVICE = re.compile(r"/([^/\n]+)\.service(?=[/\n]|$)")
#: Seconds that a connection may take.
_TIMEOUT = 5


def likely_socket(root: str = "/") -> str:
    """The socket of a node whose kubelet names none (that of k3s is no process of its own); the usual one else."""
    return next((path for path in _KNOWN if os.path.exists(_below(root, path))), RUNTIME_SOCKET)


def kubelet_service(runtime: str) -> str:
    """The service that the kubelet is, or is a part of, beside a container runtime's."""
    return _KUBELETS.get(runtime, "kubelet")


def service_of(path: str, root: str = "/") -> str:
    """Whose socket it is: of the process that listens, else by where it is. Connects and waits: not for the event loop.

    root: where files are. Returns its name without ``.service``.
    """
    found = _listening(path, root)
    if found is not None:
        return found
    names = _KNOWN.get(re.sub("^/var/run/", "/run/", path), ("containerd",))
    there = [name for name in names if any(os.path.exists(_unit_file(root, each, name)) for each in _UNIT_DIRECTORIES)]
    return (there or names)[0]


def _listening(path: str, root: str) -> Optional[str]:
    # A socket that systemd listens on has systemd itself at its other end, which is no service.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT)
        connection.connect(path)
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        credentials: Tuple[int, int, int] = struct.unpack("3i", peer)
        with open(_below(root, "/proc/%d/cgroup" % credentials[0])) as file:
            found = _SERVICE.findall(file.read())
        return str(found[-1]) if found else None
    return None


def _unit_file(root: str, directory: str, name: str) -> str:
    return os.path.join(root, directory, "%s.service" % name)


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))
