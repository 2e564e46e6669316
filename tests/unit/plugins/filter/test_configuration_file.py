"""The text of the service's configuration file, of which a change restarts nothing but changes every node."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import configuration_file
from ansible_collections.nodedevices.kubernetes.plugins.filter.configuration_file import FilterModule


def test_the_text_is_that_of_earlier_releases(tmp_path):
    declared = {"log_level": "debug", "resources": [{"name": "a.io/ä", "devices": []}]}
    text = FilterModule().filters()["configuration_file"](declared)
    assert text == (
        "# Written by Ansible (nodedevices.kubernetes.device_plugin) from the declaration: changes here are "
        "overwritten.\n"
        '{\n  "log_level": "debug",\n  "resources": [\n    {\n      "name": "a.io/ä",\n      "devices": []\n    }\n  '
        "]\n}\n"
    )
    (tmp_path / "config.yaml").write_text(text)
    assert configuration_file.document(str(tmp_path / "config.yaml")) == declared
