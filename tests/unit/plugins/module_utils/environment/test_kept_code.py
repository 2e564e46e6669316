"""Which code of modules a node keeps: that of each environment, and nothing after an uninstall."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import boot_unit, node_code
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as of_node
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node_tools
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment import targets
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import base_python
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger

A, B, C = "0.1.0-aaaaaaaaaaaa", "0.2.0-bbbbbbbbbbbb", "0.3.0-cccccccccccc"
OLD, NEW = b"\xffold code", b"\xffnew code"


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Node:
    """A node on which no service runs."""

    def __init__(self, directory, monkeypatch):
        self.directory, self.monkeypatch = directory, monkeypatch
        self.ledger = directory / "node-devices"
        self.check_mode = False
        self.warnings = []
        monkeypatch.setattr(of_node, "Ledger", lambda: Ledger(str(self.ledger)))
        monkeypatch.setattr(boot_unit, "UNITS", str(directory / "units"))
        monkeypatch.setattr(targets, "own", lambda table: "mine" if table else None)

    def lay_out(self, name, root):
        binaries = self.directory / root / "versions" / name / "bin"
        binaries.mkdir(parents=True)
        (binaries / "node-device-plugin").touch(mode=0o755)
        (binaries / "python").symlink_to(base_python())
        marker = {"name": name, "python": list(sys.version_info[:2])}
        (binaries.parent / "complete.json").write_text(json.dumps(marker))

    def run(self, state, name=None, code=None, root="tools", **more):
        """What the converge function answers. code: the bytes that the process has loaded."""
        if name and not (self.directory / root / "versions" / name).exists():
            self.lay_out(name, root)
        self.monkeypatch.setattr(node_code, "loaded", lambda: (digest(code), code) if code else None)
        params = dict.fromkeys(node_tools.PARAMS)
        params.update(root=str(self.directory / root), command="", keep=2, timeout=0, retry=False, state=state)
        params.update(more)
        if state == "present":
            params["targets"] = {"mine": {"environment": name}}
        else:
            params["name"] = name
        node = of_node.Node(self)
        answer = node_tools.converge(node, params)
        self.warnings += node.warnings
        self.has_unshown_work = node.has_unshown_work
        return answer

    def set_default_selinux_context(self, path, changed):
        pass

    def run_command(self, command, handle_exceptions=True):
        return 1, "", ""

    def kept(self):
        return {path.read_bytes() for path in (self.ledger / "code").glob("*")}

    def path(self, code):
        return str(self.ledger / "code" / f"{digest(code)}.zip")


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


def test_the_code_is_roots_alone_and_a_second_run_changes_nothing(node):
    answer = node.run("present", A, NEW)
    directory = os.path.dirname(node.path(NEW))
    assert {directory, node.path(NEW)} <= set(answer["written"])
    assert str(node.ledger) not in answer["written"]
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (directory, node.path(NEW))]
    assert modes == [0o700, 0o600]
    again = node.run("present", A, NEW)
    assert not again["changed"]
    os.chmod(directory, 0o500)
    (node.ledger / "code" / f"{digest(NEW)}.zip").write_bytes(b"damaged")
    assert set(node.run("present", A, NEW)["written"]) == {directory, node.path(NEW)}
    assert node.kept() == {NEW}
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700


def test_check_mode_is_exact(node):
    node.lay_out(A, "tools")
    node.check_mode = True
    planned = node.run("present", A, NEW)
    assert not node.ledger.exists()
    node.check_mode = False
    done = node.run("present", A, NEW)
    assert planned == done
    assert node.path(NEW) in done["written"]
    node.check_mode = True
    assert not node.run("present", A, NEW)["changed"]
    assert not node.has_unshown_work
    planned = node.run("absent")
    assert {node.path(NEW), os.path.dirname(node.path(NEW))} <= set(planned["removed"])
    assert node.kept() == {NEW}


def test_an_upgrade_keeps_the_code_of_the_previous_version_until_that_goes(node):
    node.run("present", A, OLD)
    answer = node.run("present", B, NEW)
    assert node.path(NEW) in answer["written"]
    assert node.kept() == {OLD, NEW}
    # A rollback loads no code, and version B stays.
    assert node.run("rolled_back")["environment"].endswith(A)
    assert node.kept() == {OLD, NEW}
    assert not node.run("present", A, OLD)["removed"]
    answer = node.run("present", C, NEW, keep=1)
    assert os.path.basename(answer["environment"]) == C
    answer = node.run("present", C, NEW, keep=1)
    # The previous version always stays.
    assert node.kept() == {OLD, NEW}
    node.run("present", B, NEW, keep=1)
    assert node.kept() == {NEW}


def test_other_code_of_the_same_version_replaces_it(node):
    """As from a controller with another release of a package."""
    node.run("present", A, OLD)
    answer = node.run("present", A, NEW)
    assert (answer["written"], answer["removed"]) == ([node.path(NEW)], [node.path(OLD)])
    assert node.kept() == {NEW}


def test_roots_share_code(node):
    node.run("present", A, OLD)
    node.run("present", A, OLD, root="other")
    node.run("present", B, NEW, root="other", keep=1)
    node.run("present", C, NEW, root="other", keep=1)
    assert node.kept() == {OLD, NEW}
    node.run("absent", root="other")
    assert node.kept() == {OLD}
    node.run("absent")
    assert not node.ledger.exists()


def test_an_uninstall_that_was_cut_off_removes_the_code_the_next_time(node):
    node.run("present", A, NEW)
    book = node.ledger / "ledger.json"
    data = json.loads(book.read_text())
    data["entries"] = {path: entry for path, entry in data["entries"].items() if path.startswith(f"{node.ledger}/")}
    book.write_text(json.dumps(data))
    answer = node.run("absent")
    assert node.path(NEW) in answer["removed"]
    assert not node.ledger.exists()


def test_an_uninstall_that_another_role_holds_back_keeps_the_code(node):
    node.run("present", A, NEW)
    assert node.run("absent", left=["cdi_specs"])["kept"]
    assert node.kept() == {NEW}


def test_what_an_earlier_release_installed_has_no_code(node):
    node.run("present", A)
    assert not (node.ledger / "code").exists()
    assert node.run("present", A, NEW)["changed"]
    assert node.kept() == {NEW}
