"""What an uninstall leaves on a node while a pod needs it, and what it says of that."""

from __future__ import annotations

import json
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import cdi_runtime, cdi_specs, node_tools
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge.node import Node
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.environments import Environments
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import framed

CONFIG = "/etc/containerd/config.toml"
SPEC = "/etc/cdi/node-device-plugin_example.com_camera.json"
BEFORE = {CONFIG: {"kind": "file", "owner": "cdi_runtime", "before": None, "sha256": "x"}}
OF_SPECS = {SPEC: {"kind": "file", "owner": "cdi_specs", "before": None}}
HELD = [{"device": "example.com/camera=a", "reason": "held by default/pod"}]
DYNAMIC = {"directory": "/run/cdi", "name": "node-device-plugin_example.com_usb.json"}
DYNAMIC["path"] = f"{DYNAMIC['directory']}/{DYNAMIC['name']}"
PRUNED = {
    "stdout": json.dumps({"removed": [], "kept": ["example.com/usb=u"], "holders": {"example.com/usb=u": "default/c"}})
}


@pytest.fixture
def run(monkeypatch):
    """Runs an action: run(action, arguments, modules' answers, check, commands' exit codes, what modules are given).

    Gives its result and the names of the modules that were executed.
    """
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_action(module, arguments, answers, check=False, commands=(), given=None):
        action = object.__new__(module.ActionModule)
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


def take_cdi_back(run, ledger_now, specs=None, check=False, cdi_files=()):
    # The facts of the play's start still have the spec, and there is no such runtime any more.
    node = {"runtime": {"name": "containerd", "socket": "/run/x.sock"}, "ledger": {**BEFORE, **OF_SPECS}}
    facts = {"ledger": ledger_now, "cdi_files": cdi_files}
    answers = {"node_preflight": facts, "managed_files": {"changed": True, "removed": [CONFIG]}}
    arguments = {"state": "absent", "command": "/bin/plugin", "node": node, "specs": specs}
    return run(cdi_runtime, arguments, answers, check)


def test_cdi_stays_on_while_a_spec_stays_and_the_pod_is_named(run):
    result, executed = take_cdi_back(run, {**BEFORE, **OF_SPECS}, {"kept": HELD, "stays": [SPEC]})
    assert executed == ["node_preflight"]
    assert result["changed"] is False
    assert result["warnings"] == ["node1: kept: CDI stays on, because example.com/camera=a is held by default/pod"]


def test_cdi_stays_on_for_a_spec_that_nobody_told_of(run):
    result, executed = take_cdi_back(run, {**BEFORE, **OF_SPECS})
    assert executed == ["node_preflight"]
    assert result["kept"] == [f"{SPEC} exists and a pod may hold its devices"]


def test_cdi_goes_when_the_specs_have_gone_since_the_node_was_looked_at(run):
    result, executed = take_cdi_back(run, BEFORE, {"kept": [], "stays": []})
    assert executed == ["node_preflight", "managed_files"]
    assert result["changed"] is True


@pytest.mark.parametrize(
    ("stays", "dynamic", "does"), [([], [], ["managed_files"]), ([SPEC], [], []), ([], ["example.com/usb=u"], [])]
)
def test_check_mode_goes_by_the_specs_that_would_stay(run, stays, dynamic, does):
    told = {"kept": [], "stays": stays, "dynamic": dynamic}
    _result, executed = take_cdi_back(run, {**BEFORE, **OF_SPECS}, told, check=True)
    assert executed == does


def test_cdi_stays_on_for_a_spec_that_the_plugin_wrote(run):
    foreign, ours = {**DYNAMIC, "name": "vendor.json"}, {**DYNAMIC, "path": SPEC, "directory": "/etc/cdi"}
    result, executed = take_cdi_back(run, BEFORE, cdi_files=[foreign, ours, DYNAMIC])
    assert executed == ["node_preflight"]
    assert result["kept"] == [f"{DYNAMIC['path']} exists and a pod may hold its devices"]


def test_cdi_is_not_touched_where_the_ledger_cannot_be_read(run):
    node = {"runtime": {"name": "containerd", "socket": "/run/x.sock"}, "ledger": BEFORE}
    answers = {"node_preflight": {"ledger": {}, "ledger_problem": "ledger.json is damaged"}}
    result, executed = run(cdi_runtime, {"state": "absent", "command": "/bin/plugin", "node": node}, answers)
    assert executed == ["node_preflight"]
    assert result["failed"] is True
    assert "ledger.json is damaged" in result["msg"]


