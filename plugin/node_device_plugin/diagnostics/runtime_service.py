"""Finds the systemd service of the node's container runtime, whose journal explains its failures."""

from __future__ import annotations

import contextlib
import os
import re

from ..support.bounded_reads import beginning_of
from ..support.kubelet_process import DEFAULT_SOCKET, KubeletProcess, likely_socket, runtime_socket, socket_path
from ..support.node_process import peer, unit_in

#: The directories of unit files (systemd.unit(5)).
_UNIT_DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
)
#: The services of k3s, RKE2 and k0s, which include the kubelet.
_K3S, _RKE2, _K0S = ("k3s", "k3s-agent"), ("rke2-server", "rke2-agent"), ("k0sworker", "k0scontroller")
#: Possible services of each of kubelet_process.SOCKETS, the likeliest first.
_SERVICES = {
    "/run/k3s/containerd/containerd.sock": (*_K3S, *_RKE2),
    "/run/k3s/cri-dockerd/cri-dockerd.sock": _K3S,
    "/run/k0s/containerd.sock": _K0S,
    "/var/snap/microk8s/common/run/containerd.sock": ("snap.microk8s.daemon-containerd",),
    "/run/crio/crio.sock": ("crio",),
    "/run/cri-dockerd.sock": ("cri-docker",),
    DEFAULT_SOCKET: ("containerd",),
}
_KUBELETS = {
    **{name: name for name in (*_K3S, *_RKE2, *_K0S)},
    "snap.microk8s.daemon-containerd": "snap.microk8s.daemon-kubelite",
}


def cri_socket(given: str | None, kubelet: KubeletProcess | None = None) -> str:
    """The path of the runtime's socket: ``given``, or else the running kubelet's, or else likely_socket.

    kubelet: the running kubelet, if the caller has it.
    """
    return socket_path(given) or (kubelet.cri_socket if kubelet else runtime_socket()) or likely_socket()


def kubelet_service(runtime: str) -> str:
    """The service that runs the kubelet. runtime: the service of the container runtime."""
    return _KUBELETS.get(runtime, "kubelet")


def service_of(path: str, root: str = "/") -> str:
    """The service of a socket, without ``.service``: from the listening process, or else from the socket's path.

    root: the root directory of all files. Blocks while it connects, so do not call this function on the event loop.
    """
    # For a socket-activated service, the peer is systemd itself, which is not a service.
    with contextlib.suppress(OSError):
        found = unit_in(beginning_of(os.path.join(root, "proc/%d/cgroup" % peer(path))))
        if found is not None:
            return found.removesuffix(".service")
    names = _SERVICES.get(re.sub("^/var/run/", "/run/", path), ("containerd",))
    places = [(name, os.path.join(root, each, f"{name}.service")) for name in names for each in _UNIT_DIRECTORIES]
    return next((name for name, place in places if os.path.exists(place)), names[0])
