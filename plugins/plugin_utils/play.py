# SPDX-License-Identifier: Apache-2.0
"""The playbook that runs, as other plays see it: who it is, whether it lives, what is said of one that has a node."""

from __future__ import annotations

import contextlib
import datetime
import getpass
import json
import os
import pathlib
import platform
import subprocess
import time
from collections.abc import Mapping
from typing import Any

from ansible import context
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock

#: Seconds between two renewals while an action waits.
_RENEWAL_PERIOD = 60.0
#: Seconds by which each host of a batch has the lock lapse later: at the end of each task a host waits for the others.
_OF_EACH_HOST = 10.0


def wanted_lock(minutes: float, over: str = "", host: str = "", hosts: int = 0) -> dict[str, Any]:
    """This play as module_utils.play_lock takes it.

    minutes: after which the lock lapses. over: owner of a lock that may be taken, ``*`` for anybody's.
    host: the node's name in the inventory; by another one the same play takes it for another node.
    hosts: of the batch, which wait for each other.
    """
    # A task runs in a process that ansible-playbook forked.
    pid = os.getppid()
    controller = _controller()
    books = ", ".join(os.path.basename(path) for path in context.CLIARGS.get("args", ()))
    return {
        "owner": _owner(controller, pid, host),
        "who": f"{_user()}@{platform.node()}",
        "play": books or "ansible",
        "controller": controller,
        "pid": pid,
        "host": host,
        "seconds": minutes * 60 + hosts * _OF_EACH_HOST,
        "over": over,
    }


def environment(lock: Mapping[str, Any]) -> dict[str, str]:
    """What a play's tasks need as their environment, so that modules on the node renew its lock."""
    return {play_lock.VARIABLE: json.dumps({key: value for key, value in lock.items() if key != "over"})}


class Renewal:
    """Keeps a play's lock of a node while an action waits for something. Call it as often as it looks.

    action: the one that waits. task_vars: its own. Nothing is done for a play that took no lock.
    """

    def __init__(self, action: Any, task_vars: Any) -> None:
        self._action = action
        self._task_vars = task_vars
        self._due = time.monotonic() + _RENEWAL_PERIOD

    def __call__(self) -> None:
        """Renew it where that is due. Raises AnsibleError where another play has taken the node."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _RENEWAL_PERIOD
            self._renew()

    def ahead(self, seconds: float) -> None:
        """Renew it for a wait of so many seconds in which nobody can, if that is longer than it lasts."""
        lock = self._lock()
        if lock and seconds > json.loads(lock)["seconds"]:
            self._renew(seconds=seconds)

    def _lock(self) -> str | None:
        # As for a module, which is where the lock is renewed.
        environment: dict[str, str] = {}
        self._action._compute_environment_string(environment)
        return environment.get(play_lock.VARIABLE)

    def _renew(self, **more: float) -> None:
        if self._action._task.check_mode or not self._lock():
            return
        # A node that cannot be reached at this moment is asked again with the next one.
        with contextlib.suppress(AnsibleConnectionFailure):
            result = self._action._execute_module(
                module_name="nodedevices.kubernetes.node_lock",
                module_args={"state": "renewed", **more},
                task_vars=self._task_vars,
            )
            if result.get("failed"):
                raise AnsibleError(result["msg"])


def is_over(holder: Mapping[str, Any]) -> bool:
    """Whether a play is known to have ended; of one from another controller nothing is known."""
    controller, pid = holder["controller"], holder["pid"]
    return controller == _controller() and holder["owner"] != _owner(controller, pid, holder.get("host", ""))


def _owner(controller: str, pid: int, host: str) -> str:
    return f"{controller} {pid} {_started(pid)} {host}".rstrip()


def sentence(holder: Mapping[str, Any]) -> str:
    """Who has a node, since when, and what to do."""
    if (holder["controller"], holder["pid"]) == (_controller(), os.getppid()):
        return (
            f"it is the node that {holder.get('host')} of this play is, too: take one of them out of the inventory, or "
            f"give it its own address"
        )
    return (
        f"another play works on this node: {holder['play']} of {holder['who']} (process {holder['pid']}), since "
        f"{_moment(holder['since'])}. Wait for its end. If it has died, its lock lapses at {_moment(holder['until'])}; "
        f"to take it now, add -e node_devices_lock_break=true"
    )


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _controller() -> str:
    """Tells one machine, boot and container from another: process ids mean nothing elsewhere."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _started(pid: int) -> str:
    """When a process started, which tells it from a later one with its id; empty where there is none."""
    if os.path.isdir("/proc/self"):
        try:
            # After the command's name, which may hold anything: the 22nd field of proc(5)'s stat.
            text = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return text.rpartition(")")[2].split()[19]
    said = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return said.stdout.strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
