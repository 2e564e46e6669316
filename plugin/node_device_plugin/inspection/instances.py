"""The plugin's processes on this node, as their command lines tell. One serves; others wait until it ends."""

from __future__ import annotations

import os
from typing import Iterator, List, NamedTuple, Optional, Tuple

_PROGRAM = "node-device-plugin"
_MODULE = "node_device_plugin"


class Commands(NamedTuple):
    """What somebody on this node types to restart the plugin, to have it read its file anew, and to see its log."""

    restart: str
    reload: str
    log: str


#: Of the role's service.
SERVICE = Commands(
    "systemctl restart node-device-plugin",
    "systemctl reload node-device-plugin",
    "journalctl --unit node-device-plugin --lines 50",
)


class Pod(NamedTuple):
    """The plugin in a DaemonSet's pod: its process, and its configuration by a path of this node."""

    pid: int
    config: str

    @property
    def commands(self) -> Commands:
        """The same for it."""
        restart = "kill %d    # the kubelet starts its container anew" % self.pid
        log = "kubectl get pods --all-namespaces    # its log: kubectl logs --namespace NAMESPACE POD"
        return Commands(restart, restart, log)


def running_instances(proc: str = "/proc") -> List[int]:
    """The process ids of every ``node-device-plugin run``."""
    return sorted(pid for pid, _arguments in _instances(proc))


def running_pod(proc: str = "/proc") -> Optional[Pod]:
    """The plugin that runs with a root directory of its own in which it has its configuration; None for none."""
    for pid, arguments in sorted(_instances(proc)):
        config = _config(arguments)
        # What is in the root of another mount namespace is not what is here by the same path.
        path = os.path.join(proc, str(pid), "root", config.lstrip("/"))
        if config and not os.path.exists(config) and os.path.exists(path):
            return Pod(pid, path)
    return None


def _config(arguments: List[str]) -> str:
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--config":
            return value if equals else "".join(arguments[position + 1 : position + 2])
    return ""


def _instances(proc: str) -> Iterator[Tuple[int, List[str]]]:
    """Each with its arguments."""
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            with open(os.path.join(proc, pid, "cmdline"), "rb") as file:
                words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
        except OSError:
            continue
        # The script itself, its interpreter with it, or the interpreter with -m.
        for position, word in enumerate(words[:3]):
            is_ours = os.path.basename(word) == _PROGRAM or (word == _MODULE and words[position - 1] == "-m")
            if is_ours and words[position + 1 : position + 2] == ["run"]:
                yield int(pid), words[position + 2 :]
                break
