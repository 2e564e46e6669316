"""The variables by which Ansible reaches a throwaway node: where they find the checkout, and what they cost."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
VARIABLES = CHECKOUT / "inventories/lab/group_vars/lab_nodes"


def root_from(inventory, folder, **environment):
    """lab_node_root of a node, as ansible in ``folder`` has it."""
    program = os.path.join(os.path.dirname(sys.executable), "ansible")
    command = [program, "-i", inventory, "lab_nodes", "--one-line", "-m", "debug", "-a", "msg=<{{ lab_node_root }}>"]
    # With no configuration of the user's.
    environment = {**os.environ, "HOME": str(folder), "MOLECULE_PROJECT_DIRECTORY": "", **environment}
    environment.pop("ANSIBLE_CONFIG", None)
    said = subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout
    return pathlib.Path(said.partition("<")[2].partition(">")[0]).resolve()


@pytest.fixture
def inventory(tmp_path):
    """A user's own, somewhere else, which links to the variables."""
    folder = tmp_path / "mine"
    (folder / "group_vars").mkdir(parents=True)
    (folder / "group_vars/lab_nodes").symlink_to(VARIABLES)
    (folder / "hosts.yml").write_text("lab_nodes: {hosts: {my-node1: {}}}")
    return folder


def test_by_the_configuration_of_the_checkout(inventory):
    assert root_from(inventory, CHECKOUT) == CHECKOUT


def test_by_molecule_where_another_release_has_the_configuration(inventory, tmp_path):
    shutil.copy(CHECKOUT / "ansible.cfg", tmp_path)
    assert root_from(inventory, tmp_path, MOLECULE_PROJECT_DIRECTORY=str(CHECKOUT)) == CHECKOUT


def test_beside_it_from_anywhere(tmp_path):
    assert root_from(CHECKOUT / "inventories/lab", tmp_path) == CHECKOUT


def test_nothing_that_each_task_would_pay_for():
    variables = yaml.safe_load((VARIABLES / "connection.yml").read_text())
    # Ansible templates a key file for tasks that are skipped, too, and loads all filters for one.
    assert "ansible_ssh_private_key_file" not in variables
    assert [name for name, value in variables.items() if "|" in str(value)] == []
