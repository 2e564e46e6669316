"""scan.yml as it is, by Ansible, for this machine as several nodes."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible_collections.nodedevices.kubernetes.plugins.filter.scan_groups import FilterModule

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


def printed(*declarations, what="a device", about="a remark", remark="a remark"):
    """What scan.yml prints for a node that answers these resources and texts."""
    device = {"id": "a", "what": what, "nodes": [{"path": "/dev/a", "host_path": "/dev/a"}], "cdi_devices": []}
    resources = [{"class": what, "about": about, "declaration": each, "devices": [device]} for each in declarations]
    left_out = {"class": what, "what": what, "nodes": [what], "address": what, "reason": remark}
    scan = {"resources": resources, "unsuggested": [left_out], "problems": [remark]}
    return FilterModule().filters()["scan_groups"](["worker1"], {"worker1": {"node_devices_scan": {"scan": scan}}})


def named(number, **more):
    return {"name": f"acme.io/camera{number}", "discover": {"paths": [f"/dev/video{number}"]}, **more}


def validated(directory, text):
    """The exit code and the output of validate.yml for an inventory with the printed text."""
    variables = directory / "group_vars" / "node_devices"
    variables.mkdir(parents=True)
    (variables / "devices.yml").write_text(text, encoding="utf-8")
    (directory / "hosts.yml").write_text(yaml.safe_dump({"node_devices": {"hosts": {"worker1": None}}}))
    command = ["ansible-playbook", "-i", str(directory / "hosts.yml"), "playbooks/validate.yml"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_what_is_printed_to_paste_is_inert(tmp_path):
    canary = tmp_path / "evaluated"
    run = "{{ lookup('pipe', 'touch %s') }}" % canary
    block = "{%% if lookup('pipe', 'touch %s') %%}x{%% endif %%}" % canary
    inject = "x\nnode_devices_settings: {log_level: loud}\x85node_devices_kubeconfig: /x\u2028node_tools_root: /x"
    text = printed(
        named(0),
        named(1, discover={"paths": [f"/dev/{run}"]}),
        named(2, env={"CAMERA2_{index}": run}),
        named(3, env={"CAMERA3_{index}": block}),
        named(4, devices=[{"id": run, "nodes": [{"path": "/dev/a"}]}]),
        {"name": run, "discover": {"paths": ["/dev/a"]}},
        {run: "x"},
        named(5, env={"CAMERA5_{index}": inject}),
        named(6, env={"CAMERA6_{index}": "# *anchor &anchor !!python/object:os.system '\" \\ : [c] | >- '"}),
        named(7, env={"CAMERA7_{index}": "caf\u00e9 \U0001f4f7"}),
        named(8, min_devices=1),
        "a text",
        what=run + inject,
        about=inject,
        remark=inject + block,
    )
    code, said = validated(tmp_path, text)
    assert not canary.exists(), text
    assert code == 0, said + text
    pasted = yaml.safe_load(text)
    assert list(pasted) == ["node_devices_resources"]
    kept = {each["name"]: each for each in pasted["node_devices_resources"]}
    assert [name[-1] for name in kept] == ["0", "5", "6", "7"]
    assert kept["acme.io/camera5"]["env"] == {"CAMERA5_{index}": inject}
    assert kept["acme.io/camera6"]["env"] == {
        "CAMERA6_{index}": "# *anchor &anchor !!python/object:os.system '\" \\ : [c] | >- '"
    }
    assert kept["acme.io/camera7"]["env"] == {"CAMERA7_{index}": "caf\u00e9 \U0001f4f7"}
    assert text.count("is not suggested: it contains {{, {% or {#") == 2
    assert "is not suggested: it has min_devices, which a scan never suggests" in text


@pytest.mark.parametrize("number", [1, 100_000])
def test_what_is_printed_has_limits(number):
    text = printed(*[named(0)], what="x" * number, remark="y" * number)
    assert max(map(len, text.splitlines())) < 400
