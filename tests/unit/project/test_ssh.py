"""How plays reach nodes: one that dies under a play does not keep it waiting."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess

import pytest
import yaml
from documented_blocks import ROOT

CONNECTION = ROOT / "inventories" / "lab" / "group_vars" / "lab_nodes" / "connection.yml"


def of_the_checkout():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "ansible.cfg", encoding="utf-8")
    return settings["ssh_connection"]["ssh_args"]


def of_the_lab():
    return yaml.safe_load(CONNECTION.read_text(encoding="utf-8"))["ansible_ssh_args"]


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh to ask")
# A throwaway node's connection is a process of its engine, of 20 MB.
@pytest.mark.parametrize(("arguments", "persists"), [(of_the_checkout, "600"), (of_the_lab, "60")])
def test_a_node_that_died_is_given_up_on(arguments, persists):
    command = ["ssh", "-F", "none", *shlex.split(arguments()), "-G", "node"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    settings = dict(line.split(" ", 1) for line in said.splitlines())
    assert 0 < int(settings["serveraliveinterval"]) * int(settings["serveralivecountmax"]) <= 120
    assert settings["controlmaster"] == "auto"
    assert settings["controlpersist"] == persists
