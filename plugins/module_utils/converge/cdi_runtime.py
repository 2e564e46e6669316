# SPDX-License-Identifier: Apache-2.0
"""Makes CDI effective in the node's container runtime, or undoes this.

Of the runtime's files, only the lines of ours and a value that prevents CDI leave the node.

Runs on nodes: Python 3.9. The caller has loaded the plugin's code (module_utils/node_code.py).
"""

from __future__ import annotations

import contextlib
import functools
import os
import uuid

from .. import cdi_needed, node_code, plugin_command
from ..ledger import Ledger, LedgerConflict, sha256, stored
from ..managed import Report, add_file
from ..node_device_plugin.support.directory_names import CDI_DIRS
from ..node_device_plugin.support.kubelet_process import running_kubelet
from ..node_device_plugin.support.node_process import NotTrusted
from ..runtime_facts import runtime_facts, socket_of, written_since
from ..transaction import launch
from ..transaction.plan import Places, Plan
from ..writable import obstacle

PARAMS = {
    "state": {"type": "str", "choices": ["present", "absent", "recovered"], "default": "present"},
    "command": {"type": "path"},
    "cri_socket": {"type": "path"},
    "device_plugin_dir": {"type": "path"},
    "specs": {"type": "dict", "default": {}},
    "may_restart": {"type": "bool", "default": False},
    "this_release": {"type": "path"},
    "code": node_code.ARGUMENT,
}
CHECKS = {"required_if": [("state", state, ["command"]) for state in ("present", "absent")]}
OWNER = "cdi_runtime"
PLACES = Places()
# Seconds that the runtime may take to answer. If the runtime ends, the wait ends.
_TIMEOUT = 120


class NotApplied(LedgerConflict):
    """A change could not be made, or was undone."""


def converge(node, params):
    """Make CDI effective, restore the earlier values of the CDI keys, or end an interrupted change.

    Beside the usual keys, the answer has ``msg``; ``restarted`` and ``seconds`` of a restart; ``answers`` if a change
    failed: whether the runtime answers; and ``other_release`` if the plugin's command cannot list the holders. Without
    ``may_restart``, the answer to a necessary restart is the answer in check mode.
    """
    if params["state"] == "recovered":
        return _recover(node)
    from node_device_plugin.runtime.configuration.cdi import UnsupportedConfig

    role = _Role(node, params)
    try:
        return role.take_back() if params["state"] == "absent" else role.make_effective()
    except plugin_command.OtherRelease:
        return {"changed": False, "other_release": True}
    except plugin_command.CommandError:
        raise
    except (UnsupportedConfig, LedgerConflict) as error:
        answers = {"answers": role.answers} if isinstance(error, NotApplied) else {}
        return {"changed": False, "problems": [f"{role.path}: {error}"], **answers}


def _recover(node):
    """Finish or undo an interrupted change. The answer says whether it had ``begun``, and its ``error``."""
    if not PLACES.left():
        return {"changed": False}
    if node.check_mode:
        return {"changed": True}
    outcome = launch.settle(PLACES)
    return {"changed": True, "begun": outcome is not None, "error": outcome and outcome.error}


