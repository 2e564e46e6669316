"""The role host_devices: its variables as files, and what is wrong with them."""

from __future__ import annotations

import os
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import host_devices as action
from ansible_collections.nodedevices.kubernetes.plugins.modules import host_devices as module
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import host_devices

RULE = 'SUBSYSTEM=="tty", ATTRS{idVendor}=="0403", GROUP="dialout", MODE="0660"'
NODE = {"path": "/dev/crand0", "type": "c", "major": 1, "minor": 8, "mode": "0666", "group": "44"}


def test_files_of_what_is_asked_for_alone():
    modules = [{"name": "vfio-pci", "options": "ids=10de:1eb8"}, {"name": "cdc_acm"}]
    files = {f["path"]: f["content"] for f in host_devices.files(modules, [RULE], [NODE, {**NODE, "mode": None}])}
    assert files == {
        host_devices.MODULES: host_devices.HEAD + "vfio-pci\ncdc_acm\n",
        host_devices.OPTIONS: host_devices.HEAD + "options vfio-pci ids=10de:1eb8\n",
        host_devices.RULES: host_devices.HEAD + RULE + "\n",
        host_devices.NODES: host_devices.HEAD + "c /dev/crand0 0666 root 44 - 1:8\nc /dev/crand0 0600 root 44 - 1:8\n",
    }
    assert host_devices.files([], [], []) == []


def test_what_is_fine_is_no_problem():
    rules = [RULE, 'KERNEL!="x" , ENV{A}:="b", RUN+="/bin/true %k", SYMLINK+="a\\"b"']
    assert host_devices.problems([{"name": "a-b"}], rules, [NODE]) == []


@pytest.mark.parametrize(
    ("modules", "rules", "nodes", "says"),
    [
        ([{"name": "a b"}], [], [], "host_devices_modules[0].name: is no name of a kernel module: 'a b'"),
        ([{"name": "a-b"}, {"name": "a_b"}], [], [], "host_devices_modules[1].name: a_b stands twice"),
        ([{"name": "a", "options": "x\ny"}], [], [], "host_devices_modules[0].options: must be one line"),
        ([], ["SUBSYSTEM=tty"], [], "host_devices_udev_rules[0]: is no udev rule"),
        ([], [RULE + "\n" + RULE], [], "host_devices_udev_rules[0]: is no udev rule"),
        ([], [""], [], "host_devices_udev_rules[0]: is no udev rule"),
        ([], [], [{**NODE, "path": "/tmp/x"}], "host_devices_nodes[0].path: must be a path below /dev"),
        ([], [], [{**NODE, "path": "/dev/../x"}], "host_devices_nodes[0].path: must be a path below /dev"),
        ([], [], [{**NODE, "path": "/dev/%i"}], "host_devices_nodes[0].path: must be a path below /dev"),
        ([], [], [NODE, NODE], "host_devices_nodes[1].path: /dev/crand0 stands twice"),
        ([], [], [{**NODE, "major": 4096}], "host_devices_nodes[0].major: must be from 0 to 4095, not 4096"),
        ([], [], [{**NODE, "minor": -1}], "host_devices_nodes[0].minor: must be from 0 to 1048575, not -1"),
        ([], [], [{**NODE, "mode": "999"}], "host_devices_nodes[0].mode: must be three octal digits"),
        ([], [], [{**NODE, "owner": "a b"}], "host_devices_nodes[0].owner: must be a name or a number, not 'a b'"),
    ],
)
def test_each_mistake_is_named(modules, rules, nodes, says):
    found = host_devices.problems(modules, rules, nodes)
    assert any(line.startswith(says) for line in found), found


def test_the_module_reads_back_what_was_written():
    (file,) = host_devices.files([], [], [NODE])
    assert module.parsed(file["content"]) == {"/dev/crand0": ("c", os.makedev(1, 8))}


def test_which_node_is_there(tmp_path):
    null = os.makedev(1, 3)
    assert module.is_node("/dev/null", "c", null) is True
    assert module.is_node("/dev/null", "b", null) is False
    assert module.is_node("/dev/null", "c", os.makedev(1, 5)) is False
    assert module.is_node(str(tmp_path / "none"), "c", null) is None
    assert module.is_the_kernels("/dev/null", "c", null)
    assert not module.is_the_kernels("/dev/other", "c", null)
    assert not module.is_the_kernels("/dev/other", "c", os.makedev(4095, 77))


OURS = {"/etc/modules-load.d/node-devices.conf": {"kind": "file", "owner": "host_devices", "before": None}}
DIRECTORY = {"/etc/modules-load.d": {"kind": "directory", "owners": ["host_devices"]}}
OTHERS = {"/etc/cdi/a.json": {"kind": "file", "owner": "cdi_specs"}, "/etc/cdi": {"kind": "directory", "owners": ["b"]}}


@pytest.mark.parametrize(
    ("arguments", "executed"),
    [
        ({"node": {"ledger": {}}}, 0),
        ({"node": {"ledger": OTHERS}}, 0),
        ({"node": {"ledger": {**OTHERS, **OURS}}}, 2),
        ({"node": {"ledger": DIRECTORY}}, 2),
        ({"node": {"ledger": {}}, "nodes": [NODE]}, 2),
        ({"node": {"ledger": {}, "ledger_problem": "it is damaged"}}, 2),
        ({"node": {}}, 2),
        ({}, 2),
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
