# SPDX-License-Identifier: Apache-2.0
"""Describes plays to other plays: the node lock of this play, and whether another play has ended."""

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

from ...plugin.node_device_plugin.support.node_process import stat_of
from ..module_utils import play_lock

#: Seconds between two renewals of the lock while an action waits.
_RENEWAL_PERIOD = 60.0
#: Extra seconds of lock time for each host of a batch, because hosts wait for each other after each task.
_OF_EACH_HOST = 10.0


def wanted_lock(minutes: float, over: str = "", host: str = "", hosts: int = 0) -> dict[str, Any]:
    """Return this play's lock as the argument ``wanted`` of module_utils.play_lock.take.

    minutes: time until the lock expires.
    over: owner whose lock this play may take over; ``*`` for any owner.
    host: the node's name in the inventory, which is part of the lock's owner.
    hosts: number of hosts in the batch.
    """
    # The parent is ansible-playbook, which forks a process for each task.
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
    """Return the environment variable that a play's tasks need to renew the play's lock on the node."""
    return {play_lock.VARIABLE: json.dumps({key: value for key, value in lock.items() if key != "over"})}


class Renewal:
    """Renews a play's lock on a node. A waiting action calls the instance at each retry.

    action: the waiting action. task_vars: its variables. If the play holds no lock, calls have no effect.
    """

    def __init__(self, action: Any, task_vars: Any) -> None:
        self._action = action
        self._task_vars = task_vars
        self._due = time.monotonic() + _RENEWAL_PERIOD

    def __call__(self) -> None:
        """Renew the lock if a renewal is due. Raises AnsibleError if another play took the node."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _RENEWAL_PERIOD
            self._renew()

    def ahead(self, seconds: float) -> None:
        """Extend the lock to at least ``seconds``, before a wait without renewals."""
        lock = self._lock()
        if lock and seconds > json.loads(lock)["seconds"]:
            self._renew(seconds=seconds)

    def _lock(self) -> str | None:
        # Read the variable that the module node_lock will read.
        environment: dict[str, str] = {}
        self._action._compute_environment_string(environment)
        return environment.get(play_lock.VARIABLE)

    def _renew(self, **more: float) -> None:
        if self._action._task.check_mode or not self._lock():
            return
        # If the node is unreachable now, the next renewal tries again.
        with contextlib.suppress(AnsibleConnectionFailure):
            result = self._action._execute_module(
                module_name="nodedevices.kubernetes.node_lock",
                module_args={"state": "renewed", **more},
                task_vars=self._task_vars,
            )
            if result.get("failed"):
                raise AnsibleError(result["msg"])


def is_over(holder: Mapping[str, Any]) -> bool:
    """Return whether the lock's play is known to have ended; False for a play on another controller."""
    controller, pid = holder["controller"], holder["pid"]
    return controller == _controller() and holder["owner"] != _owner(controller, pid, holder.get("host", ""))


def _owner(controller: str, pid: int, host: str) -> str:
    return f"{controller} {pid} {_started(pid)} {host}".rstrip()


def sentence(holder: Mapping[str, Any]) -> str:
    """Return a message with the play that holds a node, the time of the lock, and the fix."""
    if (holder["controller"], holder["pid"]) == (_controller(), os.getppid()):
        return (
            f"host {holder.get('host')} of this play is the same node: remove one of the two hosts from the "
            "inventory, or give each its own address (ansible_host)"
        )
    return (
        f"another play works on this node: {holder['play']} of {holder['who']} (process {holder['pid']}), since "
        f"{_moment(holder['since'])}. Wait until it ends. If it has died, its lock expires at "
        f"{_moment(holder['until'])}; to take the lock now, add -e node_devices_lock_break=true"
    )


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _controller() -> str:
    """Return an id of this machine's boot and PID namespace. Process ids are unique only within both."""
    try:
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def _started(pid: int) -> str:
    """Return a process's start time; empty if the process does not exist. A later process has another start time."""
    if os.path.isdir("/proc/self"):
        fields = stat_of(pid)
        return fields[19] if fields else ""
    said = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return said.stdout.strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
