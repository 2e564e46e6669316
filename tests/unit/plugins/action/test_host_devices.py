"""The role host_devices: its variables as files, and what is wrong with them."""

from __future__ import annotations

import os
import stat
import types

import pytest
from ansible import constants
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import host_devices as action
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import device_nodes
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import host_devices as host_device_files
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import host_devices, preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.asked import completed

RULE = 'SUBSYSTEM=="tty", ATTRS{idVendor}=="0403", GROUP="dialout", MODE="0660"'
NODE = {"path": "/dev/crand0", "type": "c", "major": 1, "minor": 8, "mode": "0666", "group": "44"}
NOTHING = {"modules": None, "udev_rules": [], "nodes": []}
HEAD = "# Written by Ansible (nodedevices.kubernetes.host_devices): changes here are overwritten.\n"


def test_files_of_what_is_asked_for_alone():
    modules = [{"name": "vfio-pci", "options": "ids=10de:1eb8"}, {"name": "cdc_acm"}]
    lines = host_device_files.lines(modules, [RULE], [NODE, {**NODE, "mode": None}])
    files = {path: host_device_files.content(each).decode() for path, each in lines.items()}
    assert files == {
        host_device_files.MODULES: HEAD + "vfio-pci\ncdc_acm\n",
        host_device_files.OPTIONS: HEAD + "options vfio-pci ids=10de:1eb8\n",
        host_device_files.RULES: HEAD + RULE + "\n",
        host_device_files.NODES: HEAD + "c /dev/crand0 0666 root 44 - 1:8\nc /dev/crand0 0600 root 44 - 1:8\n",
    }
    assert set(map(tuple, host_device_files.lines([], [], []).values())) == {()}


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


SETTINGS = {"node_devices_settings": {"kubelet_device_plugin_dir": "/k/dp", "dynamic_cdi_dir": "/run/cdi"}}


@pytest.fixture
def run(monkeypatch):
    """Runs the action; returns its result and what the module was given. answer: of the module. node: the facts."""

    def run_action(answer=None, task_vars=None, check=False, node=None, **arguments):
        if node is not None:
            monkeypatch.setattr(preflight.Preflight, "look", lambda self, asked: node)
        done, play = [], types.SimpleNamespace(_uuid="this play")
        monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
        made = object.__new__(action.ActionModule)
        made._task = types.SimpleNamespace(args=arguments, check_mode=check, get_play=lambda: play)
        made._templar = types.SimpleNamespace(template=lambda value: value)
        made._execute_module = lambda module_name, module_args, task_vars: done.append(module_args) or answer
        return made.run(None, {"inventory_hostname": "node1", **(task_vars or {})}), done

    return run_action


@pytest.mark.parametrize(
    ("more", "answered", "executed"),
    [
        ({}, {}, 0),
        ({"mode": "0600"}, {}, 1),
        # The module itself asks again who holds a device, and fails.
        ({}, {"in_use": ["why"]}, 1),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_nothing_is_executed_where_the_preflight_found_nothing_to_do(
    run, monkeypatch, tmp_path, more, answered, executed, check
):
    """The preflight asks with the role's variables, and the role with the same ones or others."""
    task = {**NOTHING, "nodes": [NODE], "prune": False, "command": "/bin/plugin"}
    asked = {"host_devices": [completed("host_devices", task, None, SETTINGS["node_devices_settings"])]}
    answered = {"host_devices": [{"answer": {"changed": False, "a": 1, **answered}, "has_unshown_work": False}]}
    known = {"read_in": "this play", "ledger": {}, "converged": preflight._by_arguments(asked, answered)}
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    monkeypatch.setattr(preflight.Preflight, "look", lambda self, arguments: known)
    task["nodes"] = [{**NODE, **more}]
    variables = {"node_devices_node": known, **SETTINGS}
    answer, done = run({"a": 2}, variables, check, **task)
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
def test_the_module_waits_for_declared_devices_that_a_kernel_module_may_create(run, wanted, awaited):
    missing = {"missing_devices": ["/dev/video0", "/opt/image"], "missing_host_paths": ["/dev/fw"]}
    result, given = run({"changed": True}, node={"ledger": {}, **missing}, **wanted)
    assert result["changed"] is True
    assert given[0]["facts"]["awaited"] == awaited


@pytest.mark.parametrize("state", ["present", "pruned", "absent"])
def test_the_module_gets_what_it_needs_to_ask_who_holds_what(run, state):
    plugins = {"instance": {"mode": "service", "resources": ["example.com/lamp"]}}
    facts = {"kubelet": {"root_dir": "/k"}, "device_plugins": plugins}
    task = {"state": state, "nodes": [NODE], "command": "/bin/plugin"}
    result, done = run({"changed": True}, SETTINGS, node=facts, **task)
    assert result["changed"] is True
    given = done[0].pop("facts")
    assert (given["kubelet_root"], given["served"], given["awaited"]) == ("/k", ["example.com/lamp"], [])
    task = {name: value for name, value in task.items() if name != "nodes" or state != "absent"}
    assert done == [{**task, "device_plugin_dir": "/k/dp", "cdi_dir": "/run/cdi"}]


def test_why_the_node_cannot_tell_who_holds_what_is_said_with_the_host(run):
    assert run({"failed": True, "msg": "why", "in_use": ["why"]}, node={})[0]["msg"] == "node1: why"
    assert run({"failed": True, "msg": "why", "in_use": []}, node={})[0]["msg"] == "why"


def test_a_mistake_in_a_variable_is_said_with_the_host_and_does_not_stop_an_uninstall(run):
    mistaken = {**NODE, "path": "/tmp/x"}
    result, done = run(nodes=[mistaken], node={})
    assert (result["failed"], done) == (True, [])
    assert result["msg"].startswith("node1: host_devices_nodes[0].path: must be a path below /dev")
    assert run({"changed": True}, nodes=[mistaken], node={}, state="absent")[0] == {"changed": True}
