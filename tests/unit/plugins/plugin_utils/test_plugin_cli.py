"""What the plugin's command on a node answers, also that of an earlier release."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import plugin_cli

#: As argparse words it, without the option that this release has.
OLD = """#!/bin/sh
echo "usage: node-device-plugin [-h] COMMAND ..." >&2
echo "node-device-plugin: error: unrecognized arguments: --by-cdi --socket $4" >&2
exit 2
"""


@pytest.fixture
def old(tmp_path):
    """An action on a node with the environment of an earlier release, whose packages this test's Python has."""
    programs, sent = tmp_path / "bin", tmp_path / "sent"
    programs.mkdir()
    sent.mkdir()
    for name, text in (("node-device-plugin", OLD), ("python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def execute(command):
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False, cwd=sent)
        return {"rc": done.returncode, "stdout": done.stdout, "stderr": done.stderr}

    return types.SimpleNamespace(
        command=str(programs / "node-device-plugin"),
        _low_level_execute_command=execute,
        _sent=lambda name, content: (sent / name).write_bytes(content) and str(sent / name),
    )


def test_other_commands_name_the_release(old):
    with pytest.raises(
        plugin_cli.PluginCliError, match=r"is of another release than this collection: run upgrade\.yml"
    ):
        plugin_cli.holders(old, {"command": old.command})
