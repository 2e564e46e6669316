"""The module service: what it does to a unit, by the content of its files and by what the process says of itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import service


class Node:
    """A node with one unit. It plays the module that Ansible gives. unread: whether systemd has not read its file."""

    check_mode = False

    def __init__(self, directory) -> None:
        self.has_unshown_work = False
        self.directory = directory
        self.current = self.active = True
        self.starts = 1
        self.pid = 0
        self.unread = False
        self.triggered = None
        self.said: list = []
        self.unit = self.file("unit", "first")

    def file(self, name, content, hours=0.0):
        """A file whose modification time is so many hours ahead of the clock."""
        path = self.directory / name
        path.write_text(content)
        os.utime(path, (time.time() + 3600 * hours,) * 2)
        return str(path)

    def run_command(self, command, check_rc=False):
        if command[:3] == ["systemctl", "show", "x.service"]:
            said = {
                "ActiveState": "active" if self.active else "inactive",
                "UnitFileState": "enabled",
                "NeedDaemonReload": "yes" if self.unread else "no",
                "InvocationID": f"start-{self.starts}",
                "MainPID": str(self.pid),
                "Triggers": "" if self.triggered is None else "y.service",
            }
            return 0, "".join(f"{name}={value}\n" for name, value in said.items()), ""
        if command[:3] == ["systemctl", "show", "y.service"]:
            return 0, f"NeedDaemonReload={self.triggered}\n", ""
        self.said.append(" ".join(command))
        if command[1:2] == ["daemon-reload"]:
            self.unread, self.triggered = False, self.triggered and "no"
        if command[1:2] == ["restart"]:
            self.start()
        return (0 if self.current else 1) if command == ["check"] else 0, "", ""

    def start(self):
        """As systemd does it, also by itself."""
        self.starts, self.active = self.starts + 1, True

    def run(self, *, files=None, reload_check=(), pending=False, pending_reload=False):
        unit = service.Service(self, "x.service", [self.unit] if files is None else files)
        parameters = {
            "reload_check": list(reload_check),
            "pending": pending,
            "pending_reload": pending_reload,
        }
        service.run(unit, parameters)
        return unit.actions

    def foreseen(self):
        self.check_mode = True
        actions = self.run()
        self.check_mode = False
        return not self.has_unshown_work and not actions


@pytest.fixture
def node(tmp_path, monkeypatch):
    run = tmp_path / "run"
    run.mkdir()
    monkeypatch.setattr(service, "DIRECTORY", str(run))
    return Node(tmp_path)


@pytest.mark.parametrize("hours", [-50, -1, 0, 1, 50])
def test_a_file_that_changed_after_the_start_restarts_it_whatever_the_clock_says(node, hours) -> None:
    """The play before died after it had written the file, and before the restart."""
    assert node.run() == []
    node.file("unit", "second", hours)
    assert node.run() == ["restarted"]
    assert node.said == ["systemctl restart x.service"]
    assert node.run() == []


@pytest.mark.parametrize("hours", [-50, 0, 50])
def test_a_time_without_another_content_restarts_nothing(node, hours) -> None:
    node.run()
    node.file("unit", "first", hours)
    node.unread = True
    assert node.run() == ["read again"]
    assert node.said == ["systemctl daemon-reload"]


def test_a_start_by_others_restarts_nothing(node) -> None:
    """By systemd after a crash, by role node_tools, or by hand."""
    node.run()
    node.start()
    assert not node.foreseen()
    assert node.run() == []
    assert node.foreseen()


def test_a_start_by_others_with_a_file_that_systemd_has_not_read(node) -> None:
    node.run()
    node.file("unit", "second")
    node.start()
    assert node.run() == ["restarted"]


def test_a_file_that_was_changed_by_hand_and_back_restarts_what_started_in_between(node) -> None:
    node.run()
    node.start()
    node.unread = True
    assert node.run() == ["read again", "restarted"]


def test_a_start_that_is_not_recorded(node) -> None:
    """After a reboot, or by an earlier release: systemd tells whether it has read the file."""
    assert not node.foreseen()
    assert node.run() == []
    assert node.foreseen()
    for record in (node.directory / "run").iterdir():
        record.unlink()
    node.unread = True
    assert node.run() == ["read again", "restarted"]
    for record in (node.directory / "run").iterdir():
        record.write_text("no json")
    assert node.run(pending=True) == ["restarted"]


def test_a_process_of_another_version_is_restarted(node) -> None:
    """The process itself shows which version it runs."""
    versions = node.directory / "versions"
    for name in "ab":
        (versions / name / "bin").mkdir(parents=True)
        (versions / name / "bin" / "python").symlink_to(sys.executable)
    link = node.directory / "current"
    link.symlink_to("versions/a")
    with subprocess.Popen([versions / "a/bin/python", "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            node.pid = process.pid
            files = [node.unit, str(link)]
            assert node.run(files=files) == []
            link.unlink()
            link.symlink_to("versions/b")
            assert node.run(files=files) == ["restarted"]
            # The process of a unit that somebody changed tells no version.
            link.unlink()
            link.symlink_to("elsewhere/b")
            assert node.run(files=files) == []
        finally:
            process.kill()


def test_a_unit_that_a_timer_starts_is_read_again(node) -> None:
    node.triggered = "yes"
    assert node.run() == ["read again"]
    assert node.said == ["systemctl daemon-reload"]
    assert node.run() == []


def test_a_unit_that_is_not_active_is_started(node) -> None:
    node.active = False
    assert node.run() == ["started"]
    assert node.foreseen()


def test_it_is_reloaded_if_it_has_not_taken_its_configuration_in(node) -> None:
    node.run()
    node.said.clear()
    node.current = False
    assert node.run(reload_check=["check"]) == ["reloaded"]
    assert node.said == ["check", "systemctl reload x.service"]


def test_a_process_that_has_taken_the_configuration_in_is_left_alone(node) -> None:
    assert node.run(reload_check=["check"]) == []
    assert node.said == ["check"]


def test_a_stopped_unit_leaves_no_record(node) -> None:
    node.run()
    assert list((node.directory / "run").iterdir())
    for check in (True, False):
        node.check_mode = check
        unit = service.Service(node, "x.service")
        service.stop(unit)
        assert unit.actions == ["stopped", "disabled"]
        assert bool(list((node.directory / "run").iterdir())) is node.has_unshown_work is check
        node.has_unshown_work = False


@pytest.mark.parametrize(
    ("pending", "pending_reload", "actions"),
    [(False, False, []), (False, True, ["reloaded"]), (True, False, ["restarted"]), (True, True, ["restarted"])],
)
def test_check_mode_says_what_would_be_done(node, pending, pending_reload, actions) -> None:
    node.check_mode = True
    assert node.run(files=[], pending=pending, pending_reload=pending_reload) == actions
    assert node.said == []


@pytest.mark.parametrize("current", [True, False])
def test_a_configuration_that_the_play_changed_is_a_change_however_it_is_taken_in(node, current) -> None:
    """Or a run would say something else than its check, as fast as the process is."""
    node.current = current
    assert node.run(reload_check=["check"], pending_reload=True) == ["reloaded"]
    assert node.said == (["check"] if current else ["check", "systemctl reload x.service"])
