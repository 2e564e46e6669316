"""The module service: what it does to a unit, by ages and by what the process says of itself."""

from __future__ import annotations

import os
import time

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.modules import service


class Node:
    """A node with one unit, which started ten seconds ago. It plays the module that Ansible gives."""

    check_mode = False
    started_by = "ExecMainStartTimestampMonotonic"

    def __init__(self, directory) -> None:
        self.params = {"name": "x.service"}
        self.directory = directory
        self.current = True
        self.said: list = []

    def file(self, name, age):
        path = self.directory / name
        path.write_text("")
        os.utime(path, (time.time() - age,) * 2)
        return str(path)

    def run_command(self, command, check_rc=False):
        if command[:2] == ["systemctl", "show"]:
            started = int((time.clock_gettime(time.CLOCK_MONOTONIC) - 10) * 1e6)
            return (
                0,
                "ActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\n%s=%d\n" % (self.started_by, started),
                "",
            )
        self.said.append(" ".join(command))
        return (0 if self.current else 1) if command == ["check"] else 0, "", ""

    def run(self, *, files=(), reload_files=(), pending=False, pending_reload=False):
        unit = service.Service(self)
        service.run(
            unit,
            {
                "files": files,
                "reload_files": reload_files,
                "reload_check": ["check"],
                "pending": pending,
                "pending_reload": pending_reload,
            },
        )
        return unit.actions


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_nothing_is_done_to_a_process_that_is_younger_than_everything(node) -> None:
    old = node.file("old", 20)
    assert node.run(files=[old], reload_files=[old]) == []
    assert node.said == []


def test_a_timer_is_as_old_as_its_activation(node) -> None:
    node.started_by = "ActiveEnterTimestampMonotonic"
    assert node.run(files=[node.file("old", 20)]) == []
    assert node.run(files=[node.file("young", 5)]) == ["restarted"]


def test_it_is_restarted_if_a_file_is_younger_whatever_else_there_is(node) -> None:
    node.current = False
    assert node.run(files=[node.file("unit", 5)], reload_files=[node.file("config", 5)]) == ["restarted"]
    assert node.said == ["systemctl restart x.service"]


def test_it_is_reloaded_if_only_its_configuration_is_younger(node) -> None:
    node.current = False
    assert node.run(files=[node.file("unit", 20)], reload_files=[node.file("config", 5)]) == ["reloaded"]
    assert node.said == ["check", "systemctl reload x.service"]


def test_a_process_that_has_taken_the_configuration_in_is_left_alone(node) -> None:
    assert node.run(files=[node.file("unit", 20)], reload_files=[node.file("config", 5)]) == []
    assert node.said == ["check"]


@pytest.mark.parametrize(
    ("pending", "pending_reload", "actions"),
    [(False, False, []), (False, True, ["reloaded"]), (True, False, ["restarted"]), (True, True, ["restarted"])],
)
def test_check_mode_says_what_would_be_done(node, pending, pending_reload, actions) -> None:
    node.check_mode = True
    assert node.run(files=[], reload_files=[], pending=pending, pending_reload=pending_reload) == actions
    assert node.said == []


@pytest.mark.parametrize("current", [True, False])
def test_a_configuration_that_the_play_changed_is_a_change_however_it_is_taken_in(node, current) -> None:
    """Or a run would say something else than its check, as fast as the process is."""
    node.current = current
    assert node.run(reload_files=[node.file("config", 5)], pending_reload=True) == ["reloaded"]
    assert node.said == (["check"] if current else ["check", "systemctl reload x.service"])
