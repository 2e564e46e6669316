# SPDX-License-Identifier: Apache-2.0
"""Starts, restarts, reloads and stops a systemd service or timer.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

from ..ledger import LedgerConflict
from ..started_with import StartedWith

PARAMS = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["started", "absent"], "default": "started"},
    "files": {"type": "list", "elements": "path", "default": []},
    "reload_files": {"type": "list", "elements": "path", "default": []},
    "reload_check": {"type": "list", "elements": "str", "default": []},
    "pending": {"type": "bool", "default": False},
    "pending_reload": {"type": "bool", "default": False},
}
_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "UnitFileState",
    "NeedDaemonReload",
    "InvocationID",
    "MainPID",
    "Triggers",
)
_JOURNAL_LINES = "20"


def converge(node, params):
    """Converge a unit to its state."""
    unit, problems = Service(node, params["name"]), []
    try:
        if params["state"] == "started":
            run(unit, params)
        else:
            stop(unit)
    except LedgerConflict as error:
        problems.append(str(error))
    return {
        "changed": bool(unit.actions),
        "actions": unit.actions,
        "invocation_id": unit.state.get("InvocationID", ""),
        "problems": problems,
    }


class Service:
    """A systemd unit and this run's actions on the unit."""

    def __init__(self, node, name):
        self.node = node
        self.name = name
        self.actions = []
        self.state = self._show()

    def _show(self):
        command = ["systemctl", "show", self.name, "--property=" + ",".join(_PROPERTIES)]
        _code, output, _error = self.node.run_command(command, check_rc=True)
        return dict(line.split("=", 1) for line in output.splitlines() if "=" in line)

    @property
    def is_active(self):
        return self.state["ActiveState"] == "active"

    @property
    def needs_daemon_reload(self):
        """Whether systemd has not read the present file of the unit, or of a unit that a timer starts."""
        if self.state["NeedDaemonReload"] == "yes" or not self.state.get("Triggers"):
            return self.state["NeedDaemonReload"] == "yes"
        command = ["systemctl", "show", *self.state["Triggers"].split(), "--property=NeedDaemonReload"]
        return "NeedDaemonReload=yes" in self.node.run_command(command, check_rc=True)[1].splitlines()

    def look_again(self):
        """Read the unit's state after an action."""
        self.state = self._show()

    def holds(self, command):
        """Return whether a command succeeds."""
        code, _output, _error = self.node.run_command(command)
        return code == 0

    def do(self, action, *arguments):
        """Record an action and, unless in check mode, run systemctl. Raises LedgerConflict if systemctl fails."""
        self.actions.append(action)
        if self.node.check_mode:
            return
        code, _output, error = self.node.run_command(["systemctl", *arguments])
        if code:
            journal = ["journalctl", "--unit", self.name, "--lines", _JOURNAL_LINES, "--no-pager", "--output", "cat"]
            _code, lines, _error = self.node.run_command(journal)
            raise LedgerConflict(
                "{} could not be {}: {}. Fix the cause and run the play again. Last journal lines:\n{}".format(
                    self.name, action, error.strip().splitlines()[0] if error.strip() else "no reason given", lines
                )
            )


def run(service, parameters):
    """Enable and start a unit. If the unit started with other files, restart or reload the unit."""
    check_mode = service.node.check_mode
    files = StartedWith(service.name, parameters["files"])
    is_stale = files.is_stale(service.state, service.state["NeedDaemonReload"] == "yes" or parameters["pending"])
    # `enable` also makes systemd reload its units.
    if service.state["UnitFileState"] not in ("enabled", "enabled-runtime"):
        service.do("enabled", "enable", service.name)
    elif service.needs_daemon_reload:
        service.do("read again", "daemon-reload")
    if not service.is_active:
        service.do("started", "restart", service.name)
    elif (parameters["pending"] and check_mode) or is_stale:
        service.do("restarted", "restart", service.name)
    elif parameters["pending_reload"] and (check_mode or service.holds(parameters["reload_check"])):
        # The process loads a new configuration by itself, so no reload is needed.
        service.actions.append("reloaded")
    elif parameters["pending_reload"] or (parameters["reload_files"] and not service.holds(parameters["reload_check"])):
        service.do("reloaded", "reload", service.name)
    if check_mode:
        service.node.has_unshown_work = not files.is_recorded(service.state)
        return
    if service.actions:
        service.look_again()
    files.write(service.state)


def stop(service):
    """Stop and disable a unit."""
    if service.state["ActiveState"] not in ("inactive", "failed"):
        service.do("stopped", "stop", service.name)
    if service.state["UnitFileState"] in ("enabled", "enabled-runtime"):
        service.do("disabled", "disable", service.name)
    record = StartedWith(service.name, ())
    if service.node.check_mode:
        service.node.has_unshown_work = not record.is_recorded(service.state)
        return
    record.remove()
