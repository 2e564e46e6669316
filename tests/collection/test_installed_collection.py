"""The collection as others get it: built, installed beside a bare ansible-core, used by its full names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from installed import CHECKOUT, Controller

from node_device_plugin.declaration import cdi

# Seconds, with a collection that is built and installed before.
pytestmark = pytest.mark.timeout(900)

PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - nodedevices.kubernetes.declaration:
      register: declared
    - ansible.builtin.copy:
        dest: "{{ out }}/{{ inventory_hostname }}.json"
        content: "{{ declared | ansible.builtin.to_json(sort_keys=false) }}"
        mode: "0644"
      delegate_to: localhost
"""


def test_what_is_installed_is_what_the_roles_need_and_no_more(controller: Controller) -> None:
    installed = controller.folder / "collections/ansible_collections/nodedevices/kubernetes"
    assert {"pyproject.toml", "plugin", "plugins", "roles", "playbooks", "requirements"} <= set(os.listdir(installed))
    checkout_only = {
        "molecule",
        ".lab",
        ".venv",
        ".ansible",
        ".site",
        "Makefile",
        "bench",
        "tools",
        "lab",
        "tests",
    }
    assert not checkout_only & set(os.listdir(installed))
    assert not list(installed.glob("plugin/tests"))
    # Users copy this directory (examples/molecule/README.md).
    assert os.listdir(installed / "examples") == ["molecule"]
    declared = installed / "examples/molecule/molecule/default/inventory/group_vars/workers/devices.yml"
    assert "node_devices_resources_modem" in yaml.safe_load(declared.read_text())
    assert not [*installed.glob("roles/lab_*"), *installed.glob("playbooks/lab_*")]


def test_what_is_installed_of_the_lab_is_what_its_roles_need_and_no_more(controller: Controller) -> None:
    installed = controller.folder / "collections/ansible_collections/nodedevices/lab"
    wanted = {"CHANGELOG.md", "LICENSE", "README.md", "kubelet_stand_in", "meta", "playbooks", "roles"}
    assert set(os.listdir(installed)) == wanted | {"MANIFEST.json", "FILES.json"}
    assert {path.name for path in (installed / "roles").iterdir()} == {"lab_node", "lab_cluster", "lab_kind"}
    assert set(os.listdir(installed / "kubelet_stand_in")) == {"kubelet_stand_in", "pyproject.toml"}
    assert (installed / "LICENSE").read_text() == (CHECKOUT / "LICENSE").read_text()
    assert not [path for path in installed.rglob("*") if path.is_symlink() or path.name == "__pycache__"]


