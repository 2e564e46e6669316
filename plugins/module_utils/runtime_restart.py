# SPDX-License-Identifier: Apache-2.0
"""Restarts the node's container runtime in a transaction that also changes files of its configuration.

Runs on nodes: Python 3.9. The caller has loaded the plugin's code (module_utils/node_code.py).
"""

from __future__ import annotations

import functools
import uuid

from . import plugin_command
from .directory_names import CDI_DIRS
from .ledger import LedgerConflict, sha256
from .managed import Planning
from .runtime_facts import written_since
from .transaction import launch
from .transaction.plan import Places, Plan
from .writable import obstacle

OWNER = "cdi_runtime"
PLACES = Places()
# Seconds that the runtime may take to answer. If the runtime ends, the wait ends.
_TIMEOUT = 120


class NotApplied(LedgerConflict):
    """A change could not be made, or was undone."""


class Daemon:
    """The running daemon of the node's runtime.

    params: of module cdi_runtime. facts: of the runtime. entries: of the ledger.
    """

    def __init__(self, node, params, facts, adapter, entries):
        self._node = node
        self._command = params["command"]
        self._may_restart = params["may_restart"] and not node.check_mode
        self._facts = facts
        self._adapter = adapter
        self._entries = entries

    @functools.cached_property
    def said(self):
        """The daemon's answer; None in check mode if the command is not installed yet. Raises CommandError."""
        try:
            return plugin_command.runtime(self._node, self._command, self._facts["socket"])
        except plugin_command.CommandMissing:
            if self._node.check_mode:
                return None
            raise

    @property
    def answers(self):
        """Whether the daemon answers now."""
        try:
            plugin_command.runtime(self._node, self._command, self._facts["socket"])
        except plugin_command.CommandError:
            return False
        return True

    def restart(self, reason, changes, undo=False, original=None):
        """Change the files and restart the daemon, if the module may. Return the answer.

        Raises LedgerConflict if this is not possible.

        reason: why. changes: of files, as adapters plan them; empty if the daemon alone is outdated. undo: whether our
        change is undone. original: the text that a later undo restores, if others changed the file; else None.
        """
        self._require_same_start(reason)
        self._require_harmless()
        plan = self._plan(changes, undo, original)
        told = self._told(reason, changes)
        if not self._may_restart:
            return told
        try:
            outcome = launch.carry_out(PLACES, plan)
        except LedgerConflict as error:
            raise self._not_applied(error) from error
        if outcome.error:
            raise self._not_applied(outcome.error)
        # Unknown if the recovery at boot completed the change.
        paused = "" if outcome.seconds is None else f"; it did not answer for {outcome.seconds} s"
        return {
            **told,
            "msg": told["msg"] + paused,
            "seconds": outcome.seconds,
            "written": [file.path for file in plan.files if file.content is not None],
            "removed": [file.path for file in plan.files if file.content is None],
        }

    def _require_same_start(self, reason):
        """Raise LedgerConflict unless systemd would start the daemon with the options that it runs with."""
        from node_device_plugin.runtime.configuration import running

        unit, name = self._facts["unit"], self._adapter.name
        if unit is None:
            raise LedgerConflict(
                f"{reason}, but process {self._facts['pid']} belongs to no systemd service that could be restarted: "
                f"run {name} as a systemd service"
            )
        other_start = running.other_start(name, unit, self._facts.get("next_start") or ())
        if other_start:
            raise LedgerConflict(other_start)

    def _require_harmless(self):
        """Raise LedgerConflict if the restart would end containers."""
        if self._adapter.keeps_containers or self.said is None:
            return
        number, advice = self._adapter.ended(self.said)
        if number:
            raise LedgerConflict(
                f"a restart of {self._adapter.name} would stop its running containers ({number}): {advice}, or stop "
                "the containers first"
            )

    def _plan(self, changes, undo, original):
        """Return the transaction's plan. Raises NotApplied if one of the files cannot be written."""
        planning = Planning(self._entries, OWNER, undo, self._node.context_of)
        try:
            for change in changes:
                expected = None if change.before is None else sha256(change.before.encode())
                planning.add(change.path, change.after, expected, original)
            for file in planning.files:
                reason = obstacle(file.path)
                if reason:
                    raise LedgerConflict(f"{file.path}: {reason}; nothing was changed")
        except LedgerConflict as error:
            raise self._not_applied(error) from error
        return Plan(
            identity=uuid.uuid4().hex,
            owner=OWNER,
            files=planning.files,
            directories=planning.directories,
            entries=planning.entries,
            undo=undo,
            unit=self._facts["unit"],
            question=plugin_command.runtime_question(self._command, self._facts["socket"]),
            spec_dirs=list(CDI_DIRS) if self._adapter.tells_cdi and not undo else None,
            timeout=_TIMEOUT,
        )

    def _told(self, reason, changes):
        """Return what check mode answers to a restart, and warn about what the restart also does."""
        from node_device_plugin.runtime.configuration.diff import diff

        config = self._facts["config"]
        different = [change for change in changes if change.before != change.after]
        if config.get("other_names") and config["real_path"] in [change.path for change in different]:
            self._node.warn(
                f"{config['real_path']} has other hard links ({config['other_names']}), which keep the former text: "
                "update them by hand"
            )
        for warning in self._pending:
            self._node.warn(warning)
        return {
            "changed": True,
            "restarted": True,
            "msg": f"{reason}: {self._facts['unit']} is restarted",
            "diff": [{"path": change.path, "prepared": diff(change)} for change in different],
        }

    def _not_applied(self, why):
        return NotApplied("\n".join([str(why), *self._pending]))

    @functools.cached_property
    def _pending(self):
        """One message for each file that someone changed after the daemon started, and before our change.

        A restart also applies this change, and a rollback cannot restore the daemon's earlier settings.
        """
        return [
            f"by its time, {path} was changed after {self._adapter.name} started: a restart also applies that change"
            for path in written_since(self._facts["pid"], self._adapter.read_at_start)
        ]
