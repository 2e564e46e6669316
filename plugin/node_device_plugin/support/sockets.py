"""Where the plugin's own sockets are, below the kubelet's device plugin directory; and the runtime's, usually."""

from __future__ import annotations

import errno
import os
import socket

#: A folder of their own: when the kubelet starts it removes the sockets beside its own, not folders.
SOCKET_DIRECTORY = "node-device-plugin"


#: Environment of an instance that may serve beside another one on its node, because the kubelet is of 1.37 or later:
#: "true"; and the path of a status socket of its own, for the probes of its pod.
OVERLAP, INSTANCE_SOCKET = "NODE_DEVICE_PLUGIN_OVERLAP", "NODE_DEVICE_PLUGIN_INSTANCE_SOCKET"

#: Where runtimes that follow the distributions listen.
RUNTIME_SOCKET = "/run/containerd/containerd.sock"


def status_socket(kubelet_device_plugin_dir: str) -> str:
    """The socket on which the running plugin answers its own commands: who has the configuration can find it."""
    return os.path.join(kubelet_device_plugin_dir, SOCKET_DIRECTORY, "status.sock")


def socket_path(endpoint: str) -> str:
    """The path of a socket that is named as gRPC and the kubelet name it: by itself, ``unix:/path``, ``unix:///path``."""
    if not endpoint.startswith("unix:"):
        return endpoint
    return "/" + endpoint[len("unix:") :].lstrip("/")


def answers(path: str) -> bool:
    """Whether a process listens on the socket at ``path``: one that was killed leaves its socket behind."""
    with socket.socket(socket.AF_UNIX) as tried:
        # Where the process is too busy to take in a connection this fails at once, with EAGAIN.
        tried.setblocking(False)
        return tried.connect_ex(path) not in (errno.ECONNREFUSED, errno.ENOENT)


def directory_is_lost(error: OSError) -> bool:
    """Whether the folder of a socket was deleted, and our sandbox or pod keeps us from the new one (`kubeadm reset`).

    A mount shows the deleted folder until the next start: nothing can be made in it (ENOENT), nor beside it (EROFS).
    """
    return error.errno in (errno.ENOENT, errno.EROFS)
