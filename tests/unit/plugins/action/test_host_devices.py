"""The role host_devices: its variables as files, and what is wrong with them."""

from __future__ import annotations

import os
import stat
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import host_devices as action
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import device_nodes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import framed, host_devices, plugin_cli, preflight

RULE = 'SUBSYSTEM=="tty", ATTRS{idVendor}=="0403", GROUP="dialout", MODE="0660"'
NODE = {"path": "/dev/crand0", "type": "c", "major": 1, "minor": 8, "mode": "0666", "group": "44"}
NOTHING = {"modules": None, "udev_rules": [], "nodes": []}
HEAD = "# Written by Ansible (nodedevices.kubernetes.host_devices): changes here are overwritten.\n"


def test_files_of_what_is_asked_for_alone():
    modules = [{"name": "vfio-pci", "options": "ids=10de:1eb8"}, {"name": "cdc_acm"}]
    files = {
        f["path"]: f["content"].decode() for f in host_devices.files(modules, [RULE], [NODE, {**NODE, "mode": None}])
    }
    assert files == {
        host_devices.MODULES: HEAD + "vfio-pci\ncdc_acm\n",
        host_devices.OPTIONS: HEAD + "options vfio-pci ids=10de:1eb8\n",
        host_devices.RULES: HEAD + RULE + "\n",
        host_devices.NODES: HEAD + "c /dev/crand0 0666 root 44 - 1:8\nc /dev/crand0 0600 root 44 - 1:8\n",
    }
    assert host_devices.files([], [], []) == []


def test_what_is_fine_is_no_problem():
    rules = [RULE, 'KERNEL!="x" , ENV{A}:="b", RUN+="/bin/true %k", SYMLINK+="a\\"b"']
    assert host_devices.problems([{"name": "a-b"}], rules, [NODE]) == []


@pytest.mark.parametrize(
    ("modules", "rules", "nodes", "says"),
    [
        ([{"name": "a b"}], [], [], "host_devices_modules[0].name: must be the name of a kernel module, not 'a b'"),
        (
            [{"name": "a-b"}, {"name": "a_b"}],
            [],
            [],
            "host_devices_modules[1].name: a_b is listed twice: remove one entry",
        ),
        ([{"name": "a", "options": "x\ny"}], [], [], "host_devices_modules[0].options: must be one line"),
        ([], ["SUBSYSTEM=tty"], [], "host_devices_udev_rules[0]: must be a udev rule"),
        ([], [RULE + "\n" + RULE], [], "host_devices_udev_rules[0]: must be a udev rule"),
        ([], [""], [], "host_devices_udev_rules[0]: must be a udev rule"),
        ([], [], [{**NODE, "path": "/tmp/x"}], "host_devices_nodes[0].path: must be a path below /dev"),
        ([], [], [{**NODE, "path": "/dev/../x"}], "host_devices_nodes[0].path: must be a path below /dev"),
        ([], [], [{**NODE, "path": "/dev/%i"}], "host_devices_nodes[0].path: must be a path below /dev"),
        ([], [], [NODE, NODE], "host_devices_nodes[1].path: /dev/crand0 is listed twice: remove one entry"),
        ([], [], [{**NODE, "major": 4096}], "host_devices_nodes[0].major: must be from 0 to 4095, not 4096"),
        ([], [], [{**NODE, "minor": -1}], "host_devices_nodes[0].minor: must be from 0 to 1048575, not -1"),
        ([], [], [{**NODE, "mode": "999"}], "host_devices_nodes[0].mode: must be three octal digits"),
        ([], [], [{**NODE, "owner": "a b"}], "host_devices_nodes[0].owner: must be a name or a number, not 'a b'"),
    ],
)
def test_each_mistake_is_named(modules, rules, nodes, says):
    found = host_devices.problems(modules, rules, nodes)
    assert any(line.startswith(says) for line in found), found


@pytest.mark.parametrize(
    ("rule", "makes", "makes_not"),
    [
        ('KERNEL=="ttyUSB*", SYMLINK+="serial/%E{ID_SERIAL}-$attr{idVendor}"', "/dev/serial/A-1a86", "/dev/serial/A"),
        ('KERNEL=="x", SYMLINK+="a.b"', "/dev/a.b", "/dev/axb"),
        ('KERNEL=="x", SYMLINK-="a", OWNER="x", TAG+="y"', "/dev/a", "/dev/x"),
        ('ENV{ID_X}=="1", ENV{ID_Y}="2"', "/dev/any", "/etc/any"),
        ('KERNEL=="x", PROGRAM="/bin/x"', "/run/any", "/etc/any"),
        ('KERNEL=="x", ATTR{device/sriov_numvfs}="4"', "/dev/any", "/dev"),
    ],
)
def test_the_paths_that_a_rule_may_create(rule, makes, makes_not):
    may_make = [host_devices.may_make(path, [], [rule], []) for path in (makes, makes_not)]
    assert may_make == [True, False]


