"""The text of the plugin's configuration file: another text would change every node."""

from __future__ import annotations

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import account_numbers, boot_unit
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import files
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, LedgerConflict

from node_device_plugin.declaration import configuration_file

CAMERA = {"name": "example.com/camera", "devices": [{"id": "a", "nodes": [{"path": "/dev/a", "gid": "video"}]}]}


def text_of(configuration):
    file = {"path": "/etc/x", "type": "file", "content": None, "configuration": configuration, "validate": None}
    return files.item_of(file, {})["content"].decode()


def test_the_text_is_that_of_earlier_releases(tmp_path):
    declared = {"log_level": "debug", "resources": [{"name": "a.io/x", "devices": [{"id": "a"}], "env": {"A": "ä"}}]}
    text = text_of(declared)
    assert text == (
        "# Written by Ansible (nodedevices.kubernetes.device_plugin) from the declaration: changes here are "
        "overwritten.\n"
        '{\n  "log_level": "debug",\n  "resources": [\n    {\n      "name": "a.io/x",\n      "devices": [\n        {\n'
        '          "id": "a"\n        }\n      ],\n      "env": {\n        "A": "ä"\n      }\n    }\n  ]\n}\n'
    )
    (tmp_path / "config.yaml").write_text(text)
    assert configuration_file.document(str(tmp_path / "config.yaml")) == declared


def test_the_text_has_the_nodes_numbers(monkeypatch):
    monkeypatch.setattr(account_numbers, "numbers", lambda groups=(): {"groups": dict.fromkeys(groups, 44)})
    numbered = {**CAMERA, "devices": [{"id": "a", "nodes": [{"path": "/dev/a", "gid": 44}]}]}
    assert text_of({"resources": [CAMERA]}) == text_of({"resources": [numbered]})


def test_a_group_that_the_node_lacks_is_refused(monkeypatch):
    monkeypatch.setattr(account_numbers, "numbers", lambda groups=(): {"groups": dict.fromkeys(groups)})
    with pytest.raises(
        LedgerConflict, match=r"^/etc/x: example.com/camera.devices \(a\).*the node has no group 'video'"
    ):
        text_of({"resources": [CAMERA]})


class Module:
    """What a node uses of a module; run: the commands."""

    def __init__(self):
        self.run = []

    def run_command(self, command, handle_exceptions):
        self.run.append(command)
        return 0, "", ""

    def set_default_selinux_context(self, path, changed):
        return changed


def test_systemd_forgets_a_unit_whose_file_is_removed(tmp_path, monkeypatch):
    units, name, other = tmp_path / "system", "x.service", tmp_path / "config"
    monkeypatch.setattr(boot_unit, "UNITS", str(units))
    monkeypatch.setattr(node_module, "Ledger", lambda: Ledger(str(tmp_path / "ledger")))
    module = Module()

    def converge(*paths, check_mode=False):
        wanted = [
            {"path": str(path), "type": "file", "content": "x", "configuration": None, "validate": None}
            for path in paths
        ]
        return files.converge(node_module.Node(module, check_mode), {"owner": "role", "files": wanted})

    converge(units / name, other)
    # A unit that is written is read again when module service starts it.
    assert module.run == []
    assert str(units / name) in converge(other, check_mode=True)["removed"]
    assert module.run == []
    converge(other)
    assert module.run == [["systemctl", "daemon-reload"]]
    converge()
    assert module.run == [["systemctl", "daemon-reload"]]