class _Role:
    """What the role does with the node's runtime."""

    def __init__(self, node, params):
        self._node = node
        self._params = params
        self._entries = Ledger(PLACES.directory).entries

    @functools.cached_property
    def _kubelet(self):
        if "kubelet" in self._node.facts:
            return self._node.facts["kubelet"]
        try:
            process = running_kubelet()[0]
        except NotTrusted as error:
            raise LedgerConflict(str(error)) from error
        return process._asdict() if process else {}

    @functools.cached_property
    def _runtime(self):
        """The runtime's facts, with the texts of its configuration."""
        return self._node.facts.get("runtime") or runtime_facts(socket_of(self._params["cri_socket"], self._kubelet))

    @property
    def path(self):
        """The path of the runtime's configuration, or else of its socket."""
        return (self._runtime.get("config") or {}).get("path", self._runtime["socket"])

    @functools.cached_property
    def _adapter(self):
        from node_device_plugin.runtime import configuration

        return configuration.of(self._runtime)

    def _asked(self):
        return plugin_command.runtime(self._node, self._params["command"], self._runtime["socket"])

    @functools.cached_property
    def _said(self):
        """The daemon's answer; None in check mode if the command is not installed yet. Raises CommandError."""
        try:
            return self._asked()
        except plugin_command.CommandMissing:
            if self._node.check_mode:
                return None
            raise

    @property
    def answers(self):
        """Whether the daemon answers now."""
        try:
            self._asked()
        except plugin_command.CommandError:
            return False
        return True

    def make_effective(self):
        """Turn CDI on, or restart a daemon that does not use its files yet."""
        from node_device_plugin.runtime.configuration import obstacles

        problems = list(obstacles(self._runtime, cdi=True))
        if problems:
            return {"changed": False, "problems": problems}
        change = self._adapter.plan()
        if change is not None:
            shortfall = self._adapter.cdi.shortfall
            self._require_writable(change, shortfall)
            self._require_command()
            return self._restart(shortfall, [change])
        cdi = (self._said or {}).get("cdi")
        difference = self._adapter.difference(cdi) if cdi else None
        if difference is None:
            wrong_order = self._adapter.wrong_order(cdi) if cdi else None
            if wrong_order:
                self._node.warn(wrong_order)
            return {"changed": False, "msg": "CDI is effective"}
        if self._adapter.by_hand:
            raise LedgerConflict(f"{difference}: restart {self._runtime['unit'] or 'the runtime'}")
        # The files are right, but the daemon started before someone wrote them.
        return self._restart(difference, [])

    def take_back(self):
        """Restore the CDI keys of each file that we changed, unless something still needs CDI."""
        entries = {path: entry for path, entry in self._entries.items() if entry.get("owner") == OWNER}
        if not entries:
            return {"changed": False, "msg": "this collection changed nothing"}
        reasons = cdi_needed.by_specs(self._node, self._params["specs"], self._entries, self._runtime)
        if reasons:
            return self._kept(reasons)
        changes = self._undoing(entries)
        if not changes:
            # The files or the runtime no longer exist, so no restart and no check are necessary.
            return self._put_back()
        self._require_command()
        reasons = cdi_needed.by_containers(self._node, self._params, self._runtime["socket"], self._kubelet)
        if reasons:
            return self._kept(reasons)
        answer = self._restart("this collection's change is undone", changes, undo=True)
        left_on = self._adapter.left_on(changes)
        if left_on:
            self._node.warn(
                f"kept: CDI stays on, because {left_on} of another owner has enable_cdi = true. If that line was "
                "copied from this collection's change, as nvidia-ctk does, remove it there and restart "
                f"{self._runtime['unit']}"
            )
        if len(changes) < len(entries) and "seconds" in answer:
            self._put_back()
        return answer

    def _undoing(self, entries):
        """Return the changes that restore the files which the runtime reads, the root file first."""
        config = self._runtime.get("config")
        if not config:
            return []
        changes = []
        for path, entry in entries.items():
            now = self._adapter.text(path)
            if now is not None:
                ours = sha256(now.encode()) == entry["sha256"]
                changes.append(self._adapter.undo(path, ours, _text_before(entry)))
        different = [change for change in changes if change is not None and change.before != change.after]
        return sorted(different, key=lambda change: change.path != config["real_path"])

    def _without_ours(self, change, entry):
        """Return the text that others wrote after us, without our keys; None if they replaced our text completely."""
        from node_device_plugin.runtime.configuration.cdi import UnsupportedConfig

        with contextlib.suppress(UnsupportedConfig):
            return self._adapter.without_ours(change.path, change.before, _text_before(entry))
        return None

    def _require_writable(self, change, shortfall):
        """Raise LedgerConflict if the root file cannot be written."""
        from node_device_plugin.runtime.configuration.diff import added

        config = self._runtime["config"]
        if change.path == config["real_path"] and config.get("unwritable"):
            raise LedgerConflict(
                f"{shortfall}, but this file cannot be written ({config['unwritable']}). Add "
                f"{', '.join(added(change))} where the file comes from, or start {self._adapter.name} with a writable "
                "file"
            )

    def _require_command(self):
        """Raise CommandMissing if the command is missing, because only the command can check a restart."""
        # In check mode on a new node, the command is not installed yet.
        if not self._node.check_mode and not os.access(self._params["command"], os.X_OK):
            raise plugin_command.CommandMissing(self._params["command"])

    def _kept(self, reasons):
        """Return the answer that leaves CDI on."""
        kept = f"kept: CDI stays on, because {'; '.join(reasons)}"
        self._node.warn(kept)
        return {"changed": False, "msg": kept, "kept": reasons}

    def _put_back(self):
        with self._node.ledger() as ledger:
            managed = self._node.managed(ledger, OWNER)
            managed.report = _OurLines()
            return self._node.answer(managed.converge([]))

    def _restart(self, reason, changes, undo=False):
        """Change the files and restart the daemon, if the module may. Return the answer.

        reason: why. changes: of files, as adapters plan them; empty if the daemon alone is outdated. undo: whether our
        change is undone. Raises LedgerConflict if this is not possible.
        """
        self._require_same_start(reason)
        self._require_harmless()
        plan = self._plan(changes, undo)
        told = self._told(reason, changes)
        if self._node.check_mode or not self._params["may_restart"]:
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
        if self._runtime["unit"] is None:
            raise LedgerConflict(
                f"{reason}, but process {self._runtime['pid']} belongs to no systemd service that could be restarted: "
                f"run {self._adapter.name} as a systemd service"
            )
        other_start = self._adapter.other_start
        if other_start:
            raise LedgerConflict(other_start)

    def _require_harmless(self):
        """Raise LedgerConflict if the restart would end containers."""
        if self._adapter.keeps_containers or self._said is None:
            return
        number, advice = self._adapter.ended(self._said)
        if number:
            raise LedgerConflict(
                f"a restart of {self._adapter.name} would stop its running containers ({number}): {advice}, or stop "
                "the containers first"
            )

    def _plan(self, changes, undo):
        """Return the transaction's plan. Raises NotApplied if one of the files cannot be written."""
        plan = Plan(
            identity=uuid.uuid4().hex,
            owner=OWNER,
            files=[],
            directories=[],
            entries={},
            undo=undo,
            unit=self._runtime["unit"],
            question=plugin_command.runtime_question(self._params["command"], self._runtime["socket"]),
            spec_dirs=list(CDI_DIRS) if self._adapter.tells_cdi and not undo else None,
            timeout=_TIMEOUT,
        )
        try:
            for change in changes:
                add_file(plan, self._entries, change, self._without_ours, self._node.context_of)
                reason = obstacle(change.path)
                if reason:
                    raise LedgerConflict(f"{change.path}: {reason}; nothing was changed")
        except LedgerConflict as error:
            raise self._not_applied(error) from error
        return plan

    def _told(self, reason, changes):
        """Return what check mode answers to a restart, and warn about what the restart also does."""
        config = self._runtime["config"]
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
            "msg": f"{reason}: {self._runtime['unit']} is restarted",
            "diff": list(map(_shown, different)),
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
            for path in written_since(self._runtime["pid"], self._adapter.read_at_start)
        ]


class _OurLines(Report):
    """A report whose diffs have only our lines, because any other line of a runtime's file may have a secret."""

    def add_diff(self, path, before, after):
        from node_device_plugin.runtime.configuration.cdi import Change

        contents = [(state or {}).get("content") for state in (before, after)]
        if contents[0] == contents[1]:
            # A directory, a mode or an owner.
            super().add_diff(path, before, after)
        else:
            # Someone else may have written a file that is not UTF-8.
            texts = [(content or b"").decode("utf-8", "replace") for content in contents]
            self.diffs.append(_shown(Change(path, *texts)))


def _shown(change):
    from node_device_plugin.runtime.configuration.diff import diff

    return {"path": change.path, "prepared": diff(change)}


def _text_before(entry):
    """Return the text before our change, from a ledger entry; None for no file."""
    before = stored(entry["before"])
    return before and before["content"].decode("utf-8")