def take_specs_away(run, check=False, **commands):
    spec = {"kind": "example.com/camera", "devices": [{"name": "a"}]}
    file = {"path": SPEC, "directory": "/etc/cdi", "name": SPEC.rpartition("/")[2], "content": json.dumps(spec)}
    node = {"runtime": {"version": "1.7.24"}, "cdi_files": [file], "ledger": OF_SPECS}
    arguments = {
        "state": "absent",
        "declaration": {},
        "command": "/bin/plugin",
        "node": node,
        "device_plugin_dir": "/plugins",
    }
    return run(cdi_specs, arguments, {"managed_files": {"changed": True, "removed": [SPEC]}}, check, commands)


def test_without_plugin_cli_and_checkpoint_a_spec_is_free(run):
    result, executed = take_specs_away(run, plugin=127, test=1)
    assert executed == ["managed_files"]
    assert (result["changed"], result["stays"]) == (True, [])


def test_without_plugin_cli_a_checkpoint_keeps_every_spec(run):
    result, executed = take_specs_away(run, plugin=127, test=0)
    assert executed == []
    assert result["failed"] is True
    assert result["msg"].startswith(
        "node1: /bin/plugin is not installed on the node: run role node_tools (site.yml) first; without this command, "
    )
    assert "/plugins/kubelet_internal_checkpoint exists" in result["msg"]


@pytest.mark.parametrize("ledger", [{}, OF_SPECS])
def test_what_the_plugin_wrote_for_a_pod_is_named(run, ledger):
    node = {"runtime": {"version": "1.7.24"}, "cdi_files": [], "ledger": ledger}
    arguments = {"state": "absent", "declaration": {}, "command": "/bin/plugin", "node": node, "pruned": PRUNED}
    result, _executed = run(cdi_specs, arguments, {"managed_files": {"changed": False}})
    assert result["dynamic"] == ["example.com/usb=u"]
    assert result["kept"] == [{"device": "example.com/usb=u", "reason": "held by default/c"}]
    assert result["warnings"] == ["node1: kept: example.com/usb=u, held by default/c"]


def test_an_earlier_release_does_not_say_who_holds_what_the_plugin_wrote(run):
    node = {"runtime": {"version": "1.7.24"}, "cdi_files": [], "ledger": {}}
    pruned = {"stdout": '{"removed": [], "kept": ["example.com/usb=u"]}'}
    result, _executed = run(cdi_specs, {"state": "absent", "declaration": {}, "node": node, "pruned": pruned}, {})
    assert result["warnings"] == ["node1: kept: example.com/usb=u, held by a pod"]


@pytest.mark.parametrize("stdout", ["skipped, since /bin/plugin does not exist", "", '{"removed": [], "kept": []}'])
def test_without_an_answer_nothing_is_known_of_what_the_plugin_wrote(run, stdout):
    node = {"runtime": {"version": "1.7.24"}, "cdi_files": [], "ledger": {}}
    arguments = {
        "state": "absent",
        "declaration": {},
        "command": "/bin/plugin",
        "node": node,
        "pruned": {"stdout": stdout},
    }
    result, _executed = run(cdi_specs, arguments, {})
    assert (result["dynamic"], result["kept"]) == ([], [])


@pytest.fixture
def environments(tmp_path):
    """Makes node_tools' side of a node, with what other roles have in its ledger."""

    def make(others, left=None):
        book = Ledger(str(tmp_path / "ledger"))
        root = tmp_path / "tools"
        root.mkdir()
        book.entries = {str(root): {"kind": "tree", "owner": f"node_tools {root}"}, **others}
        params = {"root": str(root), "left": left, "service": "x.service", "timeout": 0}
        return root, Environments(Node(types.SimpleNamespace(check_mode=False)), book, params)

    return make


def test_the_plugin_cli_stays_while_another_role_has_something(environments):
    root, tools = environments({**OF_SPECS, **BEFORE})
    report = tools.absent()
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
    assert tools.absent().removed == [str(root)]
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


def test_cdi_runtime_writes_nothing_without_the_plugin_cli(run):
    config = {
        "path": CONFIG,
        "real_path": CONFIG,
        "content": "version = 2\n",
        "sha256": "x",
        "effective": "version = 2\n",
    }
    runtime = {"name": "containerd", "socket": "/run/x.sock", "version": "1.7.24", "executable": "/bin/containerd"}
    node = {"runtime": {**runtime, "unit": "containerd.service", "pid": 1, "config": config}, "ledger": BEFORE}
    node["ledger"] = {CONFIG: {**BEFORE[CONFIG], "sha256": ledgers.sha256(config["content"].encode())}}
    answers = {"node_preflight": {"ledger": BEFORE, "cdi_files": []}}
    arguments = {"state": "absent", "command": "/bin/plugin", "node": node}
    result, executed = run(cdi_runtime, arguments, answers, False, {"test": 1})
    assert executed == ["node_preflight"]
    assert result["msg"] == "node1: /bin/plugin is not installed on the node: run role node_tools (site.yml) first"