def test_which_node_is_there(tmp_path):
    null = device_nodes.Device("c", os.makedev(1, 3))
    assert device_nodes.is_node("/dev/null", null) is True
    assert device_nodes.is_node("/dev/null", null._replace(kind="b")) is False
    assert device_nodes.is_node("/dev/null", null._replace(number=os.makedev(1, 5))) is False
    assert device_nodes.is_node(str(tmp_path / "none"), null) is None
    assert device_nodes.is_the_kernels("/dev/null", null)
    assert not device_nodes.is_the_kernels("/dev/other", null)
    assert not device_nodes.is_the_kernels("/dev/other", null._replace(number=os.makedev(4095, 77)))
    assert device_nodes.in_sysfs("/dev/null") == ("mem", "null")
    assert device_nodes.in_sysfs(str(tmp_path)) is None
    os.mknod(tmp_path / "unknown", 0o600 | stat.S_IFCHR, os.makedev(4095, 77))
    assert device_nodes.in_sysfs(str(tmp_path / "unknown")) is None


MODULES_FILE = "/etc/modules-load.d/node-devices.conf"
OURS = {MODULES_FILE: {"kind": "file", "owner": "host_devices", "before": None, "sha256": "0"}}
RECORDED = {
    "/dev/lamp0": {"kind": "node", "owner": "host_devices nodes", "type": "c", "major": 1, "minor": 8, "before": None}
}
DIRECTORY = {"/etc/modules-load.d": {"kind": "directory", "owners": ["host_devices"]}}
OTHERS = {"/etc/cdi/a.json": {"kind": "file", "owner": "cdi_specs"}, "/etc/cdi": {"kind": "directory", "owners": ["b"]}}


@pytest.mark.parametrize(
    ("arguments", "executed"),
    [
        ({"node": {"ledger": {}}}, 0),
        ({"node": {"ledger": OTHERS}}, 0),
        ({"node": {"ledger": {**OTHERS, **OURS}}}, 1),
        ({"node": {"ledger": RECORDED}}, 1),
        ({"node": {"ledger": DIRECTORY}}, 1),
        ({"node": {"ledger": {}}, "nodes": [NODE]}, 1),
        ({"node": {"ledger": {}, "ledger_problem": "it is damaged"}}, 1),
        ({"node": {}}, 1),
    ],
)
def test_nothing_is_executed_where_nothing_is_wanted_and_nothing_is_there(monkeypatch, arguments, executed):
    done = []

    def execute(module_name, module_args, task_vars):
        done.append(module_name)
        return {"changed": False, "written": [], "removed": [], "kept": [], "diff": [], "actions": []}

    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    run = object.__new__(action.ActionModule)
    run._task = types.SimpleNamespace(args=arguments)
    run._execute_module = execute
    answer = run.run()
    assert (len(done), answer["changed"], answer["actions"], answer["diff"]) == (executed, False, [], [])


