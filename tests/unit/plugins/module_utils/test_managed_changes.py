"""What wanted files, links and directories need: decided from states alone."""

from __future__ import annotations

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import managed
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import LedgerConflict

UID, GID = managed.OURS.values()
FILE = {"kind": "file", "path": "/x", "content": b"a", "mode": 0o644}
LINK = {"kind": "link", "path": "/x", "target": "a"}
DIRECTORY = {"kind": "directory", "path": "/x", "mode": 0o755}
OF_FILE = {"kind": "file", "content": b"a", "mode": 0o644, "uid": UID, "gid": GID}
OF_DIRECTORY = {"kind": "directory", "mode": 0o755, "uid": UID, "gid": GID}
MINE = {"owner": "us"}
ACCESS, CONTENT = False, True


@pytest.mark.parametrize(
    ("item", "state", "entry", "need"),
    [
        (FILE, None, None, CONTENT),
        (FILE, OF_FILE, None, None),
        (FILE, {**OF_FILE, "content": b"b"}, MINE, CONTENT),
        (FILE, {**OF_FILE, "content": b"b", "mode": 0o600}, MINE, CONTENT),
        (FILE, {**OF_FILE, "mode": 0o600}, MINE, ACCESS),
        (FILE, {**OF_FILE, "uid": UID + 1}, MINE, ACCESS),
        (FILE, {**OF_FILE, "gid": GID + 1}, None, ACCESS),
        (FILE, {"kind": "link", "target": "a"}, None, CONTENT),
        (LINK, {"kind": "link", "target": "a"}, MINE, None),
        (LINK, {"kind": "link", "target": "b"}, MINE, CONTENT),
        (LINK, OF_FILE, None, CONTENT),
        (DIRECTORY, None, None, CONTENT),
        # Directories of others keep their mode.
        (DIRECTORY, {**OF_DIRECTORY, "mode": 0o700}, None, None),
        (DIRECTORY, {**OF_DIRECTORY, "mode": 0o700}, {"owners": ["us"]}, ACCESS),
        (DIRECTORY, {**OF_DIRECTORY, "uid": UID + 1}, {"owners": []}, ACCESS),
        (DIRECTORY, OF_DIRECTORY, {"owners": []}, None),
    ],
)
def test_what_an_item_needs(item, state, entry, need):
    change = managed.change_of(item, state, "us", entry)
    assert (change and change.is_content) == need
    if change:
        after = {**item, "uid": UID, "gid": GID} if "mode" in item else item
        assert (change.path, change.after, change.before) == ("/x", after, state)
        assert change.makes_directory == (item is DIRECTORY and state is None)


@pytest.mark.parametrize(
    ("item", "state", "entry", "why"),
    [
        (FILE, None, {"owner": "other"}, "/x belongs to other, so us does not write it"),
        (FILE, OF_DIRECTORY, None, "/x is a directory, but a file must be there: move it away"),
        (LINK, {"kind": "special file"}, None, "/x is a special file, but a link must be there: move it away"),
        (DIRECTORY, OF_FILE, None, "/x is a file, but a directory must be there: move it away"),
        (
            DIRECTORY,
            {"kind": "link", "target": "a"},
            {"owners": []},
            "/x is a link, but a directory must be there",
        ),
    ],
)
def test_what_must_not_be_written(item, state, entry, why):
    with pytest.raises(LedgerConflict) as refused:
        managed.change_of(item, state, "us", entry)
    assert str(refused.value).startswith(why)


def test_the_entries_keep_the_first_original():
    right = {**FILE, "path": "/right"}
    ours = {**FILE, "path": "/node-device-x"}
    wanted = [DIRECTORY, FILE, right, ours, {**LINK, "path": "/l"}]
    changes = [
        managed.Change({**OF_FILE, "content": b"b"}, FILE, CONTENT),
        managed.Change(None, wanted[-1], CONTENT),
    ]
    known = {"/x": {"before": {"kind": "link", "target": "first"}}}
    entries = managed.entries_of(wanted, changes, "us", known)
    # Somebody else's file that is right by chance stays theirs; one with our name is of a lost ledger.
    assert sorted(entries) == ["/l", "/node-device-x", "/x"]
    assert entries["/x"]["before"] == {"kind": "link", "target": "first"}
    assert entries["/node-device-x"]["before"] is None
    assert entries["/l"] == {"kind": "link", "owner": "us", "before": None, "target": "a"}
    assert entries["/x"]["mode"] == 0o644
    assert managed.entries_of([FILE], changes[:1], "us", {})["/x"]["before"]["content"] == "Yg=="
