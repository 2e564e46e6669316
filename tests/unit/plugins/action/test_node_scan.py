"""How a node is scanned by the plugin's code, which it may not have yet."""

from __future__ import annotations

import sys
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import node_scan
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import node_code as loading
from ansible_collections.nodedevices.kubernetes.plugins.modules import node_scan as module
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import node_code, wheels

from node_device_plugin.diagnostics import scan

MODULE = "nodedevices.kubernetes.node_scan"
TEMPORARY = "/tmp/of-ansible"


class Run:
    """The action on a node whose module gives these answers, one after the other."""

    def __init__(self):
        self.executed, self.sent, self.made = [], [], 0

    def __call__(self, *answers, tmpdir=TEMPORARY):
        action = object.__new__(node_scan.ActionModule)
        action._task = types.SimpleNamespace(args={"domain": "acme.io"})
        shell = types.SimpleNamespace(tmpdir=tmpdir, join_path=lambda *parts: "/".join(parts))
        action._connection = types.SimpleNamespace(_shell=shell)

        def make():
            self.made += 1
            shell.tmpdir = TEMPORARY

        def transfer(path, content):
            self.sent.append((path, content))
            return path

        action._make_tmp_path, action._transfer_data = make, transfer
        action._fixup_perms2 = self.sent.append
        left = list(answers)

        def execute(module_name, module_args, task_vars):
            assert (module_name, task_vars) == (MODULE, {})
            self.executed.append({**module_args, "code": dict(module_args["code"])})
            return left.pop(0)

        action._execute_module = execute
        result = action.run(None, {})
        assert left == []
        return result


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(node_code, "archive", lambda: b"the code")
    monkeypatch.setattr(node_code, "sha256", lambda: "ab")
    return Run()


def test_a_node_with_the_code_gets_nothing(run):
    assert run({"changed": False, "scan": {}}) == {"changed": False, "scan": {}}
    assert run.executed == [{"domain": "acme.io", "code": {"sha256": "ab"}}]
    assert run.sent == []


@pytest.mark.parametrize(("tmpdir", "made"), [(None, 1), (TEMPORARY, 0)])
def test_a_node_without_the_code_gets_a_temporary_copy(run, tmpdir, made):
    path = f"{TEMPORARY}/code.zip"
    missing = {"changed": False, "code_missing": True}
    assert run(missing, {"changed": False, "scan": {}}, tmpdir=tmpdir) == {"changed": False, "scan": {}}
    assert run.executed == [
        {"domain": "acme.io", "code": {"sha256": "ab"}},
        {"domain": "acme.io", "code": {"sha256": "ab", "path": path}},
    ]
    assert run.sent == [(path, b"the code"), (TEMPORARY, path)]
    # Ansible removes one directory.
    assert run.made == made


def test_a_controller_that_cannot_pack_the_code(run, monkeypatch):
    def fail():
        raise wheels.WheelsError("has no tomli")

    monkeypatch.setattr(node_code, "sha256", fail)
    assert run() == {"failed": True, "msg": "has no tomli"}


class Module:
    """The module that Ansible gives. Its exits raise, as Ansible's do."""

    def __init__(self, domain):
        self.params = {"domain": domain, "code": {"sha256": "ab"}}

    def exit_json(self, **result):
        raise SystemExit(result)

    fail_json = exit_json


@pytest.fixture
def ended(monkeypatch):
    """Runs the module. Returns its result."""
    monkeypatch.setattr(loading, "load", lambda code: True)

    def end(domain="acme.io"):
        monkeypatch.setattr(module, "AnsibleModule", lambda **_specification: Module(domain))
        with pytest.raises(SystemExit) as done:
            module.main()
        return done.value.code

    return end


def test_the_module_answers_as_the_command(ended):
    result = ended()
    assert (set(result), result["changed"]) == ({"changed", "scan"}, False)
    assert set(result["scan"]) == {"resources", "unsuggested", "problems"}


def test_a_wrong_domain(ended):
    assert ended("-")["msg"].startswith("node-device-plugin: --domain: ")


def test_a_file_that_cannot_be_read(ended, monkeypatch):
    async def fail(_domain):
        raise PermissionError(13, "Permission denied", "/etc/cdi")

    monkeypatch.setattr(scan, "scan", fail)
    assert ended() == {"msg": "/etc/cdi: Permission denied"}


def test_the_code_is_loaded_before_it_is_imported(monkeypatch):
    def missing(code):
        assert code == {"sha256": "ab"}
        return False

    monkeypatch.setattr(loading, "load", missing)
    monkeypatch.setitem(sys.modules, "node_device_plugin.diagnostics", None)
    monkeypatch.setattr(module, "AnsibleModule", lambda **_specification: Module("acme.io"))
    with pytest.raises(SystemExit) as done:
        module.main()
    assert done.value.code == {"changed": False, "code_missing": True}