@pytest.mark.parametrize(("more", "executed"), [({}, 0), ({"mode": "0600"}, 1)])
def test_nothing_is_executed_where_the_preflight_found_nothing_to_do(monkeypatch, tmp_path, more, executed):
    """The preflight asks with the role's variables, and the role with the same ones or others."""
    done = []
    asked = preflight._foreseen_by_node({"host_devices": {**NOTHING, "nodes": [NODE]}})["host_devices"]
    known = {
        "read_in": "this play",
        "ledger": {},
        "foreseen": {"host_devices": {"arguments": asked, "answer": {"a": 1}}},
    }
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(preflight.constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    run = object.__new__(action.ActionModule)
    run._task = types.SimpleNamespace(
        args={"nodes": [{**NODE, **more}], "prune": False},
        check_mode=False,
        get_play=lambda: types.SimpleNamespace(_uuid="this play"),
    )
    run._templar = types.SimpleNamespace(template=lambda value: value)
    run._execute_module = lambda module_name, module_args, task_vars: done.append(module_name) or {"a": 2}
    monkeypatch.setattr(preflight.Preflight, "look", lambda self, arguments: preflight.Seen(known, [], False))
    answer = run.run(None, {"inventory_hostname": "node1", "node_devices_node": known})
    assert (len(done), answer["a"]) == (executed, 1 + executed)


@pytest.mark.parametrize(
    ("wanted", "awaited"),
    [
        ({"modules": [{"name": "lamp"}]}, ["/dev/video0", "/dev/fw"]),
        # What a rule or the role itself creates is there when its command ends.
        ({"udev_rules": [RULE]}, []),
        ({"nodes": [NODE]}, []),
    ],
)
def test_the_module_waits_for_declared_devices_that_a_kernel_module_may_create(monkeypatch, wanted, awaited):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    missing = {"missing_devices": ["/dev/video0", "/opt/image"], "missing_host_paths": ["/dev/fw"]}
    run = object.__new__(action.ActionModule)
    run._task = types.SimpleNamespace(args={"node": {"ledger": {}, **missing}, **wanted}, check_mode=False)
    given = []
    run._execute_module = lambda module_name, module_args, task_vars: given.append(module_args) or {"changed": True}
    assert run.run(None, {"inventory_hostname": "node1"})["changed"] is True
    assert given[0]["awaited"] == awaited


def test_variables_with_a_mistake_are_not_asked_of_the_node():
    """The role refuses them, with the reason."""
    mistaken = {**NODE, "path": "/tmp/x"}
    assert preflight._foreseen_by_node({"service": {}, "host_devices": {**NOTHING, "nodes": [mistaken]}}) == {
        "service": {}
    }
    assert preflight._foreseen_by_node({"host_devices": NOTHING}) == {}


@pytest.mark.parametrize(("gave", "executed"), [(True, 0), (False, 1)])
def test_without_the_command_nothing_goes_where_a_kubelet_gave_devices(monkeypatch, gave, executed):
    done, asked = [], []

    def command(_action, line, _given=None):
        asked.append(line)
        return framed.Said(127 if line.startswith("/bin/plugin") else 0 if gave else 1, "", "")

    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    run = object.__new__(action.ActionModule)
    run._task = types.SimpleNamespace(args={"node": {"ledger": RECORDED}, "command": "/bin/plugin"})
    monkeypatch.setattr(framed, "run", command)
    run._execute_module = lambda module_name, module_args, task_vars: done.append(module_args) or {"changed": True}
    result = run.run(None, {"inventory_hostname": "node1"})
    assert (len(done), result.get("failed", False)) == (executed, gave)
    assert asked[-1] == "test -e /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


HELD = {"resource": "example.com/lamp", "device": "l0", "namespace": "default", "pod": "c1", "container": "main"}


@pytest.mark.parametrize(
    ("arguments", "asks"),
    [
        ({"node": {"ledger": RECORDED}}, True),
        ({"node": {"ledger": OURS}}, True),
        # Before a node becomes another device.
        ({"node": {"ledger": OURS}, "prune": False}, True),
        ({"node": {"ledger": RECORDED}, "nodes": [{**NODE, "path": "/dev/lamp0"}]}, False),
        ({"node": {"ledger": RECORDED}, "nodes": [{**NODE, "path": "/dev/lamp0", "minor": 9}]}, True),
        ({"node": {"ledger": {}}, "nodes": [NODE]}, False),
    ],
)
def test_who_holds_what_is_asked_where_something_may_go(monkeypatch, arguments, asks):
    executed, asked = {}, []

    def holders(_action, given):
        asked.append(given["command"])
        shared = {**HELD, "resource": "example.com/others", "host_paths": ["/dev/other0"], "by_our_cdi": False}
        # A command of an earlier release says nothing of what several devices give.
        lamp = {**HELD, "host_paths": ["/dev/lamp0"], "all_host_paths": ["/dev/ctl", "/dev/lamp0"], "by_our_cdi": True}
        held = [lamp, shared, {**shared, "host_paths": []}]
        return {"held": held, "allocatable": {"example.com/others": ["l0"]}}

    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(plugin_cli, "holders", holders)
    run = object.__new__(action.ActionModule)
    run._task = types.SimpleNamespace(args={**arguments, "command": "/bin/plugin"})
    run._execute_module = lambda module_name, module_args, task_vars: executed.update(module_args) or {"changed": False}
    run.run()
    assert asked == (["/bin/plugin"] if asks else [])
    assert executed["held"] == (
        [
            {"who": "default/c1 as example.com/lamp", "paths": ["/dev/ctl", "/dev/lamp0"], "ours": True},
            {"who": "default/c1 as example.com/others", "paths": ["/dev/other0"], "ours": False},
        ]
        if asks
        else []
    )
