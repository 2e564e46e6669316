from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support import node_process


class Proc:
    """A directory that shows some real processes, below a first process that has this test's namespaces.

    The first process of the machine on which tests run may be hidden.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        (path / "1/ns").mkdir(parents=True)
        for kind in ("user", "pid", "mnt"):
            (path / "1/ns" / kind).symlink_to(os.readlink(f"/proc/self/ns/{kind}"))

    def show(self, pid: int) -> int:
        (self.path / str(pid)).symlink_to(f"/proc/{pid}")
        return pid


@pytest.fixture
def proc(tmp_path, monkeypatch):
    shown = Proc(tmp_path / "proc")
    monkeypatch.setattr(node_process, "PROC", str(shown.path))
    # No systemd runs here; a test in which one does says what it answers.
    monkeypatch.setattr(node_process, "properties", lambda unit, *names: {})
    return shown


@pytest.fixture(autouse=True)
def same_machine(monkeypatch):
    """Every host is its node's machine, because the nodes of most tests are no machines."""
    try:
        from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight
        from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import (
            same_machine as same_machines,
        )
    except ModuleNotFoundError:
        # The container with the oldest Python has no Ansible, and its tests use no preflight.
        return
    monkeypatch.setattr(preflight.Preflight, "_other_machine", lambda *_arguments: same_machines.Checked())


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch, tmp_path):
    """Each test is a run of Ansible of its own."""
    try:
        from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import remembered
    except ModuleNotFoundError:
        return
    monkeypatch.setattr(remembered, "constants", types.SimpleNamespace(DEFAULT_LOCAL_TMP=str(tmp_path)))


@pytest.fixture
def anybodys():
    """A directory that everybody can write."""
    with contextlib.ExitStack() as stack:
        path = pathlib.Path(tempfile.mkdtemp(prefix="node-process-"))
        stack.callback(shutil.rmtree, path)
        path.chmod(0o777)
        yield path


@pytest.fixture
def roots():
    """A directory that is root's alone, with all directories above."""
    with contextlib.ExitStack() as stack:
        path = pathlib.Path(tempfile.mkdtemp(prefix="node-process-", dir="/var/cache"))
        stack.callback(shutil.rmtree, path)
        path.chmod(0o755)
        yield path
