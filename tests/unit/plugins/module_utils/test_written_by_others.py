"""What an undoing gives back where somebody else wrote the runtime's file after us, and we wrote it again."""

from __future__ import annotations

import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import cdi_runtime
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as nodes
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import launch
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.plan import Places

from node_device_plugin.runtime import configuration
from node_device_plugin.runtime.configuration.cdi import Change

DUMP = 'version = 2\n[plugins]\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\ncdi_spec_dirs = []\n'
HEAD = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
FIRST = HEAD + 'sandbox_image = "first"\n'
OURS = HEAD + 'enable_cdi = true\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\nsandbox_image = "first"\n'


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(tmp_path, monkeypatch)


class Node:
    """One file, one ledger; writes are what the role would have the transaction do."""

    def __init__(self, directory, monkeypatch):
        self.file = directory / "config.toml"
        self.path = str(self.file)
        self.places = Places(str(directory / "ours"))
        monkeypatch.setattr(cdi_runtime, "PLACES", self.places)
        monkeypatch.setattr(cdi_runtime, "written_since", lambda pid, paths: [])
        monkeypatch.setattr(launch, "carry_out", self._carry_out)
        self._monkeypatch = monkeypatch
        self.file.write_text(FIRST)
        self.file.chmod(0o640)

    @property
    def entries(self):
        return ledgers.Ledger(self.places.directory).entries

    def _carry_out(self, _places, plan):
        with ledgers.Ledger(self.places.directory) as ledger:
            ledger.entries.update(plan.entries)
            ledger.save()
        return launch.Outcome("x", None, 0)

    def make_effective(self, after):
        """As the role does it when it finds CDI off."""
        before = self.file.read_text() if self.file.exists() else None
        config = {"path": self.path, "real_path": self.path, "content": before, "effective": DUMP}
        runtime = {"socket": "/s", "pid": 7, "unit": "x", "name": "containerd", "executable": "/c", "version": "1.7.24"}
        runtime["config"] = {**config, "exists": before is not None, "files": {}}
        adapter = configuration.Containerd(runtime)
        adapter.plan = lambda: Change(self.path, before, after)
        self._monkeypatch.setattr(configuration, "of", lambda _runtime: adapter)
        params = {**dict.fromkeys(cdi_runtime.PARAMS), "command": "/bin/true", "may_restart": True}
        module = types.SimpleNamespace(check_mode=False, selinux_enabled=lambda: False)
        answer = nodes.Node(module, facts={"runtime": runtime}).converged(cdi_runtime.converge, params)
        assert answer["changed"], answer
        self.file.write_text(after)

    def before(self):
        """What an undoing gives back: text and mode."""
        before = ledgers.stored(self.entries[self.path]["before"])
        return before and (before["content"].decode(), before["mode"])


def test_what_was_there_first_stays_while_nobody_else_writes(node):
    node.make_effective(OURS)
    node.make_effective(OURS + "# of a later release\n")
    assert node.before() == (FIRST, 0o640)


@pytest.mark.parametrize(
    ("theirs", "original"),
    [
        # A file of their own.
        (HEAD + 'sandbox_image = "theirs"\n', HEAD + 'sandbox_image = "theirs"\n'),
        # Ours, changed: our keys go, what they wrote stays.
        (
            OURS.replace("first", "theirs").replace(', "/var/run/cdi"', ""),
            HEAD + 'cdi_spec_dirs = ["/etc/cdi"]\nsandbox_image = "theirs"\n',
        ),
        (
            OURS.replace("true", "false # no") + "# theirs\n",
            HEAD + 'enable_cdi = false # no\nsandbox_image = "first"\n# theirs\n',
        ),
        # Of another version: there is nothing of ours in it.
        ("version = 1\n", "version = 1\n"),
    ],
)
def test_what_somebody_wrote_last_is_given_back_without_our_keys(node, theirs, original):
    node.make_effective(OURS)
    node.file.write_text(theirs)
    node.file.chmod(0o600)
    # The same text as before: what is noted is what the file held, not what we write.
    node.make_effective(OURS)
    assert node.before() == (original, 0o600)


def test_a_file_that_somebody_removed_is_not_given_back(node):
    node.make_effective(OURS)
    node.file.unlink()
    node.make_effective(OURS)
    assert node.before() is None
