"""Finds the systemd service of the node's container runtime, whose journal explains its failures."""

from __future__ import annotations

import contextlib
import os
import re

from ..support import kubelet_process
from ..support.bounded_reads import beginning_of
from ..support.node_process import peer, unit_in

#: The directories of unit files (systemd.unit(5)).
_UNIT_DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
)
#: The service of the kubelet by the service of the container runtime, if it is not kubelet.
_KUBELETS = {
    **{name: name for name in (*kubelet_process.K3S, *kubelet_process.RKE2, *kubelet_process.K0S)},
    "snap.microk8s.daemon-containerd": "snap.microk8s.daemon-kubelite",
}


def cri_socket(given: str | None, kubelet: kubelet_process.KubeletProcess | None = None) -> str:
    """The path of the runtime's socket: ``given``, or else the running kubelet's, or else likely_socket.

    kubelet: the running kubelet, if the caller has it.
    """
    given = kubelet_process.socket_path(given) or (kubelet.cri_socket if kubelet else kubelet_process.runtime_socket())
    return given or kubelet_process.likely_socket()


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
    names = kubelet_process.SERVICES.get(re.sub("^/var/run/", "/run/", path), ("containerd",))
    places = [(name, os.path.join(root, each, f"{name}.service")) for name in names for each in _UNIT_DIRECTORIES]
    return next((name for name, place in places if os.path.exists(place)), names[0])
