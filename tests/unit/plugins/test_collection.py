"""The collection as others get it: built, installed by itself, and run by its full names."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tarfile

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
INVENTORY = CHECKOUT / "inventories" / "lab"

PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Read the declaration
      nodedevices.kubernetes.declaration:
      register: read
    - name: Keep it
      delegate_to: localhost
      ansible.builtin.copy:
        dest: "{{ lookup('ansible.builtin.env', 'OUTPUT') }}/{{ inventory_hostname }}.json"
        content: "{{ {'configuration': read.configuration, 'specs': read.cdi_specs} | to_json }}"
        mode: "0644"
"""


def run(command, folder, **variables):
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_HOME": str(folder / "home"),
        "PYTHONDONTWRITEBYTECODE": "1",
        **variables,
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tool(name):
    return str(pathlib.Path(sys.executable).parent / name)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with nothing but the installed collection."""
    folder = tmp_path_factory.mktemp("installed")
    run([tool("ansible-galaxy"), "collection", "build", "--output-path", str(folder), str(CHECKOUT)], folder)
    (archive,) = folder.glob("*.tar.gz")
    run([tool("ansible-galaxy"), "collection", "install", "--offline", "-p", "collections", str(archive)], folder)
    return folder


def test_it_holds_the_plugin_and_nothing_of_the_checkouts_own(installed):
    (archive,) = installed.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = set(tar.getnames())
    assert {"pyproject.toml", "LICENSE", "requirements/node.txt", "plugin/node_device_plugin/__init__.py"} <= names
    stray = [
        name for name in names if any(part in name for part in ("__pycache__", "_cache", ".venv", ".lab", "/tests"))
    ]
    assert stray == []


def test_it_renders_what_the_plugin_renders_byte_for_byte(installed):
    play = installed / "play.yml"
    play.write_text(PLAY)
    run([tool("ansible-playbook"), "-i", str(INVENTORY), str(play)], installed, OUTPUT=str(installed))
    outputs = sorted(installed.glob("lab-node*.json"))
    assert [output.stem for output in outputs] == ["lab-node1", "lab-node2"]
    for output in outputs:
        read = json.loads(output.read_text())
        configuration = installed / "config.yaml"
        configuration.write_text(yaml.safe_dump(read["configuration"], sort_keys=False))
        command = [sys.executable, "-m", "node_device_plugin", "cdi", "render", "--config", str(configuration)]
        rendered = run(command, installed, PYTHONPATH=str(CHECKOUT / "plugin"))
        assert rendered == "".join(f"# {name}\n{text}" for name, text in read["specs"].items())
        assert len(read["specs"]) == 2


def test_its_wheel_is_built_from_it_and_writes_nothing_into_it(installed, tmp_path):
    collection = installed / "collections" / "ansible_collections" / "nodedevices" / "kubernetes"
    before = sorted(collection.rglob("*"))
    code = (
        "import pathlib, sys; "
        "from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels; "
        "print(wheels.COLLECTION, wheels._built(pathlib.Path(sys.argv[1])).sha256)"
    )
    said = run([sys.executable, "-c", code, str(tmp_path / "a")], installed, PYTHONPATH=str(installed / "collections"))
    folder, digest = said.split()
    assert folder == str(collection.resolve())
    assert sorted(collection.rglob("*")) == before

    from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels

    assert wheels._built(tmp_path / "b").sha256 == digest
