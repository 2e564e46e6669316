# SPDX-License-Identifier: Apache-2.0
"""From one version to another, on trial: the new one must serve what the old one did, or the old one comes back.

Runs on nodes: Python 3.9, standard library only. The version in use is what the link ``current`` points to; the ledger
learns of another one only when that has stood its trial. Until then a unit for the next boot, the guard, is there to
put the link back: a power cut in the midst brings the old version up. A run that was killed in the midst is undone by
the next one (``settle``).
"""

from __future__ import annotations

import os
import time

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import boot_unit
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment import serving
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import COMMAND, VersionError
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_process import answer_of

_GUARD = "node-devices-version.service"
_PAUSE = 0.3
_TEXT = """\
# Written by node-devices while another version of the device plugin is on trial; it goes with the trial.
[Unit]
Description=Go back to the version of the device plugin before a trial that was cut off
Before={unit}
RequiresMountsFor={root}

[Service]
Type=oneshot
ExecStart=/bin/ln -sfn versions/{was} {root}/.current.back
ExecStart=/bin/mv -T {root}/.current.back {root}/current
ExecStart=/bin/rm -f {link} {path}
"""


class NotReady(VersionError):
    """A version did not stand its trial, and the one before it runs again. why: what it lacked, in one line."""

    def __init__(self, message, why):
        super().__init__(message)
        self.why = why


class Versions:
    """The environments below one root, and the service that runs from the current one.

    unit: a unit.Unit. limit: seconds that a version may take to serve all that was served before.
    """

    def __init__(self, root, unit, limit):
        self.root = root
        self.unit = unit
        self.limit = limit
        self.link = os.path.join(root, "current")

    def directory(self, name):
        """An environment's folder."""
        return os.path.join(self.root, "versions", name)

    def current(self):
        """Name of the version in use; None where there is none."""
        return self.target_of(self.link)

    def target_of(self, link):
        """Name of the version that a link points to; None where it is none of ours."""
        try:
            directory, name = os.path.split(os.readlink(link))
        except OSError:
            return None
        return name if directory == "versions" else None

    def runs(self):
        """Whether the service runs from here, so that another version goes on trial."""
        return self.unit.config_run_from(self.root) is not None

    def flip(self, name):
        """Make a version the current one, in one step."""
        ledgers.write_link(self.link, f"versions/{name}")

    def change(self, was, name):
        """Make ``name`` the version that the service runs from; with ``close`` it is done.

        Returns the seconds from the old one's stop until the new one served all. Raises NotReady where the old one had
        to come back, VersionError where nothing was touched or no way led back.
        """
        config = self.unit.config_run_from(self.root)
        if config is None:
            raise VersionError(f"{self.unit.name} does not run from {self.root} any more")
        self._refuse_invalid(name, config)
        before = serving.ask(self.directory(was), config)
        if before.resources is None:
            # The old one's Python may be gone, while its process lives.
            before = serving.ask(self.directory(name), config)
        way_back = was != name and self._can_run(was)
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
                f"version {name} does not serve what was served before: {all_wrong}; "
                f"there is no version to go back to{last}"
            )
        still_wrong = self._go_back(was, config, before)
        outcome = ", and that does not serve it either: {}".format("; ".join(still_wrong)) if still_wrong else ""
        raise NotReady(
            f"version {name} did not serve what {was} did: {all_wrong}. Version {was} runs again{outcome}{last}",
            all_wrong,
        )

    def is_open(self):
        """Whether a change below this root was begun, and neither closed nor undone."""
        try:
            with open(_paths()[0], encoding="utf-8") as file:
                return f" {self.root}/current\n" in file.read()
        except OSError:
            return False

    def settle(self, known):
        """Undo a change that was cut off; returns whether there was one.

        known: the version that the ledger knows of.
        """
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
        """Restart the service, and wait until it serves what was served before; returns what it lacks at the end."""
        until = time.monotonic() + self.limit
        problem = self.unit.restart(until)
        if problem:
            return [problem]
        invocation = self.unit.show().get("InvocationID")
        while True:
            wrong = serving.lacking(before, serving.ask(self.directory(name), config))
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
                f"version {name} does not take the configuration in force, so nothing was changed: {problem} "
                "(site.yml of the release in use writes that file again)"
            )

    def _can_run(self, name):
        """Whether a version's Python is still there."""
        return os.access(os.path.join(self.directory(name), "bin", "python"), os.X_OK)


def close():
    """A change is done, and known to the ledger: the next boot need not undo it."""
    boot_unit.remove(boot_unit.UNITS, _GUARD)


def _write_guard(unit, root, was):
    path, link = _paths()
    boot_unit.write(boot_unit.UNITS, _GUARD, _TEXT.format(unit=unit, root=root, was=was, path=path, link=link))


def _paths():
    return boot_unit.paths(boot_unit.UNITS, _GUARD)
