"""When role node_tools looks at a node, and when it gathers wheels and sends them."""

from __future__ import annotations

import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import node_tools
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight, wheels

NAME = "0.1.0-aaaaaaaaaaaa"
TARGETS = {"cp311-x86_64": {"glibc": [2, 17], "environment": NAME}}
ON_NODE = "/tmp/of-ansible/wheels.tar"


class Run:
    """The action on a node whose module gives these answers, one after the other."""

    def __init__(self, cache):
        self.cache = cache
        self.gathered, self.sent, self.executed = [], [], []

    def __call__(self, arguments, *answers):
        action = object.__new__(node_tools.ActionModule)
        play = types.SimpleNamespace(_uuid="play-1")
        given = {"cache": str(self.cache), **arguments}
        action._task = types.SimpleNamespace(args=given, check_mode=False, get_play=lambda: play)
        action._sent = lambda name, content: self.sent.append((name, content)) or f"/tmp/of-ansible/{name}"
        left = list(answers)

        def execute(module_name, module_args, task_vars):
            self.executed.append((module_name.rpartition(".")[2], dict(module_args)))
            return left.pop(0)

        action._execute_module = execute
        action._execute_with_code = lambda module_name, arguments, task_vars: execute(
            module_name, {**arguments, "code": "given"}, task_vars
        )
        result = action.run(None, {"inventory_hostname": "node1"})
        assert left == []
        return result


@pytest.fixture
def run(tmp_path, monkeypatch):
    made = Run(tmp_path / "cache")
    wheel = types.SimpleNamespace(path=tmp_path / "x.whl", sha256="ab")

    def gather(*given):
        made.gathered.append(given)
        return [wheel]

    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(preflight.Preflight, "look", lambda self, asked: {})
    monkeypatch.setattr(wheels, "targets", lambda: TARGETS)
    monkeypatch.setattr(wheels, "gather", gather)

    monkeypatch.setattr(wheels, "packed", lambda gathered: b"all wheels" if gathered == [wheel] else None)
    return made


ASKED = {"state": "present", "targets": TARGETS, "code": "given"}


def test_an_environment_that_is_there_needs_no_wheels(run):
    answer = {"changed": True, "incomplete": False, "restarted": False}
    assert run({"name": "0.0.9"}, answer) == answer
    assert run.executed == [("node_tools", ASKED)]
    assert (run.gathered, run.sent) == ([], [])


INCOMPLETE = {"changed": False, "incomplete": True, "target": "cp311-x86_64"}


def test_an_environment_that_is_to_be_made_gets_the_wheels_that_the_node_chose(run):
    answer = {"changed": True, "incomplete": False, "restarted": True}
    assert run({}, INCOMPLETE, answer) == answer
    assert run.gathered == [("cp311-x86_64", run.cache, None)]
    assert run.sent == [("wheels.tar", b"all wheels")]
    assert run.executed == [
        ("node_tools", ASKED),
        ("node_tools", {**ASKED, "archive": ON_NODE, "wheels": {"x.whl": "ab"}}),
    ]


@pytest.mark.parametrize("more", [{}, {"target": "../x"}])
def test_a_node_that_names_no_target_gets_no_wheels(run, more):
    result = run({}, {"changed": False, "incomplete": True, **more})
    assert result == {"failed": True, "msg": f"the node's answer names a target without wheels: {more.get('target')}"}
    assert (run.gathered, run.sent) == ([], [])


def test_sources_that_change_while_the_wheel_is_built(run, monkeypatch):
    left = [TARGETS, {"cp311-x86_64": {"glibc": [2, 17], "environment": "0.1.0-bbbbbbbbbbbb"}}]
    monkeypatch.setattr(wheels, "targets", lambda: left.pop(0))
    result = run({}, INCOMPLETE)
    assert result == {"failed": True, "msg": "the plugin's source changed while its wheel was built: run again"}
    assert run.sent == []


def test_a_module_that_fails_gets_no_wheels(run):
    answer = {"failed": True, "incomplete": True, "msg": "the ledger is damaged"}
    assert run({}, answer) == answer
    assert (run.gathered, run.sent) == ([], [])


@pytest.mark.parametrize("more", [{}, {"name": "0.1.0"}])
def test_a_roll_back_needs_neither_a_look_at_the_node_nor_wheels(run, more):
    answer = {"changed": True, "was": NAME}
    assert run({"state": "rolled_back", **more}, answer) == answer
    assert run.executed == [("node_tools", {"state": "rolled_back", **more})]
    assert (run.gathered, run.sent) == ([], [])
