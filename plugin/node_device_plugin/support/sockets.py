"""Paths of the plugin's sockets in the device plugin directory."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat

#: The directory of our sockets. When the kubelet starts, it removes the sockets beside its own
#: socket, but no directories.
SOCKET_DIRECTORY = "node-device-plugin"
#: The mode of this directory, and of other directories that our servers create.
PRIVATE_MODE = 0o700


#: Environment variables of an instance that may run beside another instance on its node. INSTANCE_SOCKET is the path of
#: the instance's own status socket, for the probes of its pod.
OVERLAP, INSTANCE_SOCKET = "NODE_DEVICE_PLUGIN_OVERLAP", "NODE_DEVICE_PLUGIN_INSTANCE_SOCKET"
#: Values of OVERLAP: always (kubelet 1.37 or later), or only while the instance serves no device plugin.
ALWAYS, CLAIMS_ALONE = "true", "claims"
#: Environment variable with the instance's name, such as its DaemonSet. Only instances of one name overlap.
INSTANCE = "NODE_DEVICE_PLUGIN_INSTANCE"


def status_socket(kubelet_device_plugin_dir: str) -> str:
    """The path of the socket on which the plugin answers its own commands."""
    return os.path.join(kubelet_device_plugin_dir, SOCKET_DIRECTORY, "status.sock")


def instance_file(kubelet_device_plugin_dir: str) -> str:
    """The path of the file with the name of the instance that serves on the node; see daemon.single_instance."""
    return os.path.join(kubelet_device_plugin_dir, SOCKET_DIRECTORY, "instance")


def answers(path: str) -> bool:
    """Whether a process listens on the socket at ``path``. A killed process leaves its socket."""
    with socket.socket(socket.AF_UNIX) as tried:
        # If the process is too busy to accept, a non-blocking connect returns EAGAIN instead of waiting.
        tried.setblocking(False)
        return tried.connect_ex(path) not in (errno.ECONNREFUSED, errno.ENOENT)


def directory_is_lost(error: OSError) -> bool:
    """Whether a socket's directory was deleted and our sandbox or pod cannot see the new one.

    `kubeadm reset` deletes the directory. Until our next start, our mount shows the deleted directory,
    and creating a file fails in this directory (ENOENT) and beside it (EROFS).
    """
    return error.errno in (errno.ENOENT, errno.EROFS)


def socket_name(name: str, tail: str) -> str:
    """A short name for a socket of a resource or a driver, because the kernel limits socket paths.

    tail: makes the name unique.
    """
    return "{}-{}.sock".format(re.sub(r"[^A-Za-z0-9-]", "-", name.rpartition("/")[2])[:12], tail)


def remove_sockets(directory: str, prefix: str = "") -> None:
    """Remove the sockets in ``directory`` that do not answer, because a killed instance left them."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(directory):
            if entry.name.startswith(prefix) and entry.name.endswith(".sock"):
                # Other files stay. If a file blocks a new socket, the server reports the error.
                with contextlib.suppress(OSError):
                    if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) and not answers(entry.path):
                        os.unlink(entry.path)
