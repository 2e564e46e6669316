"""A profile beside named hosts, by Ansible itself: what is refused, and that nobody connects to it."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
DEVICE = {"name": "example.com/dev", "devices": ["/dev/null"]}


@pytest.fixture
def play(tmp_path):
    """Runs a playbook for hosts with these variables: exit code, what it says as one line, the hosts of ssh's calls."""

    def run(playbook, hosts, *arguments):
        ssh, calls = tmp_path / "ssh", tmp_path / "calls"
        ssh.write_text(f'#!/bin/sh\necho "$*" >>{calls}\nexit 255\n')
        ssh.chmod(0o755)
        of_all = {
            "ansible_ssh_executable": str(ssh),
            "ansible_host": "{{ inventory_hostname }}.invalid",
            "node_devices_kubeconfig": str(tmp_path / "no-kubeconfig"),
        }
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"node_devices": {"hosts": hosts, "vars": of_all}}))
        command = ["ansible-playbook", "-i", str(tmp_path / "hosts.yml"), f"playbooks/{playbook}.yml", *arguments]
        ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=120)
        reached = calls.read_text() if calls.exists() else ""
        called = {host for host in hosts if f"{host}.invalid" in reached}
        return ended.returncode, " ".join((ended.stdout + ended.stderr).split()), called

    return run


def profile(name, label="a", **more):
    deployment = {"name": name, "node_selector": {"example.com/pool": label}}
    return {"node_devices_profile": True, "device_plugin_deployment": deployment, **more}


WRONG = {
    "service": profile("a", device_plugin_mode="service"),
    "named": profile("b", "b", node_devices_node_name="worker1"),
    "named-by-a-fact": profile("c", "c", node_devices_node_name="{{ ansible_facts.nodename }}"),
    "facts": profile("d", "d", node_devices_gather_facts=True, node_devices_resources=["{{ ansible_facts.devices }}"]),
    "made": profile("e", "e", host_devices_nodes=[{"path": "/dev/x", "type": "c", "major": 1, "minor": 3}]),
    "modules": profile("f", "f", host_devices_modules=[{"name": "x"}]),
    "rules": profile("g", "g", host_devices_udev_rules=['KERNEL=="x", MODE="0660"']),
    "static": profile("h", "h", node_devices_resources=[{"name": "example.com/seat", "capacity": 2}]),
    "nameless": profile("", "i"),
    "none": profile("k", "k", verification_sample=0),
    "negative": profile("l", "l", verification_sample="-1"),
    "many": profile("m", "m", verification_sample="many"),
    "no-cluster": profile("n", "n", node_devices_kubeconfig=""),
    "templates": profile("o", "o", cdi_specs_templates=[{"src": "a.j2"}]),
    "unsure": {"node_devices_profile": "pool"},
    "default": {"node_devices_node_name": "_default", "node_devices_api_only": True, "device_plugin_mode": "daemonset"},
}
WRONG["nameless"]["device_plugin_deployment"].pop("name")
SAID = {
    "service": "device_plugin_mode: is service, but a profile's plugin runs as a DaemonSet: set it to daemonset",
    "named": "node_devices_node_name: names one node, but a profile stands for many: set it to ''",
    "named-by-a-fact": "node_devices_node_name: names one node, but a profile stands for many: set it to ''",
    "facts": "node_devices_gather_facts: reads one node, but a profile stands for many: set it to false",
    "made": "host_devices_nodes: is written on a node, but nobody connects to a profile's nodes: set it to []",
    "modules": "host_devices_modules: is written on a node, but nobody connects",
    "rules": "host_devices_udev_rules: is written on a node, but nobody connects",
    "static": "the static capacity of example.com/seat is a part of one node's object",
    "nameless": "device_plugin_deployment.name: not set, but each profile with a node_selector has a DaemonSet of its",
    "none": "verification_sample: must be a whole number, 1 or more, not 0",
    "negative": "verification_sample: must be a whole number, 1 or more, not the text '-1'",
    "many": "verification_sample: must be a whole number, not the text 'many'",
    "no-cluster": "node_devices_kubeconfig: not set, but a DaemonSet needs the Kubernetes API",
    "templates": "cdi_specs_templates: must not be set if only the Kubernetes API reaches the node",
    "unsure": "node_devices_profile: must be true or false, not the text 'pool'",
    "default": "node_devices_node_name: '_default' is not a node name",
}


