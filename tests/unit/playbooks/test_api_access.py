"""A kubeconfig that leads nowhere is refused in the first play, where only the Kubernetes API reaches a node."""

from __future__ import annotations

import pathlib
import subprocess

import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]


def test_every_bad_kubeconfig_is_named_before_any_node_is_touched(tmp_path):
    by_api = {"node_devices_api_only": True, "device_plugin_mode": "daemonset"}
    broken = tmp_path / "broken"
    broken.write_text("[]")
    hosts = {
        "reached": {},
        "a": {**by_api, "node_devices_kubeconfig": str(tmp_path / "missing")},
        "b": {**by_api, "node_devices_kubeconfig": str(broken)},
    }
    (tmp_path / "hosts.yml").write_text(
        yaml.safe_dump({"node_devices": {"hosts": hosts, "vars": {"ansible_host": "nowhere.invalid"}}})
    )
    command = ["ansible-playbook", "-i", str(tmp_path / "hosts.yml"), "playbooks/site.yml"]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert f"a: node_devices_kubeconfig: {tmp_path}/missing: No such file or directory" in ended.stdout
    assert f"b: node_devices_kubeconfig: {broken}: current-context is not set" in ended.stdout
    assert "PLAY [Give the nodes their devices" not in ended.stdout
