"""Commands on a node, run by a real shell, also behind a real terminal, with text of others around their answers."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.action import extended_resources
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import framed, plugin_cli

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]
#: What sudo prints on a host whose name does not resolve; a profile, which ends no line; an empty JSON document.
SUDO = "sudo: unable to resolve host worker1: Name or service not known"
NOISE = f"echo {shlex.quote(SUDO)} >&2; echo '{{}}'; printf 'Welcome to worker1. '; "
LATER = "echo; echo 'You have new mail.'; "


def in_terminal(script: str) -> tuple[int, str]:
    """Run a script with a terminal as its output and error output, as `ssh -tt` does."""
    ours, its = os.openpty()
    parts = []
    with subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.DEVNULL, stdout=its, stderr=its) as process:
        os.close(its)
        try:
            while part := os.read(ours, 1 << 16):
                parts.append(part)
        except OSError:  # the terminal's other end is closed
            pass
    os.close(ours)
    return process.returncode, b"".join(parts).decode()


def node(before: str = "", after: str = "", tty: bool = True, shell: str = "/bin/sh") -> types.SimpleNamespace:
    """An action whose node runs a command with other commands before and after it. shell: the words that run it."""

    def execute(command, in_data=None):
        script = f"{before}{shell} -c {shlex.quote(command)}; code=$?; {after}exit $code"
        if tty and in_data is None:
            code, text = in_terminal(script)
            return {"rc": code, "stdout": text, "stderr": "Shared connection to worker1 closed.\n"}
        done = subprocess.run(["/bin/sh", "-c", script], input=in_data, capture_output=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}

    connection = types.SimpleNamespace(is_pipelining_enabled=lambda _wrap: True)
    return types.SimpleNamespace(_low_level_execute_command=execute, _connection=connection)


@pytest.mark.parametrize("tty", [True, False])
@pytest.mark.parametrize("shell", ["/bin/sh", "bash", "bash -eux"])
@pytest.mark.parametrize(("before", "after"), [("", ""), (NOISE, ""), ("", LATER), (NOISE, LATER)])
def test_an_answer_is_found_in_any_text(before, after, shell, tty):
    said = framed.run(node(before, after, tty, shell), "printf 'one\\ntwo'; echo oops >&2; exit 3")
    assert said == (3, "one\ntwo", "oops")


@pytest.mark.parametrize("tty", [True, False])
@pytest.mark.parametrize("text", ["", "\n", "\n\nx\n\n", "code-0 0\nend-0\n", "x" * 300000])
def test_every_answer_is_exact(text, tty, tmp_path):
    (tmp_path / "answer").write_text(text)
    assert framed.run(node(NOISE, LATER, tty), f"cat {tmp_path}/answer") == (0, text, "")


def test_a_command_gets_its_input():
    assert framed.run(node(NOISE, LATER), "cat", b"given\n") == (0, "given\n", "")


@pytest.mark.parametrize(
    ("tty", "text"), [(True, "sudo: a password is required"), (False, "{}; sudo: a password is required")]
)
def test_the_reason_of_no_answer_is_told(tty, text):
    refused = "echo '{}'; echo 'sudo: a password is required' >&2; exit 1; "
    with pytest.raises(framed.NoAnswer) as error:
        framed.run(node(refused, tty=tty), "echo never")
    assert str(error.value) == f"{text} (exit code 1)"


@pytest.fixture
def command(tmp_path):
    """The plugin's command, which also logs to its error output."""
    path = tmp_path / "node-device-plugin"
    path.write_text('#!/bin/sh\necho log >&2; echo "{"; echo log >&2; echo "\\"arguments\\": \\"$*\\"}"\n')
    path.chmod(0o755)
    return str(path)


def test_the_plugin_s_command_answers_through_the_text_of_others(command, monkeypatch):
    noisy = node(NOISE, LATER)
    monkeypatch.setattr(plugin_cli, "checked", lambda _words, data: data)
    assert plugin_cli.answer(noisy, [command, "status", "-o", "json"]) == {"arguments": "status -o json"}
    plugin_cli.require(noisy, command)
    with pytest.raises(plugin_cli.PluginCliMissing):
        plugin_cli.require(noisy, command + ".old")
    with pytest.raises(plugin_cli.PluginCliMissing):
        plugin_cli.answer(noisy, [command + ".old", "status"])
    assert plugin_cli.answer(noisy, [command, "verify"], '{"a": 1}') == {"arguments": "verify"}


def test_a_node_that_runs_nothing_does_not_lack_the_command(command):
    """A refused password would say that the command is missing, and so that no pod can hold a device."""
    refused = node("echo 'sudo: a password is required' >&2; exit 127; ")
    for ask in (plugin_cli.require, lambda *given: plugin_cli.answer(given[0], [given[1], "status"])):
        with pytest.raises(plugin_cli.PluginCliError, match="a password is required") as error:
            ask(refused, command)
        assert type(error.value) is plugin_cli.PluginCliError


@pytest.mark.parametrize("text", [None, json.dumps({"Data": {"RegisteredDevices": {"example.com/camera": ["a"]}}})])
def test_the_kubelet_s_checkpoint_is_read_through_the_text_of_others(text, tmp_path):
    if text:
        (tmp_path / "kubelet_internal_checkpoint").write_text(text)
    action = object.__new__(extended_resources.ActionModule)
    action._low_level_execute_command = node(NOISE, LATER)._low_level_execute_command
    assert action._registered(str(tmp_path)) == ({"example.com/camera"} if text else set())


def test_every_command_on_a_node_is_framed():
    uses = [
        str(path.relative_to(CHECKOUT / "plugins"))
        for path in sorted((CHECKOUT / "plugins").rglob("*.py"))
        if "_low_level_execute_command(" in path.read_text(encoding="utf-8")
    ]
    assert uses == ["plugin_utils/framed.py"]
