# SPDX-License-Identifier: Apache-2.0
"""Makes CDI effective in a node's container runtime; see plugins/modules/cdi_runtime.py for its documentation."""

from __future__ import annotations

import base64
import tomllib

from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import folders
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import containerd, tool
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.declaration import plain

_OWNER = "cdi_runtime"
_SPECS_OWNER = "cdi_specs"
_MODULE = "nodedevices.kubernetes.runtime_config"
#: How to plan for each runtime that is known: where CDI is effective, the least change, and its undoing.
_ADAPTERS = {"containerd": containerd}


class ActionModule(ActionBase):
    """One question to the node where CDI is effective; where it is not, a check and a transaction."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        arguments = plain({key: value for key, value in self._task.args.items() if value is not None})
        self._command = arguments["command"]
        self._specs = arguments.get("specs")
        self._node = arguments["node"]
        self._runtime = self._node["runtime"]
        try:
            if arguments.get("state", "present") == "absent":
                return {**result, **self._take_back()}
            return {**result, **self._make_effective()}
        except tool.ToolError as error:
            return {**result, "failed": True, "msg": f"{self._vars.get('inventory_hostname', '')}: {error}"}
        except containerd.Refusal as error:
            path = self._runtime.get("config", {}).get("path", self._runtime["socket"])
            return {**result, "failed": True, "msg": f"{self._vars.get('inventory_hostname', '')}: {path}: {error}"}

    @property
    def _adapter(self):
        return _ADAPTERS[self._runtime["name"]]

    @property
    def _config(self):
        return self._runtime["config"]

    def _make_effective(self):
        if not self._config["effective"]:
            raise containerd.Refusal(f"{self._runtime['executable']} config dump fails with it; mend it first")
        new = self._adapter.plan(self._config["content"], self._config["effective"], self._runtime["version"])
        if new is None:
            reason = self._running_differs()
            if reason is None:
                return {"changed": False, "msg": "CDI is effective"}
            # The file is right, and the daemon was started before it was.
            return self._apply(self._config["content"], spec_dirs=self._wanted_dirs(), reason=reason)
        answer = self._check(new)
        if not self._adapter.effective(answer["effective"]).suffices:
            raise containerd.Refusal(self._adapter.overridden(answer["imported"], self._runtime["version"]))
        self._require_command()
        return self._apply(new, spec_dirs=self._wanted_dirs(), reason="CDI is off in its configuration")

    def _wanted_dirs(self):
        return list(containerd.SPEC_DIRS)

    def _running_differs(self):
        """Why the running daemon does not do what its file says; None if it does."""
        try:
            answer = tool.ask(self, self._command, "runtime", "--socket", self._runtime["socket"])
        except tool.ToolError:
            # Check mode on a bare node: the tool would have been installed by now.
            if self._task.check_mode:
                return None
            raise
        cdi = answer["cdi"]
        # A runtime that does not tell is one that cannot be turned off.
        if cdi["enabled"] is False:
            return "its running daemon has CDI off, although its configuration turns it on"
        lacking = folders.lacking(self._wanted_dirs(), cdi["spec_dirs"] or self._wanted_dirs())
        return f"its running daemon does not read {', '.join(lacking)}" if lacking else None

    def _take_back(self):
        entries = {path: entry for path, entry in self._node["ledger"].items() if entry.get("owner") == _OWNER}
        if not entries:
            return {"changed": False, "msg": "nothing was changed by us"}
        staying = self._staying_specs()
        if staying:
            # A container that restarts gets its devices by CDI again, and without it starts without them, in silence.
            kept = f"CDI stays on, because {', '.join(staying)}"
            return {"changed": False, "msg": f"kept: {kept}", "kept": staying, "warnings": [f"kept: {kept}"]}
        path, entry = next(iter(entries.items()))
        config = self._runtime.get("config")
        if config is None or config["real_path"] != path or config["content"] is None:
            # There is no such runtime or no such file any more: nothing to restart, nothing to plan by.
            return self._put_back()
        before = entry["before"]
        content = None if before is None else base64.b64decode(before["content"]).decode("utf-8")
        if config["sha256"] != entry["sha256"]:
            content = self._adapter.undo(config["content"], content)
        if content == config["content"]:
            return self._put_back()
        if content is not None:
            self._check(content)
        self._require_command()
        return self._apply(content, spec_dirs=None, reason="our change is taken back", undo=True)

    def _staying_specs(self):
        """What is said of each spec of ours that is still there, or in check mode would be."""
        told = self._specs or {}
        if self._task.check_mode and "stays" in told:
            paths = told["stays"]
        else:
            # Afresh: since the node was looked at, role cdi_specs has taken away what nobody holds.
            facts = self._execute_module(
                module_name="nodedevices.kubernetes.node_facts", module_args={}, task_vars=self._vars
            )
            problem = facts.get("msg") if facts.get("failed") else facts.get("ledger_problem")
            if problem:
                raise containerd.Refusal(f"it is not known whether a pod needs CDI: {problem}")
            paths = [path for path, entry in facts["ledger"].items() if entry.get("owner") == _SPECS_OWNER]
        if not paths:
            return []
        reasons = [f"{kept['device']} is {kept['reason']}" for kept in told.get("kept") or [] if "device" in kept]
        return reasons or [f"{path} is there, whose devices a pod may hold" for path in paths]

    def _put_back(self):
        return self._execute_module(
            module_name="nodedevices.kubernetes.managed_files", module_args={"owner": _OWNER}, task_vars=self._vars
        )

    def _check(self, content):
        """What the runtime makes of the text, and what the text imports.

        Raises Refusal unless the runtime makes of it what it does now, CDI's two keys apart.
        """
        paths = (self._config["path"], self._config["real_path"])
        staged = self._adapter.staged(content, *paths)
        answer = self._on_node(
            do="check",
            path=self._config["path"],
            content=staged,
            program=self._runtime["executable"],
            beside=_has_relative_imports(staged),
            imports=self._adapter.imports(self._config["effective"], *paths),
        )
        if answer.get("failed"):
            raise containerd.Refusal(answer["msg"])
        differences = self._adapter.unexpected_changes(
            self._config["effective"], answer["effective"], *paths, answer["staged"]
        )
        if differences:
            raise containerd.Refusal(
                f"the edit would change more than CDI: {', '.join(differences)} would differ in what containerd makes "
                f"of it; nothing was written"
            )
        return answer

    def _apply(self, content, spec_dirs, reason, undo=False):
        path = self._config["real_path"]
        diff = {
            "before": self._config["content"] or "",
            "after": content or "",
            "before_header": path,
            "after_header": path,
        }
        message = f"{reason}: {self._runtime['unit']} is restarted"
        if self._runtime["unit"] is None:
            raise containerd.Refusal(
                f"{reason}, and process {self._runtime['pid']} belongs to no systemd service that could be restarted; "
                f"run containerd as a service"
            )
        if self._task.check_mode:
            return {"changed": True, "msg": message, "restarted": True, "diff": [diff]}
        answer = self._on_node(
            do="apply",
            path=path,
            content=content,
            expected_sha256=self._config["sha256"],
            program=self._runtime["executable"],
            unit=self._runtime["unit"],
            question=[self._command, "runtime", "--socket", self._runtime["socket"], "-o", "json"],
            spec_dirs=spec_dirs,
            undo=undo,
        )
        if answer.get("failed"):
            raise containerd.Refusal(answer["msg"])
        answer.update(msg=f"{message}; it was away for {answer['seconds']} s", restarted=True, diff=[diff])
        return answer

    def _require_command(self):
        """It asks the runtime after the restart; without an answer all would be put back, with another reason."""
        # Check mode on a bare node: the tool would have been installed by now.
        if not self._task.check_mode and not tool.is_there(self, self._command):
            raise tool.ToolMissing(self._command)

    def _on_node(self, **arguments):
        # The check only reads, so it runs in check mode too.
        return self._execute_module(module_name=_MODULE, module_args=arguments, task_vars=self._vars)


def _has_relative_imports(content):
    imports = tomllib.loads(content.replace("\r\n", "\n")).get("imports") or []
    return any(not path.startswith("/") for path in imports)
