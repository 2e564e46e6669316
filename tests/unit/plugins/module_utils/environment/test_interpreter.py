"""Which Python the plugin's service can run: one that its sandbox shows and that only root can replace."""

from __future__ import annotations

import os
import pathlib
import sysconfig

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment import interpreter
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support import (
    directory_names,
    node_process,
)

UNIT = pathlib.Path(__file__).resolve().parents[5] / "roles/device_plugin/templates/node-device-plugin.service.j2"


class Machine:
    """A directory that plays a machine's root. All of it belongs to root, as far as the test does not say otherwise."""

    def __init__(self, root, monkeypatch):
        self.root, self.python = root, "usr/bin/python3"
        self.place("usr/lib/python3.11/os.py")
        self.place("usr/bin/python3")
        hidden = tuple(f"{root}{directory}" for directory in directory_names.HIDDEN)
        monkeypatch.setattr(directory_names, "HIDDEN", hidden)
        monkeypatch.setattr(interpreter, "base_python", lambda: os.path.realpath(root / self.python))
        monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(self.stdlib))
        monkeypatch.setattr(node_process, "_not_roots", self.not_roots)
        self.theirs = {}

    def place(self, name):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    @property
    def stdlib(self):
        return self.root / "usr/lib/python3.11"

    def not_roots(self, path, _status):
        return self.theirs.get(os.path.relpath(path, self.root))


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path.resolve(), monkeypatch)


def test_the_systems_python_will_do(machine):
    assert interpreter.obstacle() is None


@pytest.mark.parametrize(
    ("python", "hidden"),
    [
        ("home/deploy/.pyenv/versions/3.11.7/bin/python3", "/home"),
        ("root/.local/bin/python3", "/root"),
        ("tmp/python3", "/tmp"),
        ("var/tmp/python3", "/var/tmp"),
        ("run/user/1000/python3", "/run"),
        ("var/lib/docker/volumes/x/python3", "/var/lib/docker"),
    ],
)
def test_a_python_that_the_sandbox_hides_is_named(machine, python, hidden):
    machine.place(python)
    machine.python = python
    root = machine.root
    said = f"the sandbox of the plugin's service hides {root}/{python}, because it hides {root}{hidden}"
    assert interpreter.obstacle() == said


def test_a_link_into_a_home_directory_is_followed(machine):
    """As pyenv and uv make them in /usr/local/bin."""
    target = machine.place("home/deploy/.local/share/uv/python3.11")
    (machine.root / "usr/local/bin").mkdir(parents=True)
    (machine.root / "usr/local/bin/python3").symlink_to(target)
    machine.python = "usr/local/bin/python3"
    assert f"hides {target}, because" in interpreter.obstacle()


def test_a_home_that_is_a_link_is_followed(machine):
    """Fedora CoreOS has /home as a link to var/home."""
    machine.place("var/home/core/python3")
    (machine.root / "home").symlink_to("var/home")
    machine.python = "var/home/core/python3"
    assert interpreter.obstacle().endswith(f"because it hides {machine.root}/home")
    # A sibling with a longer name is another directory.
    machine.place("var/homes/python3")
    machine.python = "var/homes/python3"
    assert interpreter.obstacle() is None


def test_its_standard_library_counts_too(machine):
    library = machine.place("home/deploy/lib/python3.11/os.py").parent
    (machine.root / "usr/lib/python3.11/os.py").unlink()
    (machine.root / "usr/lib/python3.11").rmdir()
    (machine.root / "usr/lib/python3.11").symlink_to(library)
    assert f"hides {library}, because" in interpreter.obstacle()


@pytest.mark.parametrize("path", ["usr/bin/python3", "usr/bin", "usr/lib/python3.11"])
def test_a_python_that_others_can_replace_is_refused(machine, path):
    machine.theirs = {path: "it belongs to user id 1000, not to root"}
    assert interpreter.obstacle() == (
        "the plugin's service would run it as root at every boot, but it belongs to user id 1000, not to root"
    )


def test_the_unit_hides_these_directories():
    text = UNIT.read_text()
    listed = text[text.index("{% for path in ['/etc/cni'") : text.index("if not needed")]
    inaccessible = {path for path in listed.split("'") if path.startswith("/")} - {"/etc/shadow"}
    for setting, directories in (
        ("ProtectHome=yes", {"/home", "/root"}),
        ("PrivateTmp=yes", {"/tmp", "/var/tmp"}),
        ("TemporaryFileSystem=/run:ro {{ kubelet_root }}:ro", {"/run", "/var/lib/kubelet"}),
    ):
        assert f"\n{setting}\n" in text
        inaccessible |= directories
    assert set(directory_names.HIDDEN) == inaccessible
