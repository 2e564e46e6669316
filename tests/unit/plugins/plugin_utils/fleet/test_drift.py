"""What status.yml says of the modules' answers in check mode."""

from __future__ import annotations

import os
import shutil

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support import answers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import node_code
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import files as converge_files
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import registry
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import answer_shapes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import drift

ROOT = "/opt/node-devices"
DECLARED, CHANGED = "not as declared: run site.yml", "changed or removed on the node since the last run: run site.yml"


def found(ledger=(), **of_modules):
    """The problems and notes of answers, by the module's name."""
    converged = {name: [each and {"answer": each} for each in answered] for name, answered in of_modules.items()}
    return drift.found({"ledger": list(ledger), "converged": converged})


class Node:
    """A node on which the files of role device_plugin are written."""

    check_mode = False

    def __init__(self, directory):
        self.directory = directory
        self.files = {"a": "1", "b": "2"}

    def set_default_selinux_context(self, path, changed):
        pass

    def arguments(self):
        files = [{"path": str(self.directory / name), "content": text} for name, text in self.files.items()]
        files.append({"path": str(self.directory / "sockets"), "type": "directory"})
        return {"owner": "device_plugin", "files": files}

    def run(self):
        params = registry.ArgumentSpecValidator(converge_files.PARAMS).validate(self.arguments())
        node_module.Node(self).converged(converge_files.converge, params.validated_parameters)

    def found(self):
        answered = registry.answers(self, {"managed_files": [self.arguments()]})
        # As they reach the controller.
        converged = answers.shaped(answer_shapes.MODULES["node_preflight"]["converged"], answered)
        problems, notes = drift.found({"ledger": [], "converged": converged})
        assert notes == []
        return [problem.replace(f"{self.directory}/", "") for problem in problems]


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(node_module, "Ledger", lambda: Ledger(str(tmp_path / "ledger")))
    made = Node(tmp_path / "node")
    made.run()
    return made


def test_a_node_as_site_yml_leaves_it(node):
    assert node.found() == []


def edited(node):
    (node.directory / "a").write_text("theirs")


def gone(node):
    (node.directory / "a").unlink()


def opened(node):
    (node.directory / "a").chmod(0o666)


@pytest.mark.parametrize("change", [edited, gone, opened])
def test_what_someone_changed_on_the_node_is_named(node, change):
    change(node)
    assert node.found() == [f"a: {CHANGED}"]


def test_paths_that_someone_removed_are_one_line(node):
    gone(node)
    (node.directory / "sockets").rmdir()
    assert node.found() == [f"a, sockets: {CHANGED}"]


def declared_otherwise(node):
    node.files["a"] = "3"


def declared_no_longer(node):
    del node.files["a"]


def declared_otherwise_and_edited(node):
    edited(node)
    declared_otherwise(node)


@pytest.mark.parametrize("change", [declared_otherwise, declared_no_longer, declared_otherwise_and_edited])
def test_what_the_declaration_changed_is_named(node, change):
    change(node)
    assert node.found() == [f"a: {DECLARED}"]


def test_a_directory_is_not_named_beside_what_is_missing_in_it(node):
    node.files["new/of/c"] = "4"
    assert node.found() == [f"new/of/c: {DECLARED}"]
    node.run()
    shutil.rmtree(node.directory / "new")
    assert node.found() == [f"new/of/c: {CHANGED}"]


def test_both_are_said_of_different_files(node):
    declared_otherwise(node)
    node.files["c"] = "4"
    os.unlink(node.directory / "b")
    assert node.found() == [f"a, c: {DECLARED}", f"b: {CHANGED}"]


def test_devices_that_role_host_devices_has_not_made():
    # What was removed is a path of the answer, too.
    actions = ["loaded cam", "made /dev/made", "removed /dev/old", "udev rules applied"]
    removed = {"removed": ["/dev/old"], "actions": actions}
    assert found(host_devices=[{"actions": []}, removed])[0] == [
        f"/dev/old: {DECLARED}",
        "role host_devices has something to do (loaded cam): run site.yml",
        "/dev/made: role host_devices has not created this device node: run site.yml",
        "role host_devices has something to do (udev rules applied): run site.yml",
    ]


def test_what_a_module_would_refuse_is_said():
    refused = {"problems": ["/x belongs to another role"], "in_use": ["no kubelet answers"]}
    assert found(cdi_specs=[refused, None]) == (["/x belongs to another role", "no kubelet answers"], [])
    assert found(node_tools=[{"problems": ["it failed its health check"]}]) == (["it failed its health check"], [])
    # The running plugin and the runtime tell of these themselves.
    assert found(service=[refused], cdi_runtime=[refused]) == ([], [])


def tools(was="1.0.0-abc", **more):
    return [{"was": was, "environment": f"{ROOT}/versions/1.0.0-abc", "written": [], **more}]


def test_an_environment_as_site_yml_leaves_it_and_one_that_someone_edited():
    assert found(node_tools=tools()) == ([], [])
    link = f"{ROOT}/current"
    assert found(node_tools=tools(written=[link], edited=[link])) == ([f"{link}: {CHANGED}"], [])
    assert found(node_tools=tools(was=None, written=[link])) == ([f"{link}: {DECLARED}"], [])


def test_the_code_of_another_controller_is_no_difference():
    new, old = node_code.path_of("new"), node_code.path_of("old")
    assert found(node_tools=tools(written=[new], removed=[old])) == ([], [])
    assert found(node_tools=tools(written=[new], edited=[new])) == ([f"{new}: {CHANGED}"], [])


INSTALLED = "version 0.9.0-def is installed, but this collection installs 1.0.0-abc: run site.yml"


def test_another_version():
    whole = [f"{ROOT}/current", f"{ROOT}/versions/1.0.0-abc"]
    assert found(node_tools=tools("0.9.0-def", written=whole)) == ([INSTALLED], [])
    # After an upgrade by a newer collection.
    upgraded = tools("0.9.0-def", written=[f"{ROOT}/current"])
    assert found([f"{ROOT}/previous"], node_tools=upgraded) == ([INSTALLED], [])
    note = (
        "version 0.9.0-def is in use, and 1.0.0-abc is installed beside it, as after rollback.yml: site.yml upgrades "
        "this node again"
    )
    assert found(["/srv/previous"], node_tools=upgraded) == ([], [note])
