"""Plays a node for the converge function of role cdi_runtime: with real files and a real ledger."""

from __future__ import annotations

import base64
import json
import pathlib
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import cdi_runtime
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge.node import Node
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import launch
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.plan import Places

from node_device_plugin.runtime import configuration
from node_device_plugin.runtime.configuration.cdi import SPEC_DIRS, Cdi, Change
from node_device_plugin.support.kubelet_process import KubeletProcess

COMMAND = "/bin/true"
SOCKET = "/run/x.sock"


class Adapter(configuration.Adapter):
    """Gives each file back what it was. A test replaces what it is about."""

    name, tells_cdi, keeps_containers, by_hand = "containerd", True, True, False
    read_at_start = ()
    cdi = Cdi(enabled=False, spec_dirs=SPEC_DIRS)

    def __init__(self, texts):
        self.texts = texts

    def obstacles(self, cdi):
        assert cdi is True
        return []

    def text(self, path):
        return self.texts.get(path)

    def undo(self, path, ours, before):
        assert ours
        return Change(path, self.texts[path], before)

    def left_on(self, changes):
        return None


class Module:
    """What a Node uses of an AnsibleModule."""

    check_mode = False

    def __init__(self, role):
        self._role = role

    def run_command(self, command, handle_exceptions):
        assert handle_exceptions is False
        return self._role.answer_of(command)

    def selinux_enabled(self):
        return False

    def set_default_selinux_context(self, path, changed):
        pass


class RoleOnNode:
    """A node whose root file and drop-in have our change."""

    def __init__(self, top: pathlib.Path, monkeypatch: Any) -> None:
        self.root, self.drop_in = str(top / "config.toml"), str(top / "conf.d" / "site.toml")
        (top / "conf.d").mkdir()
        texts = {path: f"ours in {path}" for path in (self.drop_in, self.root)}
        for path, text in texts.items():
            pathlib.Path(path).write_text(text)
        self.adapter: Any = Adapter(texts)
        self.config = {"path": self.root, "real_path": self.root, "content": texts[self.root]}
        self.facts = {
            "socket": SOCKET,
            "pid": 7,
            "unit": "containerd.service",
            "config": self.config,
            "name": "containerd",
        }
        self.params: dict[str, Any] = {"state": "absent", "command": COMMAND, "specs": {}, "may_restart": True}
        self.check_mode = False
        #: What the plugin's command was asked, and what it answers.
        self.questions: list[list[str]] = []
        self.holders: Any = {"held": [], "unknown": []}
        self.running: Any = {"cdi": {"enabled": True, "spec_dirs": list(SPEC_DIRS)}}
        #: The files that someone wrote after a process had started, by its id.
        self.later: dict[int, list[str]] = {7: []}
        #: The plans that a transaction carried out, and how it ended.
        self.plans: list[Any] = []
        self.outcome = launch.Outcome("x", None, 0.1)
        self.places = Places(str(top / "ours"), str(top / "units"), str(top / "lock"))
        monkeypatch.setattr(cdi_runtime, "PLACES", self.places)
        monkeypatch.setattr(cdi_runtime, "written_since", lambda pid, paths: self.later[pid])
        monkeypatch.setattr(ledgers, "DIRECTORY", self.places.directory)
        monkeypatch.setattr(ledgers.Ledger.__init__, "__defaults__", (self.places.directory,))
        monkeypatch.setattr(launch, "carry_out", self._carry_out)
        monkeypatch.setattr(configuration, "of", self._adapter_of)
        monkeypatch.setattr(cdi_runtime, "running_kubelet", lambda: (KubeletProcess(1, "1.36.2", "/k"), []))
        self.enter({path: entry(path, f"theirs in {path}") for path in texts})

    def _adapter_of(self, facts: dict[str, Any]) -> Any:
        self.adapter.runtime = facts
        return self.adapter

    def enter(self, entries: dict[str, Any]) -> None:
        """Make these the ledger's entries."""
        with ledgers.Ledger(self.places.directory) as ledger:
            ledger.entries.clear()
            ledger.entries.update(entries)
            ledger.save()

    def _carry_out(self, _places: Places, plan: Any) -> launch.Outcome:
        self.plans.append(plan)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def answer_of(self, command: list[str]) -> tuple[int, str, str]:
        self.questions.append(command)
        answer = self.holders if "holders" in command else self.running
        if isinstance(answer, Exception):
            raise answer
        return (0, json.dumps(answer), "") if isinstance(answer, dict) else (1, "", str(answer))

    def converge(self, **params: Any) -> dict[str, Any]:
        """The function's answer, as the module and the preflight get it."""
        given = {**dict.fromkeys(cdi_runtime.PARAMS), **self.params, **params}
        node = Node(Module(self), self.check_mode, {"runtime": self.facts})
        return node.converged(cdi_runtime.converge, given)

    def recover(self) -> dict[str, Any]:
        """The answer about an interrupted change."""
        return self.converge(state="recovered")

    def make_effective(self, change: Change | None, **params: Any) -> dict[str, Any]:
        """The answer where the adapter plans that change."""
        self.adapter.plan = lambda: change
        return self.converge(state="present", **params)


def entry(path: str, before: str) -> dict[str, Any]:
    kept = {"kind": "file", "content": base64.b64encode(before.encode()).decode(), "mode": 420, "uid": 0, "gid": 0}
    ours = ledgers.sha256(f"ours in {path}".encode())
    return {"kind": "file", "owner": "cdi_runtime", "sha256": ours, "mode": 420, "before": kept}
