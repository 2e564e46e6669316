"""What a container says of itself: through JSON and back, held to a declaration where the host cannot be looked at."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.cli import main as command_line
from node_device_plugin.declaration import parse_resources
from node_device_plugin.verification import container_view
from node_device_plugin.verification.container_view import Expectation, expected_in_container


def expectation(**device: Any) -> Expectation:
    (resource,) = parse_resources([{"name": "example.com/dev", "devices": [{"id": "d", **device}]}])
    return expected_in_container(resource, list(resource.devices))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> container_view.View:
    monkeypatch.setenv("NAME", "ü")
    (tmp_path / "link").symlink_to("/dev/null")
    assert command_line.main(["seen", "/dev/null", "/dev/none", str(tmp_path / "link")]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    return container_view.read_own(json.loads(line))


def test_what_is_there(said: container_view.View) -> None:
    assert said.env["NAME"] == "ü"
    assert said.mounts["/proc"] == "proc"
    there = said.path("/dev/null")
    assert not isinstance(there, str)
    assert there.device == [1, 3]
    assert there.mode == os.stat("/dev/null").st_mode
    assert said.path("/dev/none") == "no such file or directory"
    assert said.path("/dev/zero") == "not inspected"


def test_a_link_is_no_device_node(said: container_view.View, tmp_path: Path) -> None:
    path = str(tmp_path / "link")
    assert container_view.mismatches(said, expectation(nodes=[{"path": path}])) == [
        "%s: expected a device node, found another kind of file" % path
    ]


@pytest.mark.parametrize(
    ("node", "says"),
    [
        # The node's own /dev/unplugged cannot be looked at from a container.
        ({"host_path": "/dev/unplugged"}, []),
        ({"type": "c", "major": 1, "minor": 3}, []),
        ({"type": "c", "major": 1, "minor": 5}, ["device node /dev/null: expected numbers c 1:5, found c 1:3"]),
        ({"type": "b", "major": 1, "minor": 3}, ["device node /dev/null: expected numbers b 1:3, found c 1:3"]),
        ({"major": 1, "minor": 3}, []),
        ({"major": 1, "minor": 5}, ["device node /dev/null: expected numbers c 1:5, found c 1:3"]),
        ({"gid": 8}, ["device node /dev/null: expected group 8, found 0"]),
    ],
)
def test_numbers_are_held_to_what_is_declared_of_them(
    said: container_view.View, node: dict[str, Any], says: Any
) -> None:
    assert container_view.mismatches(said, expectation(nodes=[{"path": "/dev/null", **node}])) == says
