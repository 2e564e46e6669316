# SPDX-License-Identifier: Apache-2.0
"""Changes the plugin's version, and restores the old version if the new version fails its health check.

The link ``current`` points to the version in use. The new version passes its health check if it serves all resources
and devices that the old version served. Then the ledger records the new version. If the power fails during the health
check, a unit for the next boot (the guard) restores the link. If a run is killed during the health check, the next run
undoes the change (``settle``).
"""

from __future__ import annotations

import os
import time

from .. import boot_unit
from .. import ledger as ledgers
from ..node_device_plugin.support.node_process import answer_of, command_of, option, properties
from . import serving
from .build import COMMAND, VersionError

_GUARD = "node-devices-version.service"
# Seconds between two looks at what a version serves, and at the unit while it starts.
_PAUSE, _UNIT_PAUSE = 0.3, 0.1
_JOURNAL_LINES = "10"
_TEXT = """\
# Written by node-devices while another version of the device plugin is on trial; removed after the trial.
[Unit]
Description=Restore the previous version of the device plugin after an interrupted trial
Before={unit}
RequiresMountsFor={root}

[Service]
Type=oneshot
ExecStart=/bin/ln -sfn versions/{was} {root}/.current.back
ExecStart=/bin/mv -T {root}/.current.back {root}/current
ExecStart=/bin/rm -f {link} {path}
"""


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
            time.sleep(_UNIT_PAUSE)
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


class NotReady(VersionError):
    """A version failed its health check, and the previous version was restored. why: the missing items in one line."""

    def __init__(self, message, why):
        super().__init__(message)
        self.why = why


class Versions:
    """The environments below one root, and the service that runs from the current one.

    unit: a Unit. limit: seconds that a version may take to pass its health check.
    """

    def __init__(self, root, unit, limit):
        self.root = root
        self.unit = unit
        self.limit = limit
        self.link = os.path.join(root, "current")

    def directory(self, name):
        """Return an environment's directory."""
        return os.path.join(self.root, "versions", name)

    def current(self):
        """Return the name of the version in use; None if there is none."""
        return self.target_of(self.link)

    def target_of(self, link):
        """Return the version that a link points to; None if the link is not ours."""
        try:
            directory, name = os.path.split(os.readlink(link))
        except OSError:
            return None
        return name if directory == "versions" else None

    def runs(self):
        """Return whether the service runs from this root. If so, a change of version needs a health check."""
        return self.unit.config_run_from(self.root) is not None

    def flip(self, name):
        """Make a version current, atomically."""
        ledgers.write_link(self.link, f"versions/{name}")

    def change(self, was, name):
        """Move the service to version ``name``. After success the caller completes the change with ``close``.

        Returns the seconds from the change of the link until the new version passed its health check. Raises NotReady
        if the old version was restored. Raises VersionError if nothing was changed or no version could be restored.
        """
        config = self.unit.config_run_from(self.root)
        if config is None:
            raise VersionError(f"{self.unit.name} no longer runs from {self.root}: run site.yml")
        self._refuse_invalid(name, config)
        before = serving.ask(self.directory(was), config)
        if before.resources is None:
            # The old version's Python may be removed although its process still runs.
            before = serving.ask(self.directory(name), config)
        # Without its Python, the old version cannot be restored.
        way_back = was != name and os.access(os.path.join(self.directory(was), "bin", "python"), os.X_OK)
        if way_back:
            _write_guard(self.unit.name, self.root, was)
        began = time.monotonic()
        try:
            self.flip(name)
            wrong = self._trial(name, config, before)
        except BaseException:
            if way_back:
                self._go_back(was, config, before)
            raise
        if not wrong:
            return round(time.monotonic() - began, 2)
        all_wrong, journal = "; ".join(wrong), self.unit.journal()
        last = f"\nThe last journal lines of {name}:\n{journal}" if journal else ""
        if not way_back:
            raise VersionError(
                f"version {name} does not serve all that was served before: {all_wrong}; no previous version can be "
                f"restored{last}"
            )
        still_wrong = self._go_back(was, config, before)
        outcome = ", but does not serve it either: {}".format("; ".join(still_wrong)) if still_wrong else ""
        raise NotReady(
            f"version {name} did not serve all that version {was} served: {all_wrong}. Version {was} was "
            f"restored{outcome}{last}",
            all_wrong,
        )

    def is_open(self):
        """Return whether a change below this root is incomplete: neither closed nor undone."""
        try:
            with open(_paths()[0], encoding="utf-8") as file:
                return f" {self.root}/current\n" in file.read()
        except OSError:
            return False

    def settle(self, known):
        """Undo an interrupted change. Returns whether a change was undone. known: the version in the ledger."""
        if not self.is_open():
            return False
        cut_off = known is not None and self.current() != known
        if cut_off:
            self.flip(known)
            if self.runs():
                self.unit.restart(time.monotonic() + self.limit)
        close()
        return cut_off

    def _go_back(self, was, config, before):
        self.flip(was)
        wrong = self._trial(was, config, before)
        close()
        return wrong

    def _trial(self, name, config, before):
        """Restart the service and wait until it serves everything in ``before``. Returns the problems that remain."""
        until = time.monotonic() + self.limit
        problem = self.unit.restart(until)
        if problem:
            return [problem]
        invocation = self.unit.show().get("InvocationID")
        while True:
            wrong = serving.missing(before, serving.ask(self.directory(name), config))
            if not self.unit.is_running_since(invocation):
                return ["its process ended"]
            if not wrong or time.monotonic() > until:
                return wrong
            time.sleep(_PAUSE)

    def _refuse_invalid(self, name, config):
        command = os.path.join(self.directory(name), "bin", COMMAND)
        _said, problem = answer_of([command, "validate", "--config", config], 60)
        if problem:
            raise VersionError(
                f"version {name} does not accept the current configuration, so nothing was changed: {problem} "
                "(site.yml of the release in use writes that file again)"
            )


def close():
    """Remove the guard, so that the next boot changes nothing. Call this after a change is recorded or undone."""
    boot_unit.remove(boot_unit.UNITS, _GUARD)


def _write_guard(unit, root, was):
    path, link = _paths()
    boot_unit.write(boot_unit.UNITS, _GUARD, _TEXT.format(unit=unit, root=root, was=was, path=path, link=link))


def _paths():
    return boot_unit.paths(boot_unit.UNITS, _GUARD)
