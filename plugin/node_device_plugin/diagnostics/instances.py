"""Finds the plugin's processes on this node by their command lines."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterator
from typing import NamedTuple

from ..declaration.configuration_file import Source
from ..support.bounded_reads import LARGEST, beginning_of
from ..support.node_process import PROC, NodeProcess, NotTrusted, not_roots_alone, option, peer
from ..support.sockets import status_socket

#: Parts of a path, with the parts of its links.
_MOST_STEPS = 40
_PROGRAM = "node-device-plugin"
_MODULE = "node_device_plugin"


class Commands(NamedTuple):
    """The commands that restart the plugin, reload its configuration and show its log."""

    restart: str
    reload: str
    log: str


#: The commands for the role's service.
SERVICE = Commands(
    "systemctl restart node-device-plugin",
    "systemctl reload node-device-plugin",
    "journalctl --unit node-device-plugin --lines 50",
)
_REPLACE = "kubectl delete pod --namespace NAMESPACE POD    # its DaemonSet replaces it"
_DELETE = f"{_REPLACE}; to find POD: kubectl get pods -A"
#: The commands for a DaemonSet's pod. They name no process, because the plugin runs in a container.
POD = Commands(_DELETE, _DELETE, "kubectl logs --namespace NAMESPACE POD")

#: The id of a pod in /proc/PID/cgroup, where the kubelet may write underscores.
_POD_ID = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})\b")


def ending(pids: Collection[int]) -> str:
    """The commands that end processes. After a kill in a pod, the kubelet waits up to minutes before the next start."""
    of_pods = {pid: identity for pid in pids if (identity := _pod_of(pid))}
    others = [str(pid) for pid in pids if pid not in of_pods]
    lines = ["kill " + " ".join(others)] if others else []
    columns = "NAMESPACE:.metadata.namespace,POD:.metadata.name,ID:.metadata.uid"
    for identity in dict.fromkeys(of_pods.values()):
        lines += [f"kubectl get pods --all-namespaces --output custom-columns={columns} | grep {identity}", _REPLACE]
    return "\n".join(lines)


def _pod_of(pid: int) -> str:
    """The id of the pod that has a process; empty for none. The kubelet writes it, so it is safe in a command."""
    found = _POD_ID.search(beginning_of(os.path.join(PROC, str(pid), "cgroup")))
    return found.group(1).replace("_", "-") if found else ""


def running_instances() -> list[int]:
    """The process ids of every ``node-device-plugin run`` on the node itself, outside containers."""
    return sorted(pid for pid in _claimed() if _is_own(pid))


def pods_configuration(directory: str) -> str | None:
    """The path, on this node, of the configuration of a containerized plugin; None if no plugin serves in a container.

    directory: the kubelet's device plugin directory. The plugin's status socket there identifies its process. The
    answer can be trusted, because only root can create a socket in a directory that only root can write.
    """
    path = status_socket(directory)
    if not_roots_alone(os.path.dirname(path)) is not None:
        return None
    try:
        pid = peer(path)
        if os.readlink("%s/%d/ns/pid" % (PROC, pid)) == os.readlink(f"{PROC}/1/ns/pid"):
            return None
        words, root = _words(pid), os.path.join(PROC, str(pid), "root")
        paths = [path for path in (option(words, "--config"), option(words, "--default-config")) if path]
        if not paths or not all(_is_inside(root, path) for path in paths):
            return None
        return Source(*(os.path.join(root, path.lstrip("/")) for path in paths)).chosen
    except OSError:
        return None


def _is_inside(root: str, path: str) -> bool:
    """Whether a path in a container leads to a regular file there, or to nothing.

    An absolute link and ``..`` may lead to the node's own files. A ConfigMap has relative links only.
    """
    found, parts = root, _parts(path)
    for _step in range(_MOST_STEPS):
        if not parts:
            return stat.S_ISREG(os.lstat(found).st_mode) and os.lstat(found).st_size <= LARGEST
        step = os.path.join(found, parts.pop(0))
        try:
            mode = os.lstat(step).st_mode
        except FileNotFoundError:
            return True
        if stat.S_ISLNK(mode):
            target = os.readlink(step)
            if target.startswith("/"):
                return False
            parts = _parts(target) + parts
        elif step.endswith("/.."):
            return False
        else:
            found = step
    return False


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _is_own(pid: int) -> bool:
    try:
        NodeProcess(pid)
    except NotTrusted:
        return False
    return True


def _claimed() -> Iterator[int]:
    for pid in filter(str.isdigit, os.listdir(PROC)):
        words = _words(int(pid))
        # A command line begins with the script, with an interpreter and the script, or with an interpreter and -m.
        for position, word in enumerate(words[:3]):
            is_ours = os.path.basename(word) == _PROGRAM or (word == _MODULE and words[position - 1] == "-m")
            if is_ours and words[position + 1 : position + 2] == ["run"]:
                yield int(pid)
                break


def _words(pid: int) -> list[str]:
    return beginning_of(os.path.join(PROC, str(pid), "cmdline")).split("\0")[:-1]
