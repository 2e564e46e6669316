"""The systemd service of the node's container runtime, whose journal says what is wrong with it."""

from __future__ import annotations

import contextlib
import os
import re

from ..support.sockets import RUNTIME_SOCKET
from .node_process import peer

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


def _listening(path: str, root: str) -> str | None:
    # A socket that systemd listens on has systemd itself at its other end, which is no service.
    with contextlib.suppress(OSError):
        with open(_below(root, "/proc/%d/cgroup" % peer(path))) as file:
            found = _SERVICE.findall(file.read())
        return str(found[-1]) if found else None
    return None


def _unit_file(root: str, directory: str, name: str) -> str:
    return os.path.join(root, directory, f"{name}.service")


def _below(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))
