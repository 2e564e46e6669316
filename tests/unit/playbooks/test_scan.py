"""scan.yml as it is, by Ansible, for this machine as several nodes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]


def test_a_fleet_is_scanned_and_nothing_stays_on_its_nodes(tmp_path):
    collection = tmp_path / "collections" / "ansible_collections" / "nodedevices" / "kubernetes"
    collection.parent.mkdir(parents=True)
    collection.symlink_to(CHECKOUT)
    on_node = tmp_path / "on-node"
    here = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "ansible_remote_tmp": str(on_node),
    }
    hosts = {
        "worker1": here,
        "worker2": here,
        "far": {"ansible_host": "127.0.0.1", "ansible_port": 9},
        "api": {"node_devices_api_only": True},
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"node_devices": {"hosts": hosts}}))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    command = [program, "-i", "hosts.yml", CHECKOUT / "playbooks" / "scan.yml", "--check"]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
        "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
    }
    arguments = [*command, "-e", "node_devices_scan_domain=acme.io"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "# worker1, worker2\n" in done.stdout, said
    assert "# far: not scanned: Failed to connect" in done.stdout, said
    assert "# api: not scanned: Ansible does not connect to this host" in done.stdout, said
    assert "name: acme.io/" in done.stdout or "node_devices_resources: []" in done.stdout, said
    assert list(on_node.iterdir()) == []
