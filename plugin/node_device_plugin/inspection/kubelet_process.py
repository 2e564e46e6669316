"""The kubelet that runs on this node, as its process tells: version, directories, runtime."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from typing import List, NamedTuple, Optional, Tuple

from ..documents import read_yaml
from ..sockets import socket_path

#: Seconds for ``kubelet --version``.
_PATIENCE = 20


class KubeletProcess(NamedTuple):
    """version: three numbers, None where it does not tell. root_dir: its --root-dir.

    build: what its version has behind a plus, such as ``k3s1``, or ``stand-in`` for the lab's double of a kubelet.
    runtime_socket: of the container runtime that it uses, None where it is not told which.
    """

    pid: int
    version: Optional[Tuple[int, ...]]
    root_dir: str
    runtime_socket: Optional[str] = None
    build: str = ""


def running_kubelet(proc: str = "/proc") -> Optional[KubeletProcess]:
    """The running kubelet, None where there is none. Starts a program and waits for it: not for the event loop."""
    for pid in filter(str.isdigit, os.listdir(proc)):
        folder = os.path.join(proc, pid)
        try:
            with open(os.path.join(folder, "comm")) as file:
                if file.read().strip() != "kubelet":
                    continue
            with open(os.path.join(folder, "cmdline"), "rb") as binary:
                arguments = [os.fsdecode(word) for word in binary.read().split(b"\0")[:-1]]
        except OSError:
            continue
        if arguments:
            root = _option(arguments, "--root-dir") or "/var/lib/kubelet"
            version, build = _version(os.path.realpath(os.path.join(folder, "exe")), arguments)
            return KubeletProcess(int(pid), version, root, _runtime_socket(arguments), build)
    return None


def _version(executable: str, arguments: List[str]) -> Tuple[Optional[Tuple[int, ...]], str]:
    command = [arguments[0] if os.path.isabs(arguments[0]) else executable]
    if os.path.basename(executable).startswith("python"):
        # A kubelet that is a script: its interpreter, by the name that has its environment, and the script.
        command += [word for word in arguments[1:] if not word.startswith("-")][:1]
    try:
        done = subprocess.run(
            [*command, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None, ""
    found = re.search(rb"v(\d+)\.(\d+)\.(\d+)(?:\+([\w.-]+))?", done.stdout)
    if not found:
        return None, ""
    *numbers, build = found.groups()
    return tuple(int(number) for number in numbers), (build or b"").decode()


def _runtime_socket(arguments: List[str]) -> Optional[str]:
    """By its flag, or its configuration file (KubeletConfiguration, containerRuntimeEndpoint)."""
    endpoint = _option(arguments, "--container-runtime-endpoint")
    path = _option(arguments, "--config")
    if endpoint is None and path is not None:
        with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
            data = read_yaml(file.read())
            found = data.get("containerRuntimeEndpoint") if isinstance(data, dict) else None
            endpoint = found if isinstance(found, str) else None
    socket = socket_path(endpoint or "")
    return socket if os.path.isabs(socket) else None


def _option(arguments: List[str], name: str) -> Optional[str]:
    """The last one counts: a unit's own line, and what variables add to it."""
    for position, argument in reversed(list(enumerate(arguments))):
        key, separator, value = argument.partition("=")
        if key == name:
            if separator:
                return value
            if position + 1 < len(arguments):
                return arguments[position + 1]
    return None
