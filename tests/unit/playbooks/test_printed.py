"""Tables and declarations are readable with every callback: printed as they are, and in results for programs."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
TABLE = 'NODE  STATE\na     it\'s "ok": {{ no }} expression'
# As Ansible loads it from a collection: it prints the results of all tasks as one document at the end.
JSON = """
import json
from ansible.plugins.callback import CallbackBase

class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "json"

    def v2_runner_on_ok(self, result):
        self._display.display(json.dumps(result._result))
"""


@pytest.fixture
def printed(tmp_path):
    collection = tmp_path / "collections" / "ansible_collections" / "nodedevices" / "kubernetes"
    collection.parent.mkdir(parents=True)
    collection.symlink_to(CHECKOUT)
    (tmp_path / "callback").mkdir()
    (tmp_path / "callback" / "json.py").write_text(JSON)
    task = {"nodedevices.kubernetes.printed": {"text": "{{ lookup('file', 'table') }}"}}
    (tmp_path / "table").write_text(TABLE)
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))

    def run(**settings):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
            "ANSIBLE_CALLBACK_PLUGINS": str(tmp_path / "callback"),
            **settings,
        }
        command = [pathlib.Path(sys.executable).parent / "ansible-playbook", "-i", "worker1,", "play.yml"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"},
        {"ANSIBLE_STDOUT_CALLBACK": "oneline"},
        {"ANSIBLE_STDOUT_CALLBACK": "minimal"},
    ],
)
def test_every_line_is_a_line(printed, settings):
    assert f"\n{TABLE}\n" in f"\n{printed(**settings)}"


def test_a_program_finds_the_text_in_the_result(printed):
    (line,) = printed(ANSIBLE_STDOUT_CALLBACK="json").splitlines()
    assert json.loads(line)["msg"] == TABLE


def test_a_text_does_not_control_the_terminal(printed, tmp_path):
    (tmp_path / "table").write_text("a\x1b[2J\nb")
    assert "\na\\x1b[2J\nb\n" in printed()
