"""What of an action's result Ansible gets, whatever the result is made of."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import types

import pytest
from ansible.module_utils._internal._messages import ErrorSummary, Event, WarningSummary
from ansible.module_utils.common.json import Direction, get_module_encoder
from ansible.plugins.action import ActionBase
from ansible.template import is_trusted_as_template, trust_as_template
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import answer_shapes, node_action, node_code
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.node_action import NodeAction

KEY = "discovered_interpreter_python"


def ran(result, run_once=False, discovered=None, gives_facts=False):
    """The result of an action that makes this one."""
    made = type("Action", (NodeAction,), {"act": lambda self, given: result, "gives_facts": gives_facts})
    action = object.__new__(made)
    action._task = types.SimpleNamespace(args={}, async_val=0, check_mode=False, run_once=run_once)
    action._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir="/tmp/of-ansible"))
    action._discovered_interpreter_key, action._discovered_interpreter = (
        (KEY, discovered) if discovered else (None, False)
    )
    return action.run(None, {})


def written(data):
    """What a module writes that answers this data."""
    text = json.dumps(data, cls=get_module_encoder("modern", Direction.MODULE_TO_CONTROLLER))
    return {"stdout": text, "stderr": "", "rc": 0}


def answered(module, data):
    """A module's answer, after Ansible has parsed what is left for it."""
    action = object.__new__(type("Action", (NodeAction,), {}))
    action._asked, action._asked_host = module, "node1"
    parsed = action._parse_returned_data(written(data), "modern")
    as_data = parsed if isinstance(parsed, dict) else parsed.as_result_dict()
    assert [value for value in as_data.values() if not isinstance(value, bool)] == []
    return action._module_answer


def test_the_reason_of_a_module_that_crashed_is_its_message():
    """Ansible's module writes only an exception, without a message."""
    event = Event(msg="Object of type Spec is not JSON serializable", formatted_traceback="Traceback")
    data = {"failed": True, "changed": False, "exception": ErrorSummary(event=event)}
    assert answered("cdi_specs", data) == {
        "failed": True,
        "changed": False,
        "msg": "Object of type Spec is not JSON serializable",
        "traceback": "Traceback",
    }
    said = answered("cdi_specs", {**data, "msg": "Its own"})["msg"]
    assert said == "Its own"


@pytest.mark.parametrize(
    "key", ["add_host", "add_group", "ansible_facts", "ansible_stats", "include", "results", "_ansible_no_log"]
)
def test_no_result_has_a_key_that_ansible_obeys(key):
    assert ran({"changed": False, key: {"a": 1}}) == {"changed": False}


def test_the_python_that_ansible_found_is_of_one_host():
    forged = {"ansible_facts": {KEY: "/hostile"}}
    assert ran(dict(forged), discovered="/usr/bin/python3") == {"ansible_facts": {KEY: "/usr/bin/python3"}}
    # With run_once, Ansible would set it for all hosts.
    assert ran(dict(forged), discovered="/usr/bin/python3", run_once=True) == {}


def test_only_the_action_that_checks_facts_gives_them():
    facts = {"ansible_facts": {"ansible_kernel": "6"}}
    assert ran(dict(facts), gives_facts=True) == facts


def test_no_text_of_a_result_is_a_template():
    result = ran({"msg": trust_as_template("{{ a }}"), "deep": [{"a": trust_as_template("{{ a }}")}]})
    assert result == {"msg": "{{ a }}", "deep": [{"a": "{{ a }}"}]}
    assert not is_trusted_as_template(result["msg"])
    assert not is_trusted_as_template(result["deep"][0]["a"])


def test_a_result_with_an_object_of_ansible_fails():
    result = ran({"seen": [WarningSummary(event=Event(msg="a"))]})
    assert (result["failed"], result["msg"]) == (True, "the result is WarningSummary, expected plain data")


def test_texts_of_warnings_stay():
    warnings = ["a\x1b", WarningSummary(event=Event(msg="b"))]
    assert answered("node_lock", {"changed": False, "warnings": warnings}) == {
        "changed": False,
        "warnings": ["a\\u001b", "b"],
    }


@pytest.mark.parametrize(
    ("module", "data", "says"),
    [
        (
            "node_lock",
            {"changed": "no"},
            "node1's answer of module node_lock: changed is a text, expected true or false",
        ),
        ("node_lock", {"warnings": {"a": 1}}, "node1's answer of module node_lock: warnings is dict, expected a list"),
        ("node_lock", {"warnings": [7]}, "node1's answer of module node_lock: warnings has int, expected texts"),
        (
            "service",
            {"actions": ["x", 1]},
            "node1's answer of module service: actions[1] is a number",
        ),
        # A module without a shape could answer anything.
        ("ping", {"ping": "pong"}, "node1's answer of module ping: 'ping'"),
    ],
)
def test_a_wrong_answer_is_a_failure(module, data, says):
    result = answered(module, data)
    assert result["failed"] is True
    assert result["msg"].startswith(says)


def test_only_a_module_that_was_asked_so_may_answer_that_code_is_missing(monkeypatch):
    missing, scanned = {"changed": False, "code_missing": True}, {"changed": False, "scan": {}}
    answers = [missing, missing]
    decoded = []
    shapes = {"scanning": {"scan": {}}, "writing": {}}
    monkeypatch.setattr(answer_shapes, "MODULES", shapes)
    monkeypatch.setattr(node_code, "archive", lambda: b"the code")
    action = object.__new__(type("Action", (NodeAction,), {}))
    action._sent = lambda name, content: f"/tmp/{name}" if content == b"the code" else None

    def execute(self, module_name, module_args, task_vars):
        decoded.append(module_args)
        return self._parse_returned_data(written(answers.pop(0)), "modern")

    monkeypatch.setattr(ActionBase, "_execute_module", execute)
    refused = action._execute_with_code("a.b.scanning", {"domain": "a"}, {"inventory_hostname": "node1"})
    assert refused == {
        "failed": True,
        "changed": False,
        "msg": "node1's answer of module scanning: scan is missing",
    }
    assert decoded[-1] == {"domain": "a", "code": {"sha256": node_code.sha256(), "path": "/tmp/code.zip"}}
    answers[:] = [missing, missing]
    assert action._execute_with_code("a.b.writing", {}, {}) == {"changed": False}
    answers[:] = [{**missing, "code_missing": False}]
    assert action._execute_with_code("a.b.scanning", {}, {})["failed"]
    answers[:] = [scanned]
    assert action._execute_with_code("a.b.scanning", {}, {}) == scanned


def test_a_worker_shares_what_the_controller_knows():
    # A full garbage collection would write to each object, and so copy it. In a process of its own, because conftest.py
    # does the same for forks of tests.
    script = f"""
import gc, multiprocessing
import {node_action.__name__}
with multiprocessing.get_context("fork").Pool(1) as workers:
    print(workers.apply(gc.get_freeze_count), gc.get_freeze_count())
"""
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(node_action.__file__).parents[5])}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    in_worker, here = map(int, done.stdout.split())
    assert in_worker > here == 0
