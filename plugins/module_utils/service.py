# SPDX-License-Identifier: Apache-2.0
"""Starts, restarts, reloads and stops a systemd service or timer.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import os
import time

_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "UnitFileState",
    "NeedDaemonReload",
    "ExecMainStartTimestampMonotonic",
    "ActiveEnterTimestampMonotonic",
)
_JOURNAL_LINES = "20"


class Service:
    """A systemd unit and this run's actions on the unit."""

    def __init__(self, module):
        self.module = module
        self.name = module.params["name"]
        self.actions = []
        self.state = self._show()

    def _show(self):
        command = ["systemctl", "show", self.name, "--property=" + ",".join(_PROPERTIES)]
        _code, output, _error = self.module.run_command(command, check_rc=True)
        return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)

    def started(self):
        """Return the process's start in seconds since the epoch; None if the unit is not active.

        For a unit without a process, such as a timer, return the time of its activation.
        """
        if self.state["ActiveState"] != "active":
            return None
        entered = self.state.get("ExecMainStartTimestampMonotonic", self.state.get("ActiveEnterTimestampMonotonic"))
        since_boot = int(entered or 0) / 1e6
        return time.time() - (time.clock_gettime(time.CLOCK_MONOTONIC) - since_boot)

    def newer(self, files, started):
        """Return the files that changed after the process's start. Ignores times in the future."""
        changed = []
        for path in files:
            try:
                modified = os.lstat(path).st_mtime
            except OSError:
                continue
            if started < modified <= time.time():
                changed.append(path)
        return changed

    def holds(self, command):
        """Return whether a command succeeds."""
        code, _output, _error = self.module.run_command(command)
        return code == 0

    def answer(self):
        """Return the module's result."""
        return {"changed": bool(self.actions), "actions": self.actions}

    def do(self, action, *arguments):
        """Record an action and, unless in check mode, run systemctl for it. Fails the module if systemctl fails."""
        self.actions.append(action)
        if self.module.check_mode:
            return
        code, _output, error = self.module.run_command(["systemctl", *arguments])
        if code:
            journal = ["journalctl", "--unit", self.name, "--lines", _JOURNAL_LINES, "--no-pager", "--output", "cat"]
            _code, lines, _error = self.module.run_command(journal)
            self.module.fail_json(
                msg="{} could not be {}: {}. Fix the cause and run the play again. Last journal lines:\n{}".format(
                    self.name, action, error.strip().splitlines()[0] if error.strip() else "no reason given", lines
                ),
                actions=self.actions,
            )


def run(service, parameters):
    """Enable and start a unit. If its files are newer than its process, restart or reload the unit."""
    check_mode = service.module.check_mode
    # `enable` also makes systemd reload its units.
    if service.state["UnitFileState"] not in ("enabled", "enabled-runtime"):
        service.do("enabled", "enable", service.name)
    elif service.state["NeedDaemonReload"] == "yes":
        service.do("read again", "daemon-reload")
    started = service.started()
    if started is None:
        service.do("started", "restart", service.name)
    elif (parameters["pending"] and check_mode) or service.newer(parameters["files"], started):
        service.do("restarted", "restart", service.name)
    elif parameters["pending_reload"] and (check_mode or service.holds(parameters["reload_check"])):
        # The process loads a new configuration by itself, so no reload is needed.
        service.actions.append("reloaded")
    elif parameters["pending_reload"] or (
        service.newer(parameters["reload_files"], started) and not service.holds(parameters["reload_check"])
    ):
        service.do("reloaded", "reload", service.name)


def stop(service):
    """Stop and disable a unit."""
    if service.state["ActiveState"] not in ("inactive", "failed"):
        service.do("stopped", "stop", service.name)
    if service.state["UnitFileState"] in ("enabled", "enabled-runtime"):
        service.do("disabled", "disable", service.name)
