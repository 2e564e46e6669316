"""Where the lab keeps its own files, in a checkout and from an installed collection, and how ssh finds its nodes."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest

LAB = Path(__file__).parents[3] / "lab"
PROGRAM = "roles/lab_node/files/state_directory"


def state_directory(program: Path, **environment: str) -> str:
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.removesuffix("\n")


def test_a_checkout_has_its_own():
    assert state_directory(LAB / PROGRAM, HOME="/home/me", PATH="/usr/bin:/bin") == f"{LAB.parent}/.lab"


def test_a_checkout_that_is_seen_as_a_collection_has_the_same(tmp_path):
    (tmp_path / "lab").symlink_to(LAB)
    assert state_directory(tmp_path / "lab" / PROGRAM, HOME="/home/me", PATH="/usr/bin:/bin") == f"{LAB.parent}/.lab"


def test_an_installed_collection_leaves_them_to_the_user(tmp_path):
    installed = tmp_path / "nodedevices/lab"
    shutil.copytree(LAB / "roles", installed / "roles")
    environment = {"HOME": "/home/me", "PATH": "/usr/bin:/bin"}
    assert state_directory(installed / PROGRAM, **environment) == "/home/me/.local/state/node-devices/lab"
    assert state_directory(installed / PROGRAM, XDG_STATE_HOME="/state", **environment) == "/state/node-devices/lab"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh to ask")
def test_ssh_reads_the_way_to_a_node_whatever_the_paths_are_called(tmp_path):
    template = LAB / "roles/lab_node/templates/ssh_config.j2"
    environment = jinja2.Environment(keep_trailing_newline=True)  # noqa: S701 - it is no page
    environment.filters["quote"] = shlex.quote
    paths = {"lab_node_engine": f"{tmp_path}/my 100% lab/engine", "lab_node_ssh_key": f"{tmp_path}/my 100% lab/key"}
    Path(paths["lab_node_engine"]).parent.mkdir()
    Path(paths["lab_node_engine"]).write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >'{tmp_path}/called'\n")
    Path(paths["lab_node_engine"]).chmod(0o755)
    config = tmp_path / "ssh config"
    config.write_text(environment.from_string(template.read_text()).render(paths))
    said = subprocess.run(["ssh", "-F", config, "-G", "node1"], capture_output=True, text=True, check=True).stdout
    settings = dict(line.split(" ", 1) for line in said.splitlines())
    assert (settings["user"], settings["identitiesonly"]) == ("root", "yes")
    assert settings["identityfile"].replace("%%", "%") == paths["lab_node_ssh_key"]
    assert int(settings["serveraliveinterval"]) * int(settings["serveralivecountmax"]) <= 120
    # It ends where the engine does, which is no sshd.
    subprocess.run(["ssh", "-F", config, "node1", "true"], capture_output=True, check=False)
    assert (tmp_path / "called").read_text().split() == [
        "exec",
        "-i",
        "node1",
        "/usr/sbin/sshd",
        "-i",
        "-o",
        "UsePAM=no",
    ]
