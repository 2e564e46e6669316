"""validate.yml: an inventory is checked as site.yml does it, with no node, no API server and no facts."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
CAMERA = {"name": "example.com/camera", "devices": [{"id": "a", "nodes": [{"path": "/dev/video0"}]}]}


def validated(inventory, *arguments):
    """The exit code, and what validate.yml says as one line."""
    command = ["ansible-playbook", "-i", str(inventory), "playbooks/validate.yml", *arguments]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=120)
    return ended.returncode, " ".join((ended.stdout + ended.stderr).split())


@pytest.fixture
def validate(tmp_path):
    """Runs validate.yml for hosts with these variables, none of which can be reached."""

    def run(**hosts):
        group = {"hosts": hosts, "vars": {"ansible_host": "nowhere.invalid"}}
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"node_devices": group}))
        return validated(tmp_path / "hosts.yml")

    return run


@pytest.mark.parametrize("inventory", ["inventories/example", "inventories/lab", "examples/molecule/inventory"])
def test_the_example_inventories_are_valid(inventory):
    code, said = validated(CHECKOUT / inventory)
    assert code == 0, said
    assert "failed=1" not in said


def test_the_profile_of_the_example_inventory_is_valid():
    code, said = validated(CHECKOUT / "inventories/example", "-e", "node_devices_hosts=gpu_pool")
    assert code == 0, said
    assert "gpu-default: devices.example.com/render" in said


@pytest.mark.parametrize(("hosts", "code"), [({"a": {}}, 0), ({"a": {"node_devices_resources": "x"}}, 1)])
def test_the_plugin_s_command_runs_the_playbook(tmp_path, hosts, code):
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"node_devices": {"hosts": hosts}}))
    command = [sys.executable, "-m", "node_device_plugin", "validate", "--inventory", str(tmp_path / "hosts.yml")]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "plugin")}
    ended = subprocess.run(
        command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    assert ("a: node_devices_resources: must be a list" in " ".join(ended.stdout.split())) is bool(code)


def test_every_problem_of_every_host(validate, tmp_path):
    cluster = {"node_devices_kubeconfig": str(tmp_path / "none"), "node_devices_node_name": "n"}
    code, said = validate(
        a={"node_devices_resources": [{**CAMERA, "nmae": "x"}, {**CAMERA, "replicas": "{{ nothing }}"}], **cluster},
        b={"cdi_runtime_max_parallel_restarts": "some", "node_devices_settings": {"log_level": "loud"}, **cluster},
        c={"host_devices_udev_rules": ["x"], "device_plugin_mode": "daemonset"},
        d={"node_tools_keep": "{{ nothing }}", "node_devices_settings": {"log_level": "{{ nothing }}"}},
        e={"node_devices_resources": [CAMERA]},
    )
    assert code == 2
    for problem in (
        "a: node_devices_resources[0] (example.com/camera).nmae: is not a known key",
        "a: node_devices_resources[1] (example.com/camera).replicas: 'nothing' is undefined",
        "b: cdi_runtime_max_parallel_restarts: must be a whole number, not the text 'some'",
        "b: node_devices_settings.log_level: must be one of debug, info, warning, error, not 'loud'",
        "c: host_devices_udev_rules[0]: must be a udev rule on one line",
        "c: node_devices_kubeconfig: not set, but a DaemonSet needs the Kubernetes API",
        "d: node_tools_keep: 'nothing' is undefined",
        "d: node_devices_settings.log_level: 'nothing' is undefined",
        "hosts a and b both have the node name n in this cluster",
        "e: example.com/camera",
    ):
        assert problem in said, said
    assert "UNREACHABLE" not in said
    assert "No such file" not in said


def test_wrong_types_are_told_in_the_words_of_yaml(validate):
    """A mapping was an _AnsibleTaggedDict."""
    node = {"path": [1], "type": "q", "major": "x", "minor": 1}
    code, said = validate(
        a={"host_devices_nodes": {"path": "/dev/a"}, "node_tools_keep": None},
        b={"host_devices_nodes": ["x", 3], "host_devices_udev_rules": [{"a": 1}], "node_tools_root": ["a"]},
        c={"host_devices_nodes": [node], "device_plugin_takeover": [1], "device_plugin_deployment": ["x"]},
        d={"node_devices_resources": {"a": 1}, "node_devices_settings": [1], "host_devices_modules": None},
        e={"device_plugin_deployment": {"tolerations": {"a": 1}}, "node_devices_kubeconfig": None},
    )
    assert code == 2
    for problem in (
        "a: host_devices_nodes: must be a list, not a mapping",
        "a: node_tools_keep: must be a whole number, not nothing",
        "b: host_devices_nodes[0]: must be a mapping, not the text 'x'",
        "b: host_devices_nodes[1]: must be a mapping, not 3",
        "b: host_devices_udev_rules[0]: must be text, not a mapping",
        "b: node_tools_root: must be a path, not a list",
        "c: host_devices_nodes[0].path: must be text, not a list",
        "c: host_devices_nodes[0].major: must be a whole number, not the text 'x'",
        "c: device_plugin_takeover: must be true or false, not a list",
        "c: device_plugin_deployment: must be a mapping, not a list",
        "d: node_devices_resources: must be a list of resources, not a mapping",
        "d: node_devices_settings: must be a mapping of the plugin's settings, not a list",
        "d: host_devices_modules: must be a list, not nothing",
        "e: device_plugin_deployment.tolerations: must be a list, not a mapping",
    ):
        assert problem in said, said
    for word in ("Tagged", "class '", "NoneType", "unable to convert", "e: node_devices_kubeconfig"):
        assert word not in said, said


def test_what_a_later_task_would_refuse(validate):
    """All that the inventory alone shows."""
    fixed = {"node_devices_resources": [{"name": "example.com/seat", "capacity": 2}]}
    by_api = {"node_devices_api_only": True, "node_devices_kubeconfig": "/none"}
    code, said = validate(
        a=fixed,
        b={**fixed, "node_devices_kubeconfig": "/none"},
        c={"node_devices_drain": True, "node_devices_drain_minutes": "long", "node_devices_lock_minutes": -1},
        d=by_api,
        e={**by_api, **fixed, "device_plugin_mode": "daemonset", "extended_resources_restore": True},
        f={"node_devices_kubeconfig": "{{ nothing }}", **fixed},
        g={"device_plugin_deployment": {"startup_taint": "a.example/b:NoSchedule"}},
        h={"device_plugin_deployment": {"startup_taint": "a.example/b:NoSchedule"}, "node_devices_kubeconfig": "/none"},
    )
    assert code == 2
    for problem in (
        "a: node_devices_kubeconfig: not set, but the capacity of example.com/seat is patched through the Kubernetes "
        "API: set it to a kubeconfig file on the controller",
        "c: node_devices_kubeconfig: not set, but a drain needs the Kubernetes API",
        "c: node_devices_drain_minutes: must be a number of minutes, 0 or more, not long",
        "c: node_devices_lock_minutes: must be a number of minutes, 0 or more, not -1",
        "d: device_plugin_mode: is service, but node_devices_api_only means",
        "e: extended_resources_restore: needs a timer on the node",
        "b: example.com/seat",
        "f: node_devices_kubeconfig: 'nothing' is undefined",
        "g: node_devices_kubeconfig: not set, but device_plugin_deployment.startup_taint is removed through",
    ):
        assert problem in said, said
    assert "h: node_devices_kubeconfig: " not in said
    assert "f: node_devices_kubeconfig: not set" not in said


def test_misspelled_variables(validate):
    """One of them took a resource from two nodes, and the run ended well."""
    cam = {"node_device_resources_cam": [CAMERA]}
    used = {"node_devices_resources": "{{ node_device_resources_cam }}"}
    code, said = validate(
        a={"device_plugin_mod": "daemonset", "node_devices_site_note": "rack 7"},
        b=cam,
        c={**cam, **used, "node_device_foo_custom": 1, "node_devices_site_note": "rack 8"},
        d={"device_plugin_mod": 1, "node_devices_own_variables": ["device_plugin_mod"]},
    )
    assert code == 2
    reads = "no role and no playbook reads this variable, and its name is nearly"
    assert f"a: device_plugin_mod: {reads} device_plugin_mode:" in said
    assert f"b: node_device_resources_cam: {reads} node_devices_resources_cam:" in said
    assert said.count("[WARNING]: node_devices_site_note: no role and no playbook of this collection reads") == 1
    assert "d: device_plugin_mod" not in said
    assert "c: example.com/camera" in said
    for other in ("c: node_device_resources_cam", "node_device_foo_custom"):
        assert other not in said


def test_two_hosts_that_are_one_node_are_a_failure_by_themselves(validate, tmp_path):
    cluster = {
        "node_devices_kubeconfig": str(tmp_path / "none"),
        "node_devices_node_name": "n",
        "node_devices_api_only": True,
        "device_plugin_mode": "daemonset",
    }
    assert validate(a=cluster, b={**cluster, "node_devices_node_name": "m"})[0] == 0
    code, said = validate(a=cluster, b=cluster)
    assert code == 2
    assert "hosts a and b both have the node name n in this cluster" in said


def test_expressions_are_evaluated_as_far_as_they_need_no_facts(validate):
    cores = {"name": "example.com/core", "capacity": "{{ ansible_facts.processor_vcpus | int }}"}
    wrong = {**CAMERA, "replicas": "{{ 2 - 2 }}"}
    hosts = {"node_devices_resources": [cores, wrong], "node_tools_keep": "{{ ansible_memtotal_mb // 1000 }}"}
    code, said = validate(gathers={**hosts, "node_devices_gather_facts": True}, does_not=hosts)
    assert code == 2
    capacity, keep = "node_devices_resources[0] (example.com/core).capacity", "node_tools_keep"
    for field in (capacity, keep):
        unchecked = f"{field} is not checked, because its expression needs facts of the node:"
        assert f"[WARNING]: gathers: {unchecked}" in said, said
        assert f"does_not: {unchecked}" not in said
        assert f"does_not: {field}: " in said
        assert f"gathers: {field}: " not in said
    assert "to gather facts, set node_devices_gather_facts: true" in said
    for host in ("gathers", "does_not"):
        assert f"{host}: node_devices_resources[1] (example.com/camera).replicas: must be at least 1, not 0" in said


def test_what_is_unchecked_is_no_failure(validate, tmp_path):
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "fpga.j2").write_text("{{ ansible_facts.devices.fpga0 }}")
    cores = {"name": "example.com/core", "capacity": "{{ ansible_facts.processor_vcpus | int }}"}
    code, said = validate(
        a={
            "node_devices_resources": [cores, CAMERA],
            "node_devices_settings": {"log_level": "{{ ansible_facts.level }}"},
            "cdi_specs_templates": [{"src": "fpga.j2"}],
            "node_devices_gather_facts": True,
        }
    )
    assert code == 0, said
    for field in ("node_devices_settings.log_level", "cdi_specs_templates[0] (fpga.j2)"):
        assert f"[WARNING]: a: {field} is not checked" in said
    assert "a: example.com/camera" in said


def test_dra_needs_a_cluster_whatever_runs_the_plugin(validate):
    claimed = {"node_devices_resources": [{**CAMERA, "api": "dra"}]}
    pod = {"device_plugin_mode": "daemonset", "node_devices_kubeconfig": "/kubeconfig"}
    code, said = validate(
        a=claimed,
        b={**claimed, **pod},
        c={**claimed, **pod, "node_devices_profile": True},
        d={**claimed, "node_devices_kubeconfig": "/k"},
    )
    assert code
    assert (
        "a: node_devices_kubeconfig: not set, but the DeviceClass of example.com/camera (api: dra) is created through "
        "the Kubernetes API: set it to a kubeconfig file on the controller"
    ) in said
    for host in "bcd":
        assert f"{host} : ok=2 changed=0 unreachable=0 failed=0" in said
