"""What an uninstall leaves on a node while a pod needs it, and what it says of that."""

from __future__ import annotations

import contextlib
import json
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import cdi_specs, node_tools
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge.node import Node
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.environments import Environments
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import framed, preflight

CONFIG = "/etc/containerd/config.toml"
SPEC = "/etc/cdi/node-device-plugin_example.com_camera.json"
BEFORE = {CONFIG: {"kind": "file", "owner": "cdi_runtime", "before": None, "sha256": "x"}}
OF_SPECS = {SPEC: {"kind": "file", "owner": "cdi_specs", "before": None}}
HELD = [{"device": "example.com/camera=a", "reason": "held by default/pod"}]
PRUNED = {
    "stdout": json.dumps({"removed": [], "kept": ["example.com/usb=u"], "holders": {"example.com/usb=u": "default/c"}})
}


@pytest.fixture
def run(monkeypatch):
    """Runs an action: run(action, arguments, modules' answers, check, commands' exit codes, what modules are given).

    The arguments have the preflight's facts as ``node``. Gives its result and the names of the executed modules.
    """
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_action(module, arguments, answers, check=False, commands=(), given=None):
        action = object.__new__(module.ActionModule)
        facts = arguments.get("node", {})
        arguments = {name: value for name, value in arguments.items() if name != "node"}
        monkeypatch.setattr(preflight.Preflight, "look", lambda self, asked: facts)
        action._task = types.SimpleNamespace(args=arguments, check_mode=check)
        executed = []

        def execute(module_name, module_args, task_vars):
            executed.append(module_name.rpartition(".")[2])
            if given is not None:
                given.update(module_args)
            return dict(answers[executed[-1]])

        def command(_action, line, _given=None):
            return framed.Said(dict(commands)[line.split()[0].rpartition("/")[2]], "", "")

        action._execute_module = execute
        monkeypatch.setattr(framed, "run", command)
        return action.run(None, {"inventory_hostname": "node1"}), executed

    return run_action


UNCHANGED = {"changed": False, "kept": [], "files": {}, "devices": [], "in_use": []}
SPECS_GONE = {"changed": True, "removed": [SPEC], "files": {}, "devices": [], "in_use": []}


def test_the_module_removes_the_specs_with_what_the_preflight_knows(run):
    node = {"runtime": {"name": "containerd", "version": "1.7.24"}, "cdi_directories": ["/a"], "ledger": OF_SPECS}
    arguments = {"state": "absent", "command": "/bin/plugin", "node": node, "device_plugin_dir": "/plugins"}
    given = {}
    result, executed = run(cdi_specs, {**arguments, "declaration": {}}, {"cdi_specs": SPECS_GONE}, False, {}, given)
    assert executed == ["cdi_specs"]
    assert (result["changed"], result["stays"]) == (True, [])
    assert len(given.pop("code")["sha256"]) == 64
    assert given == {
        "state": "absent",
        "command": "/bin/plugin",
        "device_plugin_dir": "/plugins",
        "facts": {
            "runtime": {"name": "containerd", "version": "1.7.24"},
            "cdi_directories": ["/a"],
            "kubelet_root": None,
            "served": [],
        },
    }


def test_why_a_spec_cannot_go_is_said_with_the_host(run):
    node = {"runtime": {}, "ledger": OF_SPECS}
    why = {"failed": True, "msg": "it is needed\nit is held"}
    answer = {"changed": False, "files": {SPEC: "x"}, "devices": [], **why}
    result, _executed = run(cdi_specs, {"state": "absent", "declaration": {}, "node": node}, {"cdi_specs": answer})
    assert (result["failed"], result["changed"]) == (True, False)
    assert result["msg"] == "node1: it is needed\nnode1: it is held"


def test_an_error_of_another_kind_stays_as_it_is(run):
    answer = {"failed": True, "msg": "ledger.json is damaged"}
    arguments = {"state": "absent", "declaration": {}, "node": {"ledger": OF_SPECS}}
    result, _executed = run(cdi_specs, arguments, {"cdi_specs": answer})
    assert (result["failed"], result["msg"]) == (True, "ledger.json is damaged")


def test_what_stays_in_the_role_s_and_the_plugin_s_specs_is_one_list(run):
    answer = {"changed": False, "kept": [], "files": {SPEC: "x"}, "devices": HELD, "in_use": []}
    arguments = {"state": "absent", "declaration": {}, "node": {"ledger": OF_SPECS}, "pruned": PRUNED}
    result, _executed = run(cdi_specs, arguments, {"cdi_specs": answer})
    assert result["stays"] == [SPEC]
    assert [kept["device"] for kept in result["kept"]] == ["example.com/usb=u", "example.com/camera=a"]
    assert result["warnings"] == [
        "node1: kept: example.com/usb=u, held by default/c",
        "node1: kept: example.com/camera=a, held by default/pod",
    ]


