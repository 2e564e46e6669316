# SPDX-License-Identifier: Apache-2.0
"""Restarts and queries the service that runs from an environment.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import time

from ..node_device_plugin.support.node_process import answer_of, command_of, option, properties
from .build import COMMAND

_PAUSE = 0.1
_JOURNAL_LINES = "10"


class Unit:
    """A systemd service. name: with the suffix ``.service``."""

    def __init__(self, name):
        self.name = name

    def show(self):
        """Return the service's properties from systemd; empty if there is no systemd."""
        return properties(self.name, "ActiveState", "SubState", "InvocationID", "ExecStart")

    def config_run_from(self, root):
        """Return the running service's configuration file; None if the service does not run from below ``root``."""
        state = self.show()
        words = command_of(state.get("ExecStart", ""))
        if state.get("ActiveState") != "active" or words[:1] != [f"{root}/current/bin/{COMMAND}"]:
            return None
        return option(words, "--config")

    def restart(self, until):
        """Restart the service and wait until it is active. Returns None, or why the service is not active.

        until: deadline by time.monotonic(). If the process ends, the wait ends, although systemd may restart the
        process.
        """
        before = self.show().get("InvocationID")
        _said, problem = answer_of(["systemctl", "restart", "--no-block", self.name])
        if problem:
            return f"it could not be restarted: {problem}"
        while time.monotonic() < until:
            state = self.show()
            if state.get("InvocationID") not in (before, None, ""):
                if state.get("ActiveState") == "active":
                    return None
                if state.get("SubState") in ("auto-restart", "failed"):
                    return "its process ended"
            time.sleep(_PAUSE)
        return "it did not start"

    def is_running_since(self, invocation):
        """Return whether the service is active and still has this InvocationID: systemd did not restart the service."""
        state = self.show()
        return state.get("ActiveState") == "active" and state.get("InvocationID") == invocation

    def journal(self):
        """Return the last journal lines of the service's last invocation."""
        invocation = self.show().get("InvocationID", "")
        command = ["journalctl", "--quiet", "_SYSTEMD_INVOCATION_ID=" + invocation, "--unit", self.name]
        return (answer_of([*command, "--lines", _JOURNAL_LINES, "--no-pager", "--output", "cat"])[0] or "").strip()
