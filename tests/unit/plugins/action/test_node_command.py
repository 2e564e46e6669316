"""A command on a node, and the one that runs in check mode instead."""

from __future__ import annotations

import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import node_command


@pytest.mark.parametrize(
    ("check", "more", "argv", "executed_in_check_mode"),
    [
        (False, {"check_argv": ["b"]}, ["a"], False),
        # Ansible's module would run no command at all in check mode.
        (True, {"check_argv": ["b"]}, ["b"], False),
        (True, {}, ["a"], True),
    ],
)
def test_the_tasks_own_check_mode_decides(monkeypatch, check, more, argv, executed_in_check_mode):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    action = object.__new__(node_command.ActionModule)
    action._task = types.SimpleNamespace(args={"argv": ["a"], "removes": "/x", **more}, check_mode=check)
    executed = []

    def execute(module_name, module_args, task_vars):
        executed.append((module_args, action._task.check_mode))
        return {"changed": True, "rc": 0, "stdout": "", "stderr": "", "start": "now"}

    action._execute_module = execute
    assert action.run(None, {})["rc"] == 0
    assert executed == [({"argv": argv, "removes": "/x", "_uses_shell": False}, executed_in_check_mode)]
