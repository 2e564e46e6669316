# SPDX-License-Identifier: Apache-2.0
"""Makes CDI effective in a node's container runtime. See plugins/modules/cdi_runtime.py."""

from __future__ import annotations

import base64
import contextlib
import difflib
import functools

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cdi import role_specs
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import (
    parallel_restarts,
    play,
    plugin_cli,
    preflight,
    runtimes,
    task_arguments,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.runtimes import running
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.runtimes.cdi import (
    SPEC_DIRS,
    Change,
    Checked,
    UnsupportedConfig,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction

_OWNER = "cdi_runtime"
_SPECS_OWNER = "cdi_specs"
_MODULE = "nodedevices.kubernetes.runtime_config"


class NotApplied(UnsupportedConfig):
    """A change began but failed. answers: whether the runtime answers queries after the failure."""

    def __init__(self, message, answers):
        super().__init__(message)
        self.answers = answers


class ActionModule(HidingAction):
    """Checks a change and applies the change in a transaction. If CDI is effective, it runs only the preflight."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        look, arguments = preflight.Preflight(self, task_vars), task_arguments.of(self)
        is_wanted = arguments.get("state", "present") == "present"
        try:
            cdi = look.declaration(arguments.get("declaration"))["needs_cdi"] if is_wanted else True
            requires = ["python", "systemd", "runtime"] if is_wanted else ["python"]
            ask = arguments["command"] if is_wanted else None
            seen = look.node(arguments.get("node"), requires, cdi=cdi, ask=ask)
        except preflight.ERRORS as error:
            return {**result, **look.failed(error)}
        if not cdi:
            return seen.told({**result, "changed": False, "skipped": True, "msg": "no resource uses CDI"})
        self._command = arguments["command"]
        self._specs = arguments.get("specs")
        self._max_parallel_restarts = int(arguments.get("max_parallel_restarts", 1))
        self._node = seen.node
        self._places = look.kubelet(seen.node, {"command": self._command})
        self._runtime = self._node["runtime"]
        return seen.told({**result, **self._converged(is_wanted)})

    def _converged(self, is_wanted):
        result = {}
        try:
            return self._make_effective() if is_wanted else self._take_back()
        except plugin_cli.PluginCliError as error:
            return {**result, "failed": True, "msg": f"{self._vars.get('inventory_hostname', '')}: {error}"}
        except UnsupportedConfig as error:
            path = (self._runtime.get("config") or {}).get("path", self._runtime["socket"])
            result.update(failed=True, msg=f"{self._vars.get('inventory_hostname', '')}: {path}: {error}")
            if isinstance(error, NotApplied):
                result["answers"] = error.answers
            return result

    @functools.cached_property
    def _adapter(self):
        return runtimes.of(self._runtime)

    def _make_effective(self):
        change = self._adapter.plan(self._check)
        if change is None:
            reason = self._running_differs()
            if reason is None:
                wrong_order = running.wrong_order(self._adapter.name, self._running) if self._running else None
                warnings = [wrong_order] if wrong_order else []
                return {"changed": False, "msg": "CDI is effective", "warnings": warnings}
            if self._adapter.by_hand:
                raise UnsupportedConfig(f"{reason}: restart {self._runtime['unit'] or 'the runtime'}")
            # The files are right, but the daemon started before someone wrote them.
            config = self._runtime["config"]
            return self._apply([Change(config["real_path"], config["content"], config["content"])], reason)
        self._require_writable(change)
        self._require_command()
        return self._apply([change], running.shortfall(self._adapter.cdi), original=self._original(change))

    def _require_writable(self, change):
        """Raise UnsupportedConfig if the root file cannot be written."""
        config = self._runtime["config"]
        if change.path == config["real_path"] and config.get("unwritable"):
            texts = [(text or "").splitlines() for text in (change.before, change.after)]
            lines = [line[2:].strip() for line in difflib.ndiff(*texts) if line.startswith("+ ") and line[2:].strip()]
            raise UnsupportedConfig(
                f"{running.shortfall(self._adapter.cdi)}, but this file cannot be written ({config['unwritable']}). "
                f"Add {', '.join(lines)} where the file comes from, or start {self._adapter.name} with a writable file"
            )

    def _original(self, change):
        """Return the text that a later undo restores: the text that others wrote after our change, without our keys.

        None if nobody else changed the file, or if the adapter has nothing to undo in the file.
        """
        entry = self._node["ledger"].get(change.path)
        if entry is None or change.before is None or ledgers.sha256(change.before.encode()) == entry["sha256"]:
            return None
        try:
            theirs = self._adapter.undo(change.path, False, _text_before(entry), self._check)
        except UnsupportedConfig:
            # Others replaced the complete file.
            return None
        return theirs and theirs.after

    @functools.cached_property
    def _running(self):
        """The running daemon's CDI settings; None in check mode if the command is not installed."""
        said = self._node.get("running") or {}
        if said.get("command") == self._command:
            return said["cdi"]
        try:
            return plugin_cli.answer(self, self._adapter.question(self._command))["cdi"]
        except plugin_cli.PluginCliError:
            # In check mode on a new node, the command is not installed yet.
            if self._task.check_mode:
                return None
            raise

    def _running_differs(self):
        """Return why the running daemon's behaviour differs from its files; None without a difference."""
        return running.difference(self._running) if self._running else None

    def _take_back(self):
        entries = {path: entry for path, entry in self._node["ledger"].items() if entry.get("owner") == _OWNER}
        if not entries:
            return {"changed": False, "msg": "this collection changed nothing"}
        staying = self._staying_specs()
        if staying:
            return _kept(staying)
        changes = []
        for path, entry in entries.items():
            now = self._text_now(path)
            if now is not None:
                ours = ledgers.sha256(now.encode()) == entry["sha256"]
                change = self._adapter.undo(path, ours, _text_before(entry), self._check)
                if change is not None and change.before != change.after:
                    changes.append(change)
        if not changes:
            # The files or the runtime no longer exist, so no restart and no check are necessary.
            return self._put_back()
        self._require_command()
        holders = self._cdi_holders()
        if holders:
            return _kept(holders)
        # The root file comes first, because the runtime can check only that file.
        changes.sort(key=lambda change: change.path != self._runtime["config"]["real_path"])
        result = self._apply(changes, "this collection's change is undone", undo=True)
        left_on = self._adapter.left_on(changes)
        if left_on:
            result["warnings"] = [
                *result["warnings"],
                f"kept: CDI stays on, because {left_on} of another owner has enable_cdi = true. If that line was "
                "copied from this collection's change, as nvidia-ctk does, remove it there and restart "
                f"{self._runtime['unit']}",
            ]
        if len(changes) < len(entries) and not self._task.check_mode:
            self._put_back()
        return result

    def _text_now(self, path):
        config = self._runtime.get("config") or {}
        if config.get("real_path") == path:
            return config["content"]
        return {**(config.get("files") or {}), **(config.get("imported") or {})}.get(path)

    def _files(self):
        """Return all files whose text was read from this node. A new text may have tokens from any of these files."""
        config = self._runtime["config"]
        return [config["real_path"], *(config.get("files") or ()), *(config.get("imported") or ())]

    def _staying_specs(self):
        """Return a reason to keep CDI on for each of our specs that stays on the node, or in check mode would stay."""
        told = self._specs or {}
        if self._task.check_mode and "stays" in told:
            paths = [*told["stays"], *told.get("dynamic", ())]
        else:
            # Read the facts again, because role cdi_specs has removed specs since the preflight.
            facts = self._execute_module(
                module_name="nodedevices.kubernetes.node_preflight", module_args={}, task_vars=self._vars
            )
            problem = facts.get("msg") if facts.get("failed") else facts.get("ledger_problem")
            if problem:
                raise UnsupportedConfig(
                    f"CDI stays on, because it is unknown whether a pod needs it ({problem}): fix this, and run the "
                    "play again"
                )
            paths = [path for path, entry in facts["ledger"].items() if entry.get("owner") == _SPECS_OWNER]
            paths += [
                file["path"] for file in facts["cdi_files"] if role_specs.is_dynamic(file["directory"], file["name"])
            ]
        if not paths:
            return []
        reasons = [f"{kept['device']} is {kept['reason']}" for kept in told.get("kept") or [] if "device" in kept]
        return reasons or [f"{path} exists and a pod may hold its devices" for path in paths]

    def _cdi_holders(self):
        """Return a reason to keep CDI on for each container that holds a device by a CDI name, of any owner."""
        # A drain asks this before it evicts the pods.
        if (self._specs or {}).get("evicted"):
            return []
        try:
            return plugin_cli.cdi_holders(self, self._places, self._runtime["socket"])
        except plugin_cli.PluginCliMissing as error:
            # In check mode on a node without the command. A real run would fail.
            return [f"nobody knows which containers hold a CDI device: {error}"]

    def _put_back(self):
        return self._execute_module(
            module_name="nodedevices.kubernetes.managed_files", module_args={"owner": _OWNER}, task_vars=self._vars
        )

    def _check(self, text, beside, drop_in=None, as_drop_in=None):
        """Let the node's runtime read a new text, in check mode too. Return the result. See runtimes.cdi.Check."""
        given = {"beside": beside, "drop_in": drop_in}
        if as_drop_in is not None:
            given = {
                "drop_in_directory": self._runtime["config"]["drop_in_directory"],
                "check_command": self._adapter.staged_command(),
            }
        path = as_drop_in or self._runtime["config"]["path"]
        given.update(program=self._adapter.program, sources=self._files())
        answer = self._on_node(state="checked", files=[{"path": path, "content": text}], **given)
        if answer.get("failed"):
            raise UnsupportedConfig(answer["msg"])
        return Checked(answer["effective"], answer["staged"])

    def _apply(self, changes, reason, undo=False, original=None):
        diff = [
            {"path": change.path, "prepared": _changed_lines(change)}
            for change in changes
            if change.before != change.after
        ]
        unit = self._runtime["unit"]
        if unit is None:
            raise UnsupportedConfig(
                f"{reason}, but process {self._runtime['pid']} belongs to no systemd service that could be restarted: "
                f"run {self._adapter.name} as a systemd service"
            )
        other_start = running.other_start(self._adapter.name, unit, self._runtime.get("next_start") or ())
        if other_start:
            raise UnsupportedConfig(other_start)
        self._require_harmless()
        message = f"{reason}: {unit} is restarted"
        told = {"restarted": True, "diff": diff, "warnings": self._warnings(changes)}
        # In check mode, the module only reports obstacles.
        turn = parallel_restarts.at_most(self._max_parallel_restarts, play.Renewal(self, self._vars))
        with contextlib.nullcontext() if self._task.check_mode else turn:
            answer = self._on_node(
                state="applied",
                files=[_file(change, original) for change in changes],
                sources=self._files(),
                check_command=self._adapter.check_command(changes[0].path),
                unit=unit,
                question=self._adapter.question(self._command),
                spec_dirs=None if undo or not self._adapter.tells_cdi else list(SPEC_DIRS),
                undo=undo,
            )
        if answer.get("failed"):
            raise NotApplied("\n".join([answer["msg"], *self._pending()]), self._answers())
        if self._task.check_mode:
            return {"changed": True, "msg": message, **told}
        # Unknown if the recovery at boot completed the change.
        seconds = answer.get("seconds")
        paused = "" if seconds is None else f"; it did not answer for {seconds} s"
        return {**answer, **told, "msg": f"{message}{paused}"}

    def _answers(self):
        try:
            plugin_cli.answer(self, self._adapter.question(self._command))
        except plugin_cli.PluginCliError:
            return False
        return True

    def _warnings(self, changes):
        """Return the warnings of `_pending`, and a warning if a replaced file has other hard links."""
        config = self._runtime["config"]
        replaced = [each.path for each in changes if each.before != each.after and each.path == config["real_path"]]
        pending = self._pending()
        if not replaced or not config.get("other_names"):
            return pending
        other_names = (
            f"{replaced[0]} has other hard links ({config['other_names']}), which keep the former text: update them "
            "by hand"
        )
        return [other_names, *pending]

    def _pending(self):
        """Return one message for each file that someone changed after the runtime started.

        A restart also applies this change, and a rollback cannot restore the runtime's earlier settings.
        """
        return [
            f"by its time, {path} was changed after {self._adapter.name} started: a restart also applies that change"
            for path in self._runtime["config"].get("later", ())
        ]

    def _require_harmless(self):
        """Raise UnsupportedConfig if the restart would end containers."""
        if self._adapter.keeps_containers:
            return
        try:
            number, advice = self._adapter.ended(plugin_cli.answer(self, self._adapter.question(self._command)))
        except plugin_cli.PluginCliMissing:
            # In check mode on a new node, the command is not installed yet.
            if self._task.check_mode:
                return
            raise
        if number:
            raise UnsupportedConfig(
                f"a restart of {self._adapter.name} would stop its running containers ({number}): {advice}, or stop "
                "the containers first"
            )

    def _require_command(self):
        """Raise PluginCliMissing if the command is missing, because only the command can check a restart."""
        # In check mode on a new node, the command is not installed yet.
        if not self._task.check_mode and not plugin_cli.is_there(self, self._command):
            raise plugin_cli.PluginCliMissing(self._command)

    def _on_node(self, **arguments):
        return self._execute_module(module_name=_MODULE, module_args=arguments, task_vars=self._vars)


def _kept(reasons):
    """Return the result of a run that leaves CDI on. Without CDI, a restarted container would lack its devices."""
    kept = f"CDI stays on, because {'; '.join(reasons)}"
    return {"changed": False, "msg": f"kept: {kept}", "kept": reasons, "warnings": [f"kept: {kept}"]}


def _file(change, original):
    """Return a change as an element of the module's option ``files``. original: see ``_original``."""
    before = change.before
    return {
        "path": change.path,
        "content": change.after,
        "expected_sha256": None if before is None else ledgers.sha256(before.encode()),
        "original": original,
    }


def _changed_lines(change):
    """Return a unified diff with only the changed lines."""
    before, after = ((text or "").splitlines(keepends=True) for text in (change.before, change.after))
    lines = difflib.unified_diff(before, after, f"before: {change.path}", f"after: {change.path}", n=0)
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _text_before(entry):
    """Return the text before our change, from a ledger entry; None for no file."""
    before = entry["before"]
    return None if before is None else base64.b64decode(before["content"]).decode("utf-8")
