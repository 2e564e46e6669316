"""tests/machine.py: what a command changed on the machine."""

from __future__ import annotations

import functools
import os
import sys

import pytest
from documented_blocks import ROOT

sys.path.insert(0, str(ROOT / "tests"))

import machine


@pytest.fixture
def root(tmp_path):
    """A machine with other programs."""
    for path in (
        "etc/cni/net.d",
        "opt/browser",
        "run/postgresql",
        "var/lib/kubelet/device-plugins",
        "var/lib/misc",
        "var/run",
    ):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "etc/hosts").write_text("127.0.0.1 localhost\n")
    return tmp_path


def changes(root, change):
    before = machine.state(str(root))
    change(root)
    return [str(change) for change in machine.changes(before, machine.state(str(root)))]


def write(path, text=""):
    def change(root):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)

    return change


def write_and_keep_the_time(root):
    known = os.stat(root / "etc/hosts")
    (root / "etc/hosts").write_text("")
    os.utime(root / "etc/hosts", ns=(known.st_atime_ns, known.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (write("var/run/cdi/a.json"), ["new: /var/run/cdi", "new: /var/run/cdi/a.json"]),
        (write("etc/a/b.service"), ["new: /etc/a", "new: /etc/a/b.service"]),
        (write("etc/hosts"), ["changed: /etc/hosts"]),
        (write_and_keep_the_time, ["changed: /etc/hosts"]),
        (lambda root: (root / "etc/hosts").chmod(0o600), ["changed: /etc/hosts"]),
        (lambda root: (root / "etc").chmod(0o700), ["changed: /etc"]),
        (lambda root: (root / "etc/hosts").unlink(), ["gone: /etc/hosts"]),
        (lambda root: (root / "etc/link").symlink_to("nowhere"), ["new: /etc/link"]),
        (write("opt/a/b"), ["new: /opt/a"]),
        (write("opt/node-devices/a"), ["new: /opt/node-devices", "new: /opt/node-devices/a"]),
        (write("run/a/b"), ["new: /run/a"]),
        (lambda root: (root / "run/postgresql").rmdir(), ["gone: /run/postgresql"]),
        (write("run/node-devices.lock"), ["new: /run/node-devices.lock"]),
        (write("var/lib/a"), ["new: /var/lib/a"]),
        (write("var/lib/node-devices/a/b"), ["new: /var/lib/node-devices%s" % each for each in ("", "/a", "/a/b")]),
        (write("var/lib/kubelet/device-plugins/a.sock"), ["new: /var/lib/kubelet/device-plugins/a.sock"]),
    ],
)
def test_what_no_test_may_change(root, change, says):
    assert changes(root, change) == says


@pytest.mark.parametrize(
    "path",
    [
        "etc/cni/net.d/87-podman.conflist",
        "etc/resolv.conf",
        "opt/browser/a",
        "run/libpod/alive",
        "run/cron.pid",
        "run/xtables.lock",
        "run/postgresql/a.sock",
        "var/lib/misc/a",
        "var/lib/containers/storage/a",
        "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
        "home/a",
    ],
)
def test_what_other_programs_may_change(root, path):
    assert changes(root, write(path)) == []


def test_a_machine_without_these_directories_and_one_whose_files_vanish(tmp_path, monkeypatch):
    assert machine.state(str(tmp_path)) == {}
    monkeypatch.setattr(os, "listdir", lambda path: ["gone"])
    assert list(machine.state(str(tmp_path / "none"))) == ["/opt/gone", "/run/gone", "/var/lib/gone"]


def test_a_long_list_is_cut():
    assert "/19, and 3 more. Use" in machine.complaint("x", [f"new: /{number}" for number in range(23)])


def test_a_command_fails_if_it_changes_the_machine(root, monkeypatch, capsys):
    monkeypatch.setattr(machine, "state", functools.partial(machine.state, str(root)))
    assert machine.main(["true"]) == 0
    assert capsys.readouterr().err == ""
    assert machine.main(["sh", "-c", "exit 3"]) == 3
    assert machine.main(["touch", str(root / "etc/a")]) == 1
    assert f"failed: `touch {root}/etc/a` changed this machine: new: /etc/a. " in capsys.readouterr().err
    assert machine.main([]) == 2