def test_it_renders_byte_for_byte_what_the_plugin_renders(controller: Controller) -> None:
    (controller.folder / "declare.yml").write_text(PLAYBOOK)
    lab = str(CHECKOUT / "inventories" / "lab")
    done = controller.run("ansible-playbook", "-i", lab, "declare.yml", "-e", f"out={controller.folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    for host in ("lab-node1", "lab-node2"):
        declared = json.loads((controller.folder / f"{host}.json").read_text())
        config = controller.folder / "config.yaml"
        config.write_text(yaml.safe_dump(declared["configuration"]))
        rendered = subprocess.run(
            [sys.executable, "-m", "node_device_plugin", "cdi", "render", "--config", config],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT / "plugin")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert len(declared["cdi_specs"]) == 2
        assert rendered == "".join(f"# {name}\n{cdi.serialise(spec)}" for name, spec in declared["cdi_specs"].items())


def test_its_wheel_is_built_from_it_and_writes_nothing_into_it(controller: Controller, tmp_path: Path) -> None:
    installed = controller.folder / "collections/ansible_collections/nodedevices/kubernetes"
    before = sorted(installed.rglob("*"))
    code = (
        "import pathlib, sys; "
        "from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels; "
        "wheel = wheels.built(pathlib.Path(sys.argv[1])); print(wheels.COLLECTION, wheel.sha256, wheel.path)"
    )
    digests = []
    for collections in (controller.folder / "collections", CHECKOUT / ".ansible/collections"):
        said = subprocess.run(
            [sys.executable, "-c", code, tmp_path / str(len(digests))],
            env={**os.environ, "PYTHONPATH": str(collections), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        folder, digest, wheel = said.split()
        assert folder == str((collections / "ansible_collections/nodedevices/kubernetes").resolve())
        digests.append(digest)
        # The node's wheel is the plugin and nothing else: no kubelet stand-in, no test.
        names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
        assert names == {"node_device_plugin", "node_device_plugin-0.1.0.dist-info"}
        rooms = {
            name.split("/")[1] for name in zipfile.ZipFile(wheel).namelist() if name.startswith("node_device_plugin/")
        }
        assert not {"testing", "tests"} & rooms
    assert sorted(installed.rglob("*")) == before
    # The same wheel from the collection and from the checkout.
    assert digests[0] == digests[1]


def test_the_playbooks_run_by_name(controller: Controller) -> None:
    names = [f"kubernetes.{name}" for name in ("site", "scan", "validate", "verify", "status", "uninstall")]
    for name in [*names, "lab.lab_up", "lab.lab_down", "lab.kind_up", "lab.kind_pods", "lab.kind_down"]:
        done = controller.run("ansible-playbook", "-i", "inventory.yml", "--syntax-check", f"nodedevices.{name}")
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_declaration_stops_before_any_node(controller: Controller) -> None:
    wrong = {"node_devices_resources_wrong": [{"name": "nonsense"}, {"name": "a/b", "devcies": []}]}
    done = controller.run(
        "ansible-playbook", "-i", "inventory.yml", "nodedevices.kubernetes.site", "-e", json.dumps(wrong)
    )
    assert done.returncode != 0
    for words in (
        "node1: node_devices_resources_wrong[0] (nonsense).name",
        "node_devices_resources_wrong[1] (a/b).devcies",
    ):
        assert words in done.stdout + done.stderr
    assert "Check the node" not in done.stdout


def test_the_report_is_written_where_ansible_was_started(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inventory = {"node_devices": {"hosts": {"far": {"ansible_host": "127.0.0.1", "ansible_port": 9}}}}
    (controller.folder / "far.yml").write_text(yaml.safe_dump(inventory))
    # The play packs the nodes' code before it connects.
    lacking = controller.run("ansible-playbook", "-i", "far.yml", "nodedevices.kubernetes.status")
    assert lacking.returncode == 2
    assert (
        "has no tomlkit: install requirements/controller.txt into Ansible's Python" in lacking.stdout + lacking.stderr
    )
    packages = ("tomlkit", "tomli<2.4")
    done = controller.run("pip", "install", "--quiet", "--target", str(tmp_path), *packages)
    assert done.returncode == 0, done.stderr
    monkeypatch.setitem(controller.environment, "PYTHONPATH", str(tmp_path))
    done = controller.run("ansible-playbook", "-i", "far.yml", "nodedevices.kubernetes.status")
    # A host that is not reached is a row, and no failure.
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((controller.folder / ".report/status.json").read_text())
    assert [(node["name"], node["state"]) for node in report["nodes"]] == [("far", "unreachable")]
    assert (controller.folder / ".report/status.html").read_text().endswith("</html>\n")


@pytest.mark.parametrize(
    "name",
    [
        *(f"kubernetes.{role}" for role in ("node_tools", "cdi_runtime", "cdi_specs", "device_plugin", "verification")),
        "lab.lab_node",
    ],
)
def test_every_role_is_documented(controller: Controller, name: str) -> None:
    done = controller.run("ansible-doc", "-t", "role", f"nodedevices.{name}")
    assert done.returncode == 0, done.stderr
    assert f"{name.partition('.')[2]}_state" in done.stdout
