"""Paths of the plugin's sockets in the device plugin directory, and the runtime's usual socket."""

from __future__ import annotations

import errno
import os
import socket

#: The directory of our sockets. When the kubelet starts, it removes sockets next to its own, but no
#: directories.
SOCKET_DIRECTORY = "node-device-plugin"


#: Environment variables of an instance that may run beside another instance on its node (kubelet
#: 1.37 or later). OVERLAP is "true". INSTANCE_SOCKET is the path of the instance's own status
#: socket, for the probes of its pod.
OVERLAP, INSTANCE_SOCKET = "NODE_DEVICE_PLUGIN_OVERLAP", "NODE_DEVICE_PLUGIN_INSTANCE_SOCKET"

#: The containerd socket of the distributions' packages.
RUNTIME_SOCKET = "/run/containerd/containerd.sock"


def status_socket(kubelet_device_plugin_dir: str) -> str:
    """The socket for the running plugin's own commands. The configuration determines its path."""
    return os.path.join(kubelet_device_plugin_dir, SOCKET_DIRECTORY, "status.sock")


def socket_path(endpoint: str) -> str:
    """The path of a socket, given as a path, ``unix:/path`` or ``unix:///path`` (gRPC, kubelet)."""
    if not endpoint.startswith("unix:"):
        return endpoint
    return "/" + endpoint[len("unix:") :].lstrip("/")


def answers(path: str) -> bool:
    """Whether a process listens on the socket at ``path``. A killed process leaves its socket."""
    with socket.socket(socket.AF_UNIX) as tried:
        # If the process is too busy to accept, a non-blocking connect fails at once with EAGAIN.
        tried.setblocking(False)
        return tried.connect_ex(path) not in (errno.ECONNREFUSED, errno.ENOENT)


def directory_is_lost(error: OSError) -> bool:
    """Whether a socket's directory was deleted and our sandbox or pod cannot see the new one.

    Example: `kubeadm reset`. Until the next start, the mount shows the deleted directory. Creating
    a file in it (ENOENT) or beside it (EROFS) fails.
    """
    return error.errno in (errno.ENOENT, errno.EROFS)