@pytest.mark.parametrize("ledger", [{}, OF_SPECS])
def test_what_the_plugin_wrote_for_a_pod_is_named(run, ledger):
    node = {"runtime": {"version": "1.7.24"}, "ledger": ledger}
    arguments = {"state": "absent", "declaration": {}, "command": "/bin/plugin", "node": node, "pruned": PRUNED}
    result, _executed = run(cdi_specs, arguments, {"cdi_specs": UNCHANGED})
    assert result["dynamic"] == ["example.com/usb=u"]
    assert result["kept"] == [{"device": "example.com/usb=u", "reason": "held by default/c"}]
    assert result["warnings"] == ["node1: kept: example.com/usb=u, held by default/c"]


def test_an_earlier_release_does_not_say_who_holds_what_the_plugin_wrote(run):
    node = {"runtime": {"version": "1.7.24"}, "ledger": {}}
    pruned = {"stdout": '{"removed": [], "kept": ["example.com/usb=u"]}'}
    result, _executed = run(
        cdi_specs, {"state": "absent", "declaration": {}, "node": node, "pruned": pruned}, {"cdi_specs": UNCHANGED}
    )
    assert result["warnings"] == ["node1: kept: example.com/usb=u, held by a pod"]


@pytest.mark.parametrize("stdout", ["skipped, since /bin/plugin does not exist", "", '{"removed": [], "kept": []}'])
def test_without_an_answer_nothing_is_known_of_what_the_plugin_wrote(run, stdout):
    node = {"runtime": {"version": "1.7.24"}, "ledger": {}}
    arguments = {
        "state": "absent",
        "declaration": {},
        "command": "/bin/plugin",
        "node": node,
        "pruned": {"stdout": stdout},
    }
    result, _executed = run(cdi_specs, arguments, {"cdi_specs": UNCHANGED})
    assert (result["dynamic"], result["kept"]) == ([], [])


@pytest.fixture
def environments(tmp_path):
    """Makes node_tools' side of a node, with what other roles have in its ledger."""

    def make(others, left=None):
        book = entered.enter_context(Ledger(str(tmp_path / "ledger")))
        root = tmp_path / "tools"
        root.mkdir()
        book.entries = {str(root): {"kind": "tree", "owner": f"node_tools {root}"}, **others}
        params = {"root": str(root), "left": left, "service": "x.service", "timeout": 0}
        return root, Environments(Node(types.SimpleNamespace(check_mode=False)), book, params)

    with contextlib.ExitStack() as entered:
        yield make


def test_the_plugin_cli_stays_while_another_role_has_something(environments):
    root, tools = environments({**OF_SPECS, **BEFORE})
    tools.absent()
    report = tools.report
    assert report.kept == [
        {"path": str(root), "reason": "still needed to remove what is left of cdi_runtime and cdi_specs"}
    ]
    tools.node.answer(report)
    assert tools.node.warnings == [f"kept: {root}, still needed to remove what is left of cdi_runtime and cdi_specs"]
    assert not report.changed
    assert root.is_dir()


@pytest.mark.parametrize(
    ("others", "left"), [({}, None), (OF_SPECS, []), ({"/opt/b": {"kind": "tree", "owner": "node_tools /opt/b"}}, None)]
)
def test_the_plugin_cli_goes_when_nobody_else_is_left(environments, others, left):
    root, tools = environments(others, left)
    tools.absent()
    assert tools.report.removed == [str(root)]
    assert not root.exists()


@pytest.mark.parametrize(
    ("stays", "kept", "left"),
    [([], [], []), ([SPEC], [], ["cdi_specs"]), ([SPEC], [{"path": "/dev/a"}], ["cdi_specs", "host_devices"])],
)
def test_check_mode_tells_the_plugin_cli_who_would_be_left(run, stays, kept, left):
    given = {}
    arguments = {"state": "absent", "specs": {"stays": stays}, "host_devices": {"kept": kept}}
    run(node_tools, arguments, {"node_tools": {"changed": False}}, True, {}, given)
    assert given["left"] == left


def test_check_mode_tells_the_plugin_cli_that_cdi_would_stay(run):
    given = {}
    arguments = {"state": "absent", "specs": {"stays": [], "cdi_kept": ["pod default/app holds vendor.com/gpu=0"]}}
    run(node_tools, arguments, {"node_tools": {"changed": False}}, True, {}, given)
    assert given["left"] == ["cdi_runtime"]


@pytest.mark.parametrize(("dynamic", "left"), [(["example.com/usb=u"], ["device_plugin"]), ([], None)])
def test_the_plugin_cli_stays_for_what_the_plugin_wrote(run, dynamic, left):
    given = {}
    arguments = {"state": "absent", "specs": {"stays": [], "dynamic": dynamic}}
    run(node_tools, arguments, {"node_tools": {"changed": False}}, False, {}, given)
    assert given.get("left") == left
