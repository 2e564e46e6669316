"""The playbooks for a host that only the API reaches and whose node has not joined the cluster."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
LICENCES = {"name": "example.com/licence", "capacity": 3}
SERIAL = {"name": "example.com/serial", "discover": {"paths": ["/dev/ttyS*"]}}
NO_NODE = "to-come: the cluster has no node w9"

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)


@pytest.fixture
def play(cluster, tmp_path):
    """Runs a playbook for the host; gives its output."""
    host = {
        "node_devices_api_only": True,
        "node_devices_node_name": "w9",
        "node_devices_kubeconfig": cluster.kubeconfig(),
        "node_devices_resources": [LICENCES, SERIAL],
        "device_plugin_mode": "daemonset",
        "device_plugin_deployment": {"image": "example.com/plugin:1"},
        "node_devices_report_dir": str(tmp_path),
    }
    inventory = {"node_devices": {"hosts": {"to-come": host}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))

    def run(name):
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        command = [program, "-i", tmp_path / "hosts.yml", CHECKOUT / "playbooks" / name]
        environment = {**os.environ, "COLUMNS": "500"}
        done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"^to-come +: ok=\d+ +changed=0 ", done.stdout, re.MULTILINE), done.stdout
        return " ".join((done.stdout + done.stderr).split())

    return run


@pytest.mark.parametrize("name", ["site.yml", "verify.yml"])
def test_it_is_skipped_and_reported(play, name):
    said = play(name)
    assert NO_NODE in said
    assert "to-come - - - - not joined" in said


def test_its_status_is_no_failure(play, tmp_path):
    play("status.yml")
    (node,) = json.loads((tmp_path / "status.json").read_text())["nodes"]
    assert node["state"] == "pending"
    assert node["problems"][0].startswith("the cluster has no node w9: ")


def test_nothing_is_removed_from_it(play):
    assert NO_NODE in play("uninstall.yml")
