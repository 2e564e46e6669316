# SPDX-License-Identifier: Apache-2.0
"""A systemd service or timer, and what it takes for it to run with what its files say now.

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
    """A unit, and what was done to it."""

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
        """When its process started, in seconds since the epoch by the clock as it is now; None if it does not run.

        Of a unit that has no process, such as a timer: when it became active.
        """
        if self.state["ActiveState"] != "active":
            return None
        entered = self.state.get("ExecMainStartTimestampMonotonic", self.state.get("ActiveEnterTimestampMonotonic"))
        since_boot = int(entered or 0) / 1e6
        return time.time() - (time.clock_gettime(time.CLOCK_MONOTONIC) - since_boot)

    def newer(self, files, started):
        """The files that changed after the process started; what lies in the future tells nothing."""
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
        """Whether a command succeeds."""
        code, _output, _error = self.module.run_command(command)
        return code == 0

    def answer(self):
        """What the module answers."""
        return {"changed": bool(self.actions), "actions": self.actions}

    def do(self, action, *arguments):
        """Run systemctl, or in check mode only say so."""
        self.actions.append(action)
        if self.module.check_mode:
            return
        code, _output, error = self.module.run_command(["systemctl", *arguments])
        if code:
            journal = ["journalctl", "--unit", self.name, "--lines", _JOURNAL_LINES, "--no-pager", "--output", "cat"]
            _code, lines, _error = self.module.run_command(journal)
            self.module.fail_json(
                msg="{} could not be {}: {}\nIts last journal lines:\n{}".format(
                    self.name, action, error.strip().splitlines()[0] if error.strip() else "no reason given", lines
                ),
                actions=self.actions,
            )


def run(service, parameters):
    """Enabled, running, and not older than its files."""
    check_mode = service.module.check_mode
    # `enable` makes systemd read its units again, too.
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
        # By itself, sooner than it could be asked to.
        service.actions.append("reloaded")
    elif parameters["pending_reload"] or (
        service.newer(parameters["reload_files"], started) and not service.holds(parameters["reload_check"])
    ):
        service.do("reloaded", "reload", service.name)


def stop(service):
    """Stopped and disabled."""
    if service.state["ActiveState"] not in ("inactive", "failed"):
        service.do("stopped", "stop", service.name)
    if service.state["UnitFileState"] in ("enabled", "enabled-runtime"):
        service.do("disabled", "disable", service.name)
