# SPDX-License-Identifier: Apache-2.0
"""Reads facts about a node's running kubelet from its command line and its configuration, and finds its runtime."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from .bounded_reads import text_of
from .node_process import NodeProcess, NotTrusted, listener, named, option, the_only

#: The default of maxPods.
_MAX_PODS = 110
#: The default of --container-runtime-endpoint, from 1.24 on. The socket of the distributions' packages of containerd.
DEFAULT_SOCKET = "/run/containerd/containerd.sock"
#: The services of k3s, RKE2 and k0s, which include the kubelet.
K3S, RKE2, K0S = ("k3s", "k3s-agent"), ("rke2-server", "rke2-agent"), ("k0sworker", "k0scontroller")
#: Sockets of distributions whose kubelet is not a separate process or has no socket option. The default socket is last,
#: because it may belong to Docker's containerd. Each socket has its possible services, the likeliest first.
SERVICES = {
    "/run/k3s/containerd/containerd.sock": (*K3S, *RKE2),
    "/run/k3s/cri-dockerd/cri-dockerd.sock": K3S,
    "/run/k0s/containerd.sock": K0S,
    "/var/snap/microk8s/common/run/containerd.sock": ("snap.microk8s.daemon-containerd",),
    "/run/crio/crio.sock": ("crio",),
    "/run/cri-dockerd.sock": ("cri-docker",),
    DEFAULT_SOCKET: ("containerd",),
}
SOCKETS = tuple(SERVICES)
#: The feature gate of DRA, turned off: on the command line, in YAML or in JSON.
_DRA_OFF = re.compile(r"""\bDynamicResourceAllocation["']?\s*[:=]\s*false\b""")


class KubeletProcess(NamedTuple):
    """A running kubelet. version: as it prints it; None if unknown. root_dir: the value of --root-dir.

    unit: its systemd service, or None. kubeconfig: the file of --kubeconfig, or None. max_pods: how many pods it
    accepts; None if unknown. static_pod_path: the directory of static pods, or None. cri_socket: the socket of the
    container runtime; None if an unreadable configuration may name another one than the default. dra_is_off: whether
    the feature gate of DRA is off, which Kubernetes up to 1.34 allows.
    """

    pid: int
    version: str | None
    root_dir: str
    unit: str | None = None
    kubeconfig: str | None = None
    max_pods: int | None = _MAX_PODS
    static_pod_path: str | None = None
    cri_socket: str | None = DEFAULT_SOCKET
    dra_is_off: bool = False

    @property
    def release(self) -> tuple[int, ...] | None:
        """The three numbers of the version; None if unknown."""
        return tuple(map(int, re.findall(r"\d+", self.version)[:3])) if self.version else None

    @property
    def build(self) -> str:
        """The part of the version after a plus, such as ``k3s1``, or ``stand-in`` for the lab's kubelet stand-in."""
        return (self.version or "").partition("+")[2]


def running_kubelet() -> tuple[KubeletProcess | None, list[str]]:
    """Return the kubelet and an empty list.

    If there is no trusted kubelet, return None and a sentence for each untrusted process with the name ``kubelet``.
    Raises NotTrusted, with a sentence, if there are several. Blocks while ``kubelet --version`` runs, so do not call
    this function on the event loop.
    """
    found, refused = named("kubelet")
    process = the_only("kubelet", found)
    return (kubelet_of(process), []) if process else (None, refused)


def runtime_socket() -> str | None:
    """Return the running kubelet's runtime socket; None if it is unknown, or if not exactly one kubelet runs."""
    try:
        process = the_only("kubelet", named("kubelet")[0])
    except NotTrusted:
        return None
    return _cri_socket(process.arguments, *configuration_of(process.arguments)) if process else None


def likely_socket(sockets: Sequence[str] = SOCKETS) -> str:
    """Return the first socket on which a trusted process listens, else the first that exists, else the default.

    Callers use it if the kubelet has no socket option.
    """
    trusted = (path for path in sockets if os.path.exists(path) and listener(path)[0] is not None)
    return next(trusted, None) or next(filter(os.path.exists, sockets), DEFAULT_SOCKET)


