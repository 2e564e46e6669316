"""The collection as others get it: built, installed beside a bare ansible-core, used by its full names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

# Seconds, with a collection that is built and installed before.
pytestmark = pytest.mark.timeout(900)

CHECKOUT = Path(__file__).parents[2]
RESOURCES = """
node_devices_resources:
  - name: github.com.ihcsim/crand
    container_edits: {env: [CDI_PROVIDER=github.com.ihcsim/crand]}
    devices:
      - {id: crand0, nodes: [{path: /dev/crand0, host_path: /dev/random, mode: "0660"}]}
node_devices_resources_more:
  - {name: example.com/none}
"""
PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - nodedevices.kubernetes.declaration:
      register: declared
    - ansible.builtin.copy:
        dest: "{{ out }}/{{ inventory_hostname }}.json"
        content: "{{ declared | ansible.builtin.to_json }}"
        mode: "0644"
      delegate_to: localhost
"""


class Controller:
    """A folder with a bare ansible-core and the collection in it, and nothing of the checkout."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))},
            "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
            "ANSIBLE_NOCOLOR": "1",
        }

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.directory / "venv" / "bin" / program), *arguments],
            cwd=self.directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Controller:
    directory = tmp_path_factory.mktemp("controller")
    version = re.search(r"^ansible-core==(\S+)", (CHECKOUT / "requirements/controller.txt").read_text(), re.M)
    assert version
    subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
    made = Controller(directory)
    done = made.run("pip", "install", "--quiet", f"ansible-core=={version.group(1)}")
    assert done.returncode == 0, done.stderr
    built = made.run("ansible-galaxy", "collection", "build", str(CHECKOUT), "--output-path", str(directory))
    assert built.returncode == 0, built.stderr
    (archive,) = directory.glob("nodedevices-kubernetes-*.tar.gz")
    installed = made.run("ansible-galaxy", "collection", "install", "--offline", str(archive), "-p", "collections")
    assert installed.returncode == 0, installed.stderr
    (directory / "inventory.yml").write_text(
        yaml.safe_dump(
            {"all": {"hosts": {"node1": {"ansible_connection": "local"}}, "vars": yaml.safe_load(RESOURCES)}}
        )
    )
    return made


def test_what_is_installed_is_what_the_roles_need_and_no_more(controller: Controller) -> None:
    installed = controller.directory / "collections/ansible_collections/nodedevices/kubernetes"
    assert {"pyproject.toml", "plugin", "plugins", "roles", "playbooks", "requirements"} <= set(os.listdir(installed))
    checkout_only = {"molecule", ".lab", ".venv", ".ansible", ".site", "Makefile", "bench", "bin", "tests"}
    assert not checkout_only & set(os.listdir(installed))
    assert not list(installed.glob("plugin/tests"))


def test_it_renders_byte_for_byte_what_the_plugin_renders(controller: Controller) -> None:
    (controller.directory / "declare.yml").write_text(PLAYBOOK)
    lab = str(CHECKOUT / "inventories" / "lab")
    done = controller.run("ansible-playbook", "-i", lab, "declare.yml", "-e", f"out={controller.directory}")
    assert done.returncode == 0, done.stdout + done.stderr
    for host in ("lab-node1", "lab-node2"):
        declared = json.loads((controller.directory / f"{host}.json").read_text())
        config = controller.directory / "config.yaml"
        config.write_text(yaml.safe_dump(declared["configuration"]))
        rendered = subprocess.run(
            [sys.executable, "-m", "node_device_plugin", "cdi", "render", "--config", config],
            env={**os.environ, "PYTHONPATH": str(CHECKOUT / "plugin")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert len(declared["cdi_specs"]) == 2
        assert rendered == "".join(f"# {name}\n{text}" for name, text in declared["cdi_specs"].items())


def test_its_wheel_is_built_from_it_and_writes_nothing_into_it(controller: Controller, tmp_path: Path) -> None:
    installed = controller.directory / "collections/ansible_collections/nodedevices/kubernetes"
    before = sorted(installed.rglob("*"))
    code = (
        "import pathlib, sys; "
        "from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels; "
        "print(wheels.COLLECTION, wheels.built(pathlib.Path(sys.argv[1])).sha256)"
    )
    digests = []
    for collections in (controller.directory / "collections", CHECKOUT / ".ansible/collections"):
        said = subprocess.run(
            [sys.executable, "-c", code, tmp_path / str(len(digests))],
            env={**os.environ, "PYTHONPATH": str(collections), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        directory, digest = said.split()
        assert directory == str((collections / "ansible_collections/nodedevices/kubernetes").resolve())
        digests.append(digest)
    assert sorted(installed.rglob("*")) == before
    # The same wheel from the collection and from the checkout.
    assert digests[0] == digests[1]


def test_the_playbooks_run_by_name(controller: Controller) -> None:
    for playbook in ("site", "verify", "status", "uninstall"):
        done = controller.run(
            "ansible-playbook", "-i", "inventory.yml", "--syntax-check", f"nodedevices.kubernetes.{playbook}"
        )
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
    assert "Look at the node" not in done.stdout


def test_the_report_is_written_where_ansible_was_started(controller: Controller) -> None:
    inventory = {"all": {"hosts": {"far": {"ansible_host": "127.0.0.1", "ansible_port": 9}}}}
    (controller.directory / "far.yml").write_text(yaml.safe_dump(inventory))
    done = controller.run("ansible-playbook", "-i", "far.yml", "nodedevices.kubernetes.status")
    # A host that is not reached is a row, and no failure.
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((controller.directory / ".report/status.json").read_text())
    assert [(node["name"], node["state"]) for node in report["nodes"]] == [("far", "unreachable")]
    assert (controller.directory / ".report/status.html").read_text().endswith("</html>\n")


@pytest.mark.parametrize(
    "role", ["node_tools", "cdi_runtime", "cdi_specs", "device_plugin", "verification", "lab_node"]
)
def test_every_role_is_documented(controller: Controller, role: str) -> None:
    done = controller.run("ansible-doc", "-t", "role", f"nodedevices.kubernetes.{role}")
    assert done.returncode == 0, done.stderr
    assert f"{role}_state" in done.stdout
