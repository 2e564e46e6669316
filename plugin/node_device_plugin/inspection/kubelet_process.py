"""The kubelet that runs on this node, as its process tells: version and directories."""

from __future__ import annotations

import os
import re
import subprocess
from typing import List, NamedTuple, Optional, Tuple

#: Seconds for ``kubelet --version``.
_PATIENCE = 20


class KubeletProcess(NamedTuple):
    """version: three numbers, None where it does not tell. root_dir: its --root-dir."""

    pid: int
    version: Optional[Tuple[int, ...]]
    root_dir: str


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
            return KubeletProcess(int(pid), _version(os.path.realpath(os.path.join(folder, "exe")), arguments), root)
    return None


def _version(executable: str, arguments: List[str]) -> Optional[Tuple[int, ...]]:
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
        return None
    found = re.search(rb"v(\d+)\.(\d+)\.(\d+)", done.stdout)
    return tuple(int(number) for number in found.groups()) if found else None


def _option(arguments: List[str], name: str) -> Optional[str]:
    for position, argument in enumerate(arguments):
        key, separator, value = argument.partition("=")
        if key == name:
            if separator:
                return value
            if position + 1 < len(arguments):
                return arguments[position + 1]
    return None
