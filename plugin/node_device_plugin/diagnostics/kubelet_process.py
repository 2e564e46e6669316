"""Reads the running kubelet's version, directories and runtime from its process."""

from __future__ import annotations

import contextlib
import os
import re
from typing import NamedTuple

from ..support.documents import read_yaml
from ..support.sockets import socket_path
from .node_process import NodeProcess, NotTrusted, named, option, the_only


class KubeletProcess(NamedTuple):
    """A running kubelet. version: three numbers; None if unknown. root_dir: the value of --root-dir.

    build: the part of the version after a plus, such as ``k3s1``, or ``stand-in`` for the lab's kubelet stand-in.
    runtime_socket: the container runtime's socket; None if neither a flag nor the configuration file names one.
    """

    pid: int
    version: tuple[int, ...] | None
    root_dir: str
    runtime_socket: str | None = None
    build: str = ""


def running_kubelet() -> tuple[KubeletProcess | None, list[str]]:
    """Return (kubelet, []), or (None, problems) with one sentence for each untrusted process with the name kubelet.

    Raises NotTrusted if there are several. Blocks while ``kubelet --version`` runs, so do not call it on the event
    loop.
    """
    processes, refused = named("kubelet")
    found = the_only("kubelet", processes)
    if found is None:
        return None, refused
    arguments = found.arguments
    version, build = _version(found)
    root = option(arguments, "--root-dir") or "/var/lib/kubelet"
    return KubeletProcess(found.pid, version, root, _runtime_socket(arguments), build), []


def runtime_socket() -> str | None:
    """The running kubelet's runtime socket; None if not exactly one kubelet runs, or if the kubelet names no socket."""
    try:
        found = the_only("kubelet", named("kubelet")[0])
    except NotTrusted:
        return None
    return _runtime_socket(found.arguments) if found else None


def _version(process: NodeProcess) -> tuple[tuple[int, ...] | None, str]:
    found = re.search(r"v(\d+)\.(\d+)\.(\d+)(?:\+([\w.-]+))?", process.run("--version")[0] or "")
    if not found:
        return None, ""
    *numbers, build = found.groups()
    return tuple(int(number) for number in numbers), build or ""


def _runtime_socket(arguments: list[str]) -> str | None:
    """The runtime's socket, from the flag or else from the configuration file (containerRuntimeEndpoint)."""
    endpoint = option(arguments, "--container-runtime-endpoint")
    path = option(arguments, "--config")
    if endpoint is None and path is not None:
        with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
            data = read_yaml(file.read())
            found = data.get("containerRuntimeEndpoint") if isinstance(data, dict) else None
            endpoint = found if isinstance(found, str) else None
    socket = socket_path(endpoint or "")
    return socket if os.path.isabs(socket) else None
