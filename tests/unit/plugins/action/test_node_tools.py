"""When role node_tools looks at a node, and when it gathers wheels and sends them."""

from __future__ import annotations

import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import node_tools
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels

NODE = {"libc": "glibc 2.36", "machine": "x86_64", "python": {"version": [3, 11, 2]}}
TARGET = wheels.Target((3, 11), "x86_64", (2, 36))
ON_NODE = "/tmp/of-ansible/wheels.tar"
NAME = "0.1.0-aaaaaaaaaaaa"


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
        shell = types.SimpleNamespace(tmpdir="/tmp/of-ansible", join_path=lambda *parts: "/".join(parts))
        action._connection = types.SimpleNamespace(_shell=shell)
        action._make_tmp_path = lambda: None
        action._transfer_file = lambda *paths: self.sent.append(paths)
        action._fixup_perms2 = lambda _paths: None
        left = list(answers)

        def execute(module_name, module_args, task_vars):
            self.executed.append((module_name.rpartition(".")[2], dict(module_args)))
            return left.pop(0)

        action._execute_module = execute
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
    monkeypatch.setattr(wheels, "environment_name", lambda _target: NAME)
    monkeypatch.setattr(wheels, "gather", gather)
    monkeypatch.setattr(wheels, "pack", lambda _name, _wheels, cache: cache / "packed.tar")
    return made


def test_an_environment_that_is_there_needs_no_wheels(run):
    answer = {"changed": True, "incomplete": False, "restarted": False}
    assert run({"node": NODE}, answer) == answer
    assert run.executed == [("node_tools", {"state": "present", "name": NAME})]
    assert (run.gathered, run.sent) == ([], [])


def test_an_environment_that_is_to_be_made_gets_its_wheels(run):
    answer = {"changed": True, "incomplete": False, "restarted": True}
    assert run({"node": NODE}, {"changed": False, "incomplete": True}, answer) == answer
    assert run.gathered == [(TARGET, run.cache, None)]
    assert run.sent == [(str(run.cache / "packed.tar"), ON_NODE)]
    asked = {"state": "present", "name": NAME}
    assert run.executed == [
        ("node_tools", asked),
        ("node_tools", {**asked, "archive": ON_NODE, "wheels": {"x.whl": "ab"}}),
    ]


def test_a_module_that_fails_gets_no_wheels(run):
    answer = {"failed": True, "incomplete": True, "msg": "the ledger is damaged"}
    assert run({"node": NODE}, answer) == answer
    assert (run.gathered, run.sent) == ([], [])


@pytest.mark.parametrize("more", [{}, {"name": "0.1.0"}])
def test_a_roll_back_needs_neither_a_look_at_the_node_nor_wheels(run, more):
    answer = {"changed": True, "was": NAME}
    assert run({"state": "rolled_back", **more}, answer) == answer
    assert run.executed == [("node_tools", {"state": "rolled_back", **more})]
    assert (run.gathered, run.sent) == ([], [])


def test_a_node_without_glibc_is_refused(run):
    result = run({"node": {**NODE, "libc": "musl"}})
    assert result == {
        "failed": True,
        "msg": "the node's C library is musl, but the plugin's wheels need glibc: use a distribution with glibc",
    }
