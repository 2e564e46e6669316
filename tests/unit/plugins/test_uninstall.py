"""What an uninstall leaves on a node while a pod needs it, and what it says of that."""

from __future__ import annotations

import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import cdi_runtime

CONFIG = "/etc/containerd/config.toml"
SPEC = "/etc/cdi/node-device-plugin_example.com_camera.json"
BEFORE = {CONFIG: {"kind": "file", "owner": "cdi_runtime", "before": None, "sha256": "x"}}
OF_SPECS = {SPEC: {"kind": "file", "owner": "cdi_specs", "before": None}}
HELD = [{"device": "example.com/camera=a", "reason": "held by default/pod"}]


@pytest.fixture
def run(monkeypatch):
    """Runs an action on a node: run(action, arguments, answers by module, check) gives its result and the modules."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_action(module, arguments, answers, check=False):
        action = object.__new__(module.ActionModule)
        action._task = types.SimpleNamespace(args=arguments, check_mode=check)
        executed = []

        def execute(module_name, module_args, task_vars):
            executed.append(module_name.rpartition(".")[2])
            return dict(answers[executed[-1]])

        action._execute_module = execute
        return action.run(None, {"inventory_hostname": "node1"}), executed

    return run_action


def take_cdi_back(run, ledger_now, specs=None, check=False):
    # The facts of the play's start still have the spec, and there is no such runtime any more.
    node = {"runtime": {"name": "containerd", "socket": "/run/x.sock"}, "ledger": {**BEFORE, **OF_SPECS}}
    answers = {"node_facts": {"ledger": ledger_now}, "managed_files": {"changed": True, "removed": [CONFIG]}}
    arguments = {"state": "absent", "command": "/bin/tool", "node": node, "specs": specs}
    return run(cdi_runtime, arguments, answers, check)


def test_cdi_stays_on_while_a_spec_stays_and_the_pod_is_named(run):
    result, executed = take_cdi_back(run, {**BEFORE, **OF_SPECS}, {"kept": HELD, "stays": [SPEC]})
    assert executed == ["node_facts"]
    assert result["changed"] is False
    assert result["warnings"] == ["kept: CDI stays on, because example.com/camera=a is held by default/pod"]


def test_cdi_stays_on_for_a_spec_that_nobody_told_of(run):
    result, executed = take_cdi_back(run, {**BEFORE, **OF_SPECS})
    assert executed == ["node_facts"]
    assert result["kept"] == [f"{SPEC} is there, whose devices a pod may hold"]


def test_cdi_goes_when_the_specs_have_gone_since_the_node_was_looked_at(run):
    result, executed = take_cdi_back(run, BEFORE, {"kept": [], "stays": []})
    assert executed == ["node_facts", "managed_files"]
    assert result["changed"] is True


@pytest.mark.parametrize(("stays", "does"), [([], ["managed_files"]), ([SPEC], [])])
def test_check_mode_goes_by_the_specs_that_would_stay(run, stays, does):
    _result, executed = take_cdi_back(run, {**BEFORE, **OF_SPECS}, {"kept": [], "stays": stays}, check=True)
    assert executed == does


def test_cdi_is_not_touched_where_the_ledger_cannot_be_read(run):
    node = {"runtime": {"name": "containerd", "socket": "/run/x.sock"}, "ledger": BEFORE}
    answers = {"node_facts": {"ledger": {}, "ledger_problem": "ledger.json is damaged"}}
    result, executed = run(cdi_runtime, {"state": "absent", "command": "/bin/tool", "node": node}, answers)
    assert executed == ["node_facts"]
    assert result["failed"] is True
    assert "ledger.json is damaged" in result["msg"]
