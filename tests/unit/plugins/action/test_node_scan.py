"""What is sent to a node that is scanned: a program that needs nothing but a Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import node_scan
from ansible_collections.nodedevices.kubernetes.plugins.modules import node_scan as module
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import scan_archive

ON_NODE = "/tmp/of-ansible/node-device-plugin.zip"


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """Runs the action. Gives the archive that it sent, what the module was given, and the answer."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    action = object.__new__(node_scan.ActionModule)
    action._task = types.SimpleNamespace(args={"domain": "acme.io"})
    shell = types.SimpleNamespace(tmpdir="/tmp/of-ansible", join_path=lambda *parts: "/".join(parts))
    action._connection = types.SimpleNamespace(_shell=shell)
    action._make_tmp_path = lambda: None
    archive = tmp_path / "sent.zip"
    action._transfer_file = lambda local, remote: shutil.copy(local, archive) if remote == ON_NODE else None
    action._fixup_perms2 = lambda paths: None
    executed = []

    def execute(module_name, module_args, task_vars):
        executed.append((module_name, module_args))
        return {"changed": False, "scan": {}}

    action._execute_module = execute
    answer = action.run(None, {})
    return archive, executed, answer


def python(*arguments):
    """What a Python without any installed package prints."""
    return subprocess.run([sys.executable, "-I", "-S", *arguments], capture_output=True, text=True, check=False)


def test_the_archive_runs_where_nothing_is_installed(sent):
    archive, executed, answer = sent
    assert executed == [("nodedevices.kubernetes.node_scan", {"domain": "acme.io", "archive": ON_NODE})]
    assert answer == {"changed": False, "scan": {}}
    done = python(archive, "scan", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(json.loads(done.stdout)) == {"resources", "unsuggested", "problems"}
    # Specs of nvidia-ctk are YAML.
    code = "import sys; sys.path.insert(0, sys.argv[1]); from node_device_plugin.support import documents as d"
    assert python("-c", code + "; print(d.read_yaml(b'a: [1]'))", archive).stdout == "{'a': [1]}\n"


def test_the_archive_of_a_reproducible_installation(tmp_path, monkeypatch):
    source = tmp_path / "a.py"
    source.write_text("")
    os.utime(source, (0, 0))
    monkeypatch.setattr(scan_archive, "_sources", lambda _without: [("a.py", source)])
    scan_archive.write(tmp_path / "sent.zip")


class Module:
    """The module that Ansible gives."""

    def __init__(self, code=0, answer="{}", error=""):
        self.params = {"domain": "acme.io", "archive": ON_NODE}
        self.said, self.done = (code, answer, error), None

    def run_command(self, command):
        assert command == [sys.executable, "-I", ON_NODE, "scan", "-o", "json", "--domain", "acme.io"]
        return self.said

    def exit_json(self, **result):
        self.done = result

    fail_json = exit_json


@pytest.mark.parametrize(
    ("said", "result"),
    [
        # A class of devices could not be read.
        ((1, '{"problems": ["x"]}', ""), {"changed": False, "scan": {"problems": ["x"]}}),
        ((1, "", "Traceback\nnode-device-plugin: --domain: wrong"), {"msg": "node-device-plugin: --domain: wrong"}),
        ((-9, "", ""), {"msg": "exit code -9"}),
    ],
)
def test_what_the_command_answers(monkeypatch, said, result):
    given = Module(*said)
    monkeypatch.setattr(module, "AnsibleModule", lambda **_specification: given)
    module.main()
    assert given.done == result
