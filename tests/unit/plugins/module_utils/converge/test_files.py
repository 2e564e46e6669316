"""The text of the plugin's configuration file: another text would change every node."""

from __future__ import annotations

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import account_numbers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import files
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import LedgerConflict

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