@pytest.mark.parametrize("playbook", ["validate", "site"])
def test_every_wrong_profile_is_refused_with_the_way_out_before_anything_is_written(play, playbook):
    code, said, called = play(playbook, {"right": {}, **WRONG})
    assert code == 2
    assert called == set()
    for host, message in SAID.items():
        assert f"{host}: {message}" in said, said
    fact = "facts: node_devices_resources[0]: object of type 'dict' has no attribute 'devices'; a profile stands for"
    assert fact in said
    assert "to gather facts, set" not in said
    assert "is not checked, because its expression needs facts" not in said
    assert "Give the nodes their devices" not in said


def test_two_profiles_with_the_same_nodes_are_refused(play):
    arm = {"name": "arm", "node_selector": {"kubernetes.io/arch": "arm64"}}
    elsewhere = {"name": "pool", "namespace": "elsewhere"}
    hosts = {
        "gpu": profile("gpu", "gpu"),
        "fpga": profile("fpga", "fpga"),
        "arm": {"node_devices_profile": True, "device_plugin_deployment": arm},
        "twin": profile("gpu", "twin"),
        "by-label": {"node_devices_profile": True, "device_plugin_deployment": {"name": "pool"}},
        "elsewhere": {"node_devices_profile": True, "device_plugin_deployment": elsewhere},
        # Without the API, another kubeconfig is another cluster.
        "other-cluster": profile("gpu", "gpu", node_devices_kubeconfig="/nowhere"),
    }
    code, said, _called = play("validate", hosts)
    assert code == 2
    of_arm = "a node may have the labels of profile arm (kubernetes.io/arch=arm64) and the labels of profile"
    for one in ("gpu", "fpga"):
        two_plugins = f"{one} (example.com/pool={one}), and would then get two plugins: select different values of one"
        assert f"device_plugin_deployment.node_selector: {of_arm} {two_plugins}" in said
    assert "gpu and twin are profiles of one DaemonSet: set another device_plugin_deployment.name for one" in said
    assert "the labels of profile by-label (nodedevices.kubernetes/device-plugin=pool)" in said
    assert "profile other-cluster" not in said
    assert "profile fpga (example.com/pool=fpga) and" not in said


MIXED = {
    "named": {"node_devices_gather_facts": True},
    "by-api": {"node_devices_api_only": True, "device_plugin_mode": "daemonset"},
    # The variables of a group with other hosts.
    "pool": profile("pool", node_devices_api_only=True, node_devices_gather_facts=True, device_plugin_mode="daemonset"),
}


@pytest.mark.parametrize(
    ("playbook", "arguments"),
    [("status", []), ("verify", []), ("verify", ["--check"]), ("uninstall", []), ("rollback", [])],
)
def test_nobody_connects_to_a_profile(play, tmp_path, playbook, arguments):
    _code, said, called = play(playbook, MIXED, *arguments, "-e", f"node_devices_report_dir={tmp_path / 'report'}")
    assert called == {"named"}, said


def test_a_scan_says_in_one_line_why_it_does_not_scan_a_profile(play):
    code, said, called = play("scan", MIXED)
    assert (code, called) == (0, {"named"})
    assert said.count("# pool: not scanned: a profile stands for nodes that no inventory lists, so scan one of") == 1
    assert "# by-api: not scanned: Ansible does not connect to this host, because only the Kubernetes API" in said


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({}, "no-kubeconfig: No such file or directory"),
        ({"node_devices_kubeconfig": ""}, "node_devices_kubeconfig: not set"),
    ],
)
def test_the_status_has_a_row_for_a_profile_that_cannot_be_read(play, tmp_path, more, problem):
    hosts = {"pool": profile("pool", **more)}
    code, said, _called = play("status", hosts, "-e", f"node_devices_report_dir={tmp_path / 'report'}")
    assert code == 0, said
    assert "pool unreachable" in said
    assert problem in said
    assert (tmp_path / "report").is_dir()


@pytest.mark.parametrize(
    ("playbook", "arguments", "fails"),
    [
        ("verify", [], True),
        ("verify", ["--skip-tags", "verify"], False),
        ("uninstall", [], True),
        ("uninstall", ["--tags", "cdi_runtime"], False),
        ("rollback", [], False),
        ("site", ["--tags", "cdi_runtime"], True),
    ],
)
def test_a_run_for_a_profile_alone(play, playbook, arguments, fails):
    """No playbook needs another host, and none fails that has nothing to do."""
    code, said, called = play(playbook, {**MIXED, "pool": profile("pool")}, "--limit", "pool", *arguments)
    assert bool(code) is fails, said
    assert called == set()
    assert ("no-kubeconfig" in said) is fails
