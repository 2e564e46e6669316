"""What the action makes of the module's answers, and how many runtimes of a run are restarted at once."""

from __future__ import annotations

import os
import time
import types

import pytest
from ansible import constants
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import cdi_runtime
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import parallel_restarts, preflight, wheels


@pytest.fixture
def action(monkeypatch):
    """An action whose module answers what ``answer`` returns for its arguments; ``asked`` has these."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    action = cdi_runtime.ActionModule.__new__(cdi_runtime.ActionModule)
    action._task = types.SimpleNamespace(check_mode=False, args={}, get_ds=dict)
    action._templar = types.SimpleNamespace(template=lambda value: value)
    action.asked, action.expected, action.sent = [], False, []
    action._sent = lambda name, content: action.sent.append((name, content[:2])) or "/tmp/sent.zip"
    look = preflight.Preflight
    monkeypatch.setattr(look, "execute", lambda _look, module, given: answer_of(module, given))
    monkeypatch.setattr(look, "expects", lambda _look, module, given, key: action.expected and key == "restarted")
    monkeypatch.setattr(look, "look", lambda *_given: {})
    monkeypatch.setattr(look, "declaration", lambda _look, given: {"needs_cdi": action.needs_cdi})
    action.needs_cdi = True

    def answer_of(module, given):
        assert module == "cdi_runtime"
        action.asked.append(given)
        return dict(action.answer(given))

    return action


VARIABLES = {"inventory_hostname": "worker1"}


def run(action, variables=None, **arguments):
    action._task.args = {"command": "/x/plugin", **arguments}
    return action.run(None, {**VARIABLES, **(variables or {})})


PRESENT = {"state": "present", "command": "/x/plugin"}


def test_without_a_restart_the_module_answers_once(action):
    action.answer = lambda given: {"changed": False, "msg": "CDI is effective"}
    assert run(action) == {"changed": False, "msg": "CDI is effective"}
    assert action.asked == [PRESENT]


def test_no_module_runs_where_no_resource_uses_cdi(action):
    action.needs_cdi = False
    assert run(action) == {"changed": False, "skipped": True, "msg": "no resource uses CDI"}
    assert action.asked == []
    # What an earlier declaration turned on is turned off all the same.
    action.answer = lambda given: {"changed": False, "msg": "this collection changed nothing"}
    assert run(action, state="absent")["msg"] == "this collection changed nothing"


def test_the_module_gets_what_the_host_sets(action):
    variables = {
        "node_devices_cri_socket": "/run/x.sock",
        "node_devices_settings": {"kubelet_device_plugin_dir": "/d"},
    }
    action.answer = lambda given: {"changed": False}
    run(action, variables, state="absent", specs={"stays": []})
    assert action.asked == [
        {
            "state": "absent",
            "command": "/x/plugin",
            "specs": {"stays": []},
            "cri_socket": "/run/x.sock",
            "device_plugin_dir": "/d",
        }
    ]


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize("check_mode", [False, True])
def test_a_runtime_restarts_in_the_nodes_turn(action, monkeypatch, tmp_path, expected, check_mode):
    """In check mode nothing restarts. Where the preflight expects the restart, the node is not asked without a turn.

    In check mode, the arguments are those of the preflight, so that its answer is the result.
    """
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    action._task.check_mode, action.expected = check_mode, expected
    action.answer = lambda given: {"changed": True, "restarted": True, "turn": bool(os.listdir(tmp_path))}
    assert run(action)["turn"] is not check_mode
    in_turn = [] if check_mode else [{**PRESENT, "may_restart": True}]
    assert action.asked == ([] if expected and not check_mode else [PRESENT]) + in_turn


def test_a_refusal_names_the_host_and_takes_no_turn(action):
    action.answer = lambda given: {"failed": True, "msg": "/c.toml: no", "restarted": True, "answers": False}
    assert run(action) == {"failed": True, "msg": "worker1: /c.toml: no", "restarted": True, "answers": False}
    assert len(action.asked) == 1

    def unpacked(given):
        raise wheels.WheelsError("the controller's Python has no tomlkit")

    action.answer = unpacked
    assert run(action) == {"failed": True, "changed": False, "msg": "worker1: the controller's Python has no tomlkit"}


def test_a_node_that_is_not_ready_is_not_asked(action, monkeypatch):
    def refuse(*_given, **_more):
        raise preflight.NotReady("worker1: no")

    monkeypatch.setattr(preflight.Preflight, "look", refuse)
    assert run(action)["msg"] == "worker1: no"
    assert action.asked == []


def test_the_environment_of_an_earlier_release_gets_this_releases_source(action):
    action.answer = lambda given: {"changed": False, "msg": "x"} if "this_release" in given else {"other_release": True}
    assert run(action, state="absent") == {"changed": False, "msg": "x"}
    absent = {**PRESENT, "state": "absent"}
    assert action.asked == [absent, {**absent, "this_release": "/tmp/sent.zip"}]
    # A ZIP archive with the part that needs grpc.
    assert action.sent == [("node-device-plugin.zip", b"PK")]


@pytest.mark.parametrize(("number", "most"), [(1, 1), (2, 2)])
def test_runtimes_are_restarted_one_after_the_other(action, tmp_path, monkeypatch, number, most):
    """Provisioning, complaint 8: all nodes restarted at once. Forks of a run, as Ansible has them."""
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    begun, together = tmp_path / "begun", tmp_path / "together"
    begun.mkdir()
    together.mkdir()

    def restart(arguments):
        if not arguments.get("may_restart"):
            return {"restarted": True}
        mine = begun / str(os.getpid())
        mine.touch()

        def look():
            (together / str(len(list(begun.iterdir())))).touch()
            time.sleep(0.01)

        # Until as many were in it as may be, and a while more for those that may not.
        while not (together / str(most)).exists():
            look()
        for _ in range(30):
            look()
        mine.unlink()
        return {"seconds": 0.1}

    action.answer = restart
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = int(run(action, max_parallel_restarts=number) != {"seconds": 0.1})
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert max(int(path.name) for path in together.iterdir()) == most


def test_who_waits_for_its_turn_keeps_the_lock_of_the_play(tmp_path, monkeypatch):
    class Renewed(Exception):
        pass

    def renew():
        raise Renewed

    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    with parallel_restarts.at_most(1, renew), pytest.raises(Renewed), parallel_restarts.at_most(1, renew):
        pass
