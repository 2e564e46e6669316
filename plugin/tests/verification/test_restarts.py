"""A plugin that systemd restarts after a play started it fails the play, with the reason."""

import json
from pathlib import Path

import pytest

from node_device_plugin.verification import restarts

from .fake_node import FakeNode

LAMP = "example.com/lamp"


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with programs in the place of systemd's."""
    monkeypatch.setenv("PATH", "%s:/usr/bin:/bin" % tmp_path)
    return tmp_path


def program(path: Path, text: str) -> None:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def answers(systemd: Path, invocation: str, entry: str) -> None:
    program(systemd / "systemctl", "echo %s\n" % invocation)
    asked = '[ "$2" = _SYSTEMD_INVOCATION_ID=first ] || exit 1'
    program(systemd / "journalctl", "%s\ncat <<'END'\n%s\nEND\n" % (asked, entry))


ENDED = "node-device-plugin.service ended after it was started, and systemd started it again: "


@pytest.mark.parametrize(
    ("invocation", "entry", "says"),
    [
        ("first", "{}", None),
        (
            "second",
            json.dumps({"MESSAGE": "the plugin stopped: [Errno 24] Too many open files"}),
            ENDED + "the plugin stopped: [Errno 24] Too many open files",
        ),
        ("second", "{}", ENDED + "journalctl --unit node-device-plugin.service has its log"),
        ("second", "no json", ENDED + "journalctl --unit node-device-plugin.service has its log"),
    ],
)
def test_a_restart_is_told_with_the_last_error_of_the_first_process(
    systemd: Path, invocation: str, entry: str, says: str
) -> None:
    answers(systemd, invocation, entry)
    assert restarts.problem("first") == says


def test_without_systemd_nothing_is_told(systemd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(systemd))
    assert restarts.problem("first") is None


async def test_a_restart_fails_a_verification(systemd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = FakeNode(monkeypatch, systemd, {LAMP: []})
    answers(systemd, "second", json.dumps({"MESSAGE": "out of memory"}))
    assert (await node.verify({"name": LAMP})).problems == []
    assert (await node.verify({"name": LAMP}, invocation="second")).problems == []
    assert (await node.verify({"name": LAMP}, invocation="first")).problems == [ENDED + "out of memory"]
