# SPDX-License-Identifier: Apache-2.0
"""Starts, restarts, reloads and stops a systemd service or timer."""

from __future__ import annotations

import contextlib
import json
import os

from .. import ledger as ledgers
from ..ledger import LedgerConflict

PARAMS = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["started", "absent"], "default": "started"},
    "files": {"type": "list", "elements": "path", "default": []},
    "reload_check": {"type": "list", "elements": "str", "default": []},
    "pending": {"type": "bool", "default": False},
    "pending_reload": {"type": "bool", "default": False},
}
_PROPERTIES = ("ActiveState", "UnitFileState", "NeedDaemonReload", "InvocationID", "MainPID", "Triggers")
_JOURNAL_LINES = "20"
#: The directory of the records. At a boot systemd reads every unit again.
DIRECTORY = "/run"


def converge(node, params):
    """Converge a unit to its state."""
    unit, problems = Service(node, params["name"], params["files"]), []
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
    """A systemd unit, this run's actions on the unit, and the record of the files with which the unit started.

    With the record, a later run knows whether the unit must start again. Times of files decide nothing, because a
    node's clock may be wrong. The record has the unit's InvocationID, which changes at each start, and the hash of each
    file. files: what the unit reads when it starts. A link leads to the program's version.
    """

    def __init__(self, node, name, files=()):
        self.node = node
        self.name = name
        self.actions = []
        self._path = os.path.join(DIRECTORY, f"node-devices.{name}.started")
        self._now = {path: _hash_of(path) for path in files if not os.path.islink(path)}
        self._links = [path for path in files if os.path.islink(path)]
        self.look()

    def look(self):
        """Read the unit's state."""
        command = ["systemctl", "show", self.name, "--property=" + ",".join(_PROPERTIES)]
        _code, output, _error = self.node.run_command(command, check_rc=True)
        self.state = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)

    @property
    def needs_daemon_reload(self):
        """Whether systemd has not read the present file of the unit, or of a unit that a timer starts."""
        if self.state["NeedDaemonReload"] == "yes" or not self.state.get("Triggers"):
            return self.state["NeedDaemonReload"] == "yes"
        command = ["systemctl", "show", *self.state["Triggers"].split(), "--property=NeedDaemonReload"]
        return "NeedDaemonReload=yes" in self.node.run_command(command, check_rc=True)[1].splitlines()

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

    def is_stale(self, pending):
        """Return whether the running unit may have started with other files.

        pending: whether this play changed a file. This, and a file that systemd has not read, count only if this module
        has not recorded the unit's present start.
        """
        if any(_runs_another_version(self.state.get("MainPID", "0"), link) for link in self._links):
            return True
        record = self.record()
        if record and record["files"] != self._now:
            return True
        is_unread = pending or self.state["NeedDaemonReload"] == "yes"
        return is_unread and not (record and record["invocation"] == self.state.get("InvocationID"))

    def record(self):
        """Return the record; None if there is none."""
        with contextlib.suppress(OSError, ValueError, RecursionError), open(self._path, encoding="utf-8") as file:
            record = json.load(file)
            if isinstance(record, dict) and set(record) == {"invocation", "files"}:
                return record
        return None

    def wanted_record(self):
        """Return the record of the unit's present start and files; None without files."""
        return {"invocation": self.state.get("InvocationID"), "files": self._now} if self._now else None

    def write_record(self):
        """Record the unit's present start."""
        record = self.wanted_record()
        if record not in (None, self.record()):
            ledgers.write_file(self._path, json.dumps(record).encode(), 0o600)

    def remove_record(self):
        """Remove the record."""
        ledgers.remove_file(self._path)


def run(service, parameters):
    """Enable and start a unit. If the unit started with other files, restart or reload the unit."""
    check_mode, reload_check = service.node.check_mode, parameters["reload_check"]
    is_stale = service.is_stale(parameters["pending"])
    # `enable` also makes systemd reload its units.
    if service.state["UnitFileState"] not in ("enabled", "enabled-runtime"):
        service.do("enabled", "enable", service.name)
    elif service.needs_daemon_reload:
        service.do("read again", "daemon-reload")
    if service.state["ActiveState"] != "active":
        service.do("started", "restart", service.name)
    elif (parameters["pending"] and check_mode) or is_stale:
        service.do("restarted", "restart", service.name)
    elif parameters["pending_reload"] and (check_mode or service.holds(reload_check)):
        # The process loads a new configuration by itself, so no reload is needed.
        service.actions.append("reloaded")
    elif parameters["pending_reload"] or (reload_check and not service.holds(reload_check)):
        service.do("reloaded", "reload", service.name)
    if check_mode:
        service.node.has_unshown_work = service.record() != service.wanted_record()
        return
    if service.actions:
        service.look()
    service.write_record()


def stop(service):
    """Stop and disable a unit."""
    if service.state["ActiveState"] not in ("inactive", "failed"):
        service.do("stopped", "stop", service.name)
    if service.state["UnitFileState"] in ("enabled", "enabled-runtime"):
        service.do("disabled", "disable", service.name)
    if service.node.check_mode:
        service.node.has_unshown_work = service.record() is not None
    else:
        service.remove_record()


def _hash_of(path):
    try:
        with open(path, "rb") as file:
            return ledgers.sha256(file.read())
    except OSError:
        return None


def _runs_another_version(pid, link):
    """Return whether a process's program is beside the link's target, but not below it."""
    try:
        with open(f"/proc/{int(pid)}/cmdline", "rb") as file:
            program = os.fsdecode(file.read().split(b"\0")[0])
    except (OSError, ValueError):
        return False
    # The program itself is a link to the system's Python.
    directory, target = os.path.realpath(os.path.dirname(program)), os.path.realpath(link)
    return directory.startswith(os.path.dirname(target) + "/") and not (directory + "/").startswith(target + "/")
