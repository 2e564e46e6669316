"""Templates of CDI specs (cdi_specs_templates), rendered by Ansible itself for hosts that nobody connects to."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
FILE = "node-devices_example.com_fpga.json"
TEMPLATE = """
{% for card in fpga_cards %}
{% if loop.first %}
cdiVersion: "0.6.0"
kind: example.com/fpga
devices:
{% endif %}
  - name: "{{ card }}"
    containerEdits:
      deviceNodes: [{path: "/dev/{{ inventory_hostname }}-{{ card }}"}]
{% endfor %}
"""


@pytest.fixture
def read(tmp_path):
    """Reads the declarations of hosts: read({host: variables}) returns each host's specs, or what Ansible said."""

    def run(hosts, template=TEMPLATE):
        (tmp_path / "templates").mkdir(exist_ok=True)
        (tmp_path / "templates" / "fpga.yaml.j2").write_text(template)
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
        tasks = [
            {"nodedevices.kubernetes.declaration": {}, "register": "read"},
            {
                "ansible.builtin.copy": {
                    "content": "{{ read.cdi_specs | to_json }}",
                    "dest": f"{tmp_path}/{{{{ inventory_hostname }}}}.json",
                },
                "delegate_to": "localhost",
            },
        ]
        (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
        command = ["ansible-playbook", "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "play.yml")]
        ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=120)
        if ended.returncode:
            return ended.stdout + ended.stderr
        return {host: json.loads((tmp_path / f"{host}.json").read_text()) for host in hosts}

    return run


def of(cards, **more):
    device = {"id": "card", "cdi_devices": ["example.com/fpga=0"], "required": False}
    return {
        "fpga_cards": cards,
        "cdi_specs_templates": [{"src": "fpga.yaml.j2"}],
        "node_devices_resources": [{"name": "devices.example.com/fpga", "devices": [device]}],
        **more,
    }


def test_each_host_gets_the_spec_of_its_variables(read):
    specs = read({"a": of(["0", "1"]), "b": of([])})
    assert [device["name"] for device in specs["a"][FILE]["devices"]] == ["0", "1"]
    assert "/dev/a-0" in json.dumps(specs["a"][FILE])
    # Without a card the template renders to nothing, and the host has no spec.
    assert specs["b"] == {}


@pytest.mark.parametrize(
    ("template", "more", "says"),
    [
        ("{{ nobody_sets_this }}", {}, "(fpga.yaml.j2): "),
        ("{{ ansible_facts.devices.fpga0 }}", {}, "to gather facts, set node_devices_gather_facts: true"),
        ("kind: [", {}, "(fpga.yaml.j2): the file: cannot be parsed: "),
        (TEMPLATE.replace("deviceNodes", "deviceNode"), {}, "devices[0].containerEdits.deviceNode: "),
        (TEMPLATE.replace('name: "{{ card }}"', "name: 0{{ card }}"), {}, "devices[0].name: is not quoted: "),
        (TEMPLATE.replace("0.6.0", "0.3.0"), {}, "cdiVersion: is 0.3.0, but must be at least 0.5.0"),
        (
            TEMPLATE.replace("example.com/fpga", "example.com/serial"),
            {
                "node_devices_resources": [
                    {"name": "example.com/serial", "devices": [{"id": "a", "nodes": [{"path": "/dev/ttyS0"}]}]}
                ]
            },
            "kind: example.com/serial is already the kind of resource example.com/serial: choose another kind",
        ),
        (
            TEMPLATE,
            {"cdi_specs_templates": [{"src": "fpga.yaml.j2"}, {"src": "fpga.yaml.j2"}]},
            "cdi_specs_templates[1] (fpga.yaml.j2): kind: example.com/fpga is already the kind of "
            "cdi_specs_templates[0] (fpga.yaml.j2)",
        ),
        (TEMPLATE, {"cdi_specs_templates": ["fpga.yaml.j2"]}, "cdi_specs_templates: must be a list of mappings"),
        (
            TEMPLATE,
            {"cdi_specs_templates": [{"src": "other.j2"}]},
            "(other.j2): no such file in the directory templates beside the inventory",
        ),
        (TEMPLATE, {"node_devices_api_only": True}, "cdi_specs_templates: must not be set if only the Kubernetes API"),
    ],
)
def test_a_wrong_template_is_refused_with_its_name(read, template, more, says):
    said = read({"a": of(["0"], **more)}, template)
    assert isinstance(said, str), said
    assert says in " ".join(said.split())