def kubelet_of(process: NodeProcess) -> KubeletProcess:
    """Return the facts of a trusted kubelet process."""
    arguments = process.arguments
    version = re.search(r"v(\d+\.\d+\.\d+\S*)", process.run("--version")[0] or "")
    texts, is_known = configuration_of(arguments)
    return KubeletProcess(
        pid=process.pid,
        version=version.group(1) if version else None,
        root_dir=option(arguments, "--root-dir") or "/var/lib/kubelet",
        unit=process.unit,
        kubeconfig=option(arguments, "--kubeconfig"),
        max_pods=max_pods(
            option(arguments, "--max-pods") or setting(texts, "maxPods"),
            option(arguments, "--pods-per-core") or setting(texts, "podsPerCore"),
            is_known,
        ),
        static_pod_path=option(arguments, "--pod-manifest-path") or setting(texts, "staticPodPath"),
        cri_socket=_cri_socket(arguments, texts, is_known),
        dra_is_off=any(map(_DRA_OFF.search, [option(arguments, "--feature-gates") or "", *texts])),
    )


def max_pods(most: str | None, per_core: str | None, is_known: bool) -> int | None:
    """Return how many pods the kubelet accepts; None if unknown.

    most: maxPods as text. per_core: podsPerCore as text. is_known: whether the configuration was readable.
    """
    try:
        number = int(most) if most else _MAX_PODS if is_known else None
        cores = int(per_core or 0)
    except ValueError:
        return None
    if number is None or cores <= 0:
        return number
    return min(number, cores * (os.cpu_count() or 1))


def _cri_socket(arguments: Sequence[str], texts: Sequence[str], is_known: bool) -> str | None:
    endpoint = option(arguments, "--container-runtime-endpoint") or setting(texts, "containerRuntimeEndpoint")
    path = socket_path(endpoint)
    if os.path.isabs(path):
        return path
    # An unreadable configuration file may set another endpoint.
    return DEFAULT_SOCKET if is_known else None


def configuration_of(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """Return the texts of the kubelet's configuration files, and whether they are known.

    A later text overrides an earlier text. The directory's ``.conf`` files are read in name order.
    """
    path = option(arguments, "--config")
    paths = [path] if path else []
    for each, directories, names in os.walk(option(arguments, "--config-dir") or ""):
        directories.sort()
        paths += [os.path.join(each, name) for name in sorted(names) if name.endswith(".conf")]
    texts = [text for text in map(text_of, paths) if text is not None]
    return texts, bool(texts) or not path


def setting(texts: Sequence[str], key: str) -> str | None:
    """Return a top-level string or number of the kubelet's configuration as text; None if it is not set."""
    return next(filter(None, (value_of(text, key) for text in reversed(texts))), None)


def value_of(text: str, key: str) -> str | None:
    """Return a top-level string or number of a JSON or YAML text. Python's standard library has no YAML parser."""
    data = _as_json(text)
    if isinstance(data, dict):
        value = data.get(key)
        return str(value) if isinstance(value, (str, int)) else None
    pattern = r"""(?m)^[ ]{0,2}["']?%s["']?\s*:\s*(?:"([^"]*)"|'([^']*)'|([^\s#,]+))"""
    match = re.search(pattern % key, text)
    return next((value for value in match.groups() if value is not None), None) if match else None


@functools.lru_cache
def _as_json(text: str) -> Any:
    """A JSON text as data; None for another text. Each text is parsed once, not for each key."""
    with contextlib.suppress(RecursionError, ValueError):
        return json.loads(text)
    return None


def socket_path(endpoint: str | None) -> str:
    """Return the path of an endpoint: a path, ``unix:/path`` or ``unix:///path``. Empty without an endpoint."""
    if not endpoint or not endpoint.startswith("unix:"):
        return endpoint or ""
    return "/" + endpoint[len("unix:") :].lstrip("/")
