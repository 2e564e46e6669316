"""What an undoing gives back where somebody else wrote the runtime's file after us, and we wrote it again."""

from __future__ import annotations

import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.action import cdi_runtime
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.decisions import Planning
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import runtimes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.runtimes.cdi import Change, Checked

DUMP = 'version = 2\n[plugins]\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\ncdi_spec_dirs = []\n'
HEAD = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n'
FIRST = HEAD + 'sandbox_image = "first"\n'
OURS = HEAD + 'enable_cdi = true\ncdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]\nsandbox_image = "first"\n'


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


class Node:
    """One file, one ledger; writes are what the module would have the transaction do."""

    def __init__(self, directory):
        self.file = directory / "config.toml"
        self.path = str(self.file)
        self.entries = {}
        self.file.write_text(FIRST)
        self.file.chmod(0o640)

    def make_effective(self, after):
        """As the role does it when it finds CDI off."""
        action = cdi_runtime.ActionModule.__new__(cdi_runtime.ActionModule)
        before = self.file.read_text() if self.file.exists() else None
        config = {"path": self.path, "real_path": self.path, "content": before, "effective": DUMP}
        action._runtime = {"socket": "/s", "unit": "x", "name": "containerd", "executable": "/c", "version": "1.7.24"}
        action._runtime["config"] = {**config, "exists": before is not None, "files": {}}
        action._command, action._task = "plugin", types.SimpleNamespace(check_mode=False)
        action._vars, action._node, action._max_parallel_restarts = {}, {"ledger": self.entries}, 1
        action._check = lambda text, beside, drop_in: Checked(DUMP, "/staged")
        given = {}
        action._on_node = lambda **arguments: given.update(arguments) or {"seconds": 0}
        action._adapter = runtimes.of(action._runtime)
        action._adapter.plan = lambda check: Change(self.path, before, after)
        action._require_command = lambda: None
        action._make_effective()
        planning = Planning(self.entries, "cdi_runtime", undo=False)
        planning.add(**given["files"][0])
        self.entries.update(planning.entries)
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
