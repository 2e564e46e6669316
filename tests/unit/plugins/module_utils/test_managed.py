"""managed_files on real folders: atomic, exact in check mode, and undone to the byte."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import threading
import time
import types

import crash_states
import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, LedgerConflict
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import Managed
from ansible_collections.nodedevices.kubernetes.plugins.modules import managed_files


@pytest.fixture
def node(tmp_path):
    """A folder that plays the node's root, with a ledger."""
    root = tmp_path / "root"
    root.mkdir()
    return Node(root, tmp_path / "ledger")


class Node:
    def __init__(self, root: pathlib.Path, ledger_directory: pathlib.Path) -> None:
        self.root = root
        self.ledger = str(ledger_directory)

    def path(self, name):
        return str(self.root / name)

    def file(self, name, content, mode=0o644):
        return {"path": self.path(name), "kind": "file", "content": content.encode(), "mode": mode}

    def link(self, name, target):
        return {"path": self.path(name), "kind": "link", "target": target}

    def directory(self, name, mode=0o755):
        return {"path": self.path(name), "kind": "directory", "mode": mode}

    def converge(self, *wanted, owner="role", check=False, pending=None, **rest):
        book = Ledger(self.ledger)
        with contextlib.nullcontext() if check else book:
            return Managed(book, owner, pending=pending).converge(list(wanted), **rest)

    def entries(self):
        return Ledger(self.ledger).entries

    def snapshot(self):
        """Everything below the root: mode, and content or target."""
        return {
            str(path.relative_to(self.root)): (
                oct(path.lstat().st_mode),
                os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None,
            )
            for path in self.root.rglob("*")
        }


def everything(node):
    return [
        node.file("etc/cdi/a.json", "{}"),
        node.file("etc/app/secret", "x", 0o600),
        node.directory("var/sockets", 0o750),
        node.link("bin/tool", "../etc/app/secret"),
    ]


def test_writes_then_changes_nothing_then_leaves_nothing(node):
    first = node.converge(*everything(node))
    assert first.changed
    snapshot = node.snapshot()
    assert snapshot["etc/app/secret"] == ("0o100600", b"x")
    assert snapshot["var/sockets"][0] == "0o40750"
    assert snapshot["bin/tool"][1] == "../etc/app/secret"

    second = node.converge(*everything(node))
    assert (second.changed, second.diffs) == (False, [])
    assert node.snapshot() == snapshot

    assert node.converge().changed
    assert node.snapshot() == {}
    assert not os.path.exists(node.ledger)


@pytest.mark.parametrize("umask", [0o000, 0o027, 0o077])
def test_the_umask_of_the_connection_does_not_count(node, umask):
    """A hardened sudo has 077."""
    node.ledger += "/below/another"
    was = os.umask(umask)
    try:
        node.converge(*everything(node))
    finally:
        os.umask(was)
    modes = {name: mode for name, (mode, _content) in node.snapshot().items()}
    directories = {name: modes.pop(name) for name in ("bin", "etc", "etc/app", "etc/cdi", "var")}
    assert set(directories.values()) == {"0o40755"}
    assert modes == {
        "bin/tool": "0o120777",
        "etc/app/secret": "0o100600",
        "etc/cdi/a.json": "0o100644",
        "var/sockets": "0o40750",
    }
    above = [pathlib.Path(node.ledger), *list(pathlib.Path(node.ledger).parents)[:2]]
    assert [oct(path.stat().st_mode) for path in above] == ["0o40700", "0o40755", "0o40755"]
    assert oct((above[0] / "ledger.json").stat().st_mode) == "0o100600"


def test_check_mode_tells_what_would_be_done_and_does_nothing(node):
    foretold = node.converge(*everything(node), check=True)
    assert (node.snapshot(), os.path.exists(node.ledger)) == ({}, False)
    done = node.converge(*everything(node))
    assert (foretold.written, foretold.diffs) == (done.written, done.diffs)

    snapshot = node.snapshot()
    foretold = node.converge(check=True)
    assert node.snapshot() == snapshot
    done = node.converge()
    assert (foretold.removed, foretold.diffs) == (done.removed, done.diffs)


def test_a_file_is_its_writers_alone_until_it_has_its_mode(node, monkeypatch):
    """It may have a secret, and its mode and owner come after its content."""
    chmod, modes = os.fchmod, []

    def changed(descriptor, mode):
        modes.append((oct(os.fstat(descriptor).st_mode), os.fstat(descriptor).st_size))
        chmod(descriptor, mode)

    umask = os.umask(0)
    monkeypatch.setattr(os, "fchmod", changed)
    try:
        node.converge(node.file("a", "secret", 0o640))
    finally:
        os.umask(umask)
    assert ("0o100600", len("secret")) in modes
    assert {mode for mode, _size in modes} == {"0o100600"}
    assert node.snapshot()["a"] == ("0o100640", b"secret")


def test_no_file_is_half_there_and_none_is_left_over(node):
    node.converge(node.file("a", "1"))
    inode = os.stat(node.path("a")).st_ino
    node.converge(node.file("a", "2"))
    assert os.stat(node.path("a")).st_ino != inode
    assert os.listdir(node.root) == ["a"]


@pytest.mark.parametrize("link", [False, True])
def test_puts_back_what_it_replaced(node, link):
    if link:
        os.symlink("elsewhere", node.path("a"))
    else:
        (node.root / "a").write_text("theirs")
        (node.root / "a").chmod(0o640)
    before = node.snapshot()
    node.converge(node.file("a", "ours"))
    node.converge(node.file("a", "ours, later"))
    assert (node.root / "a").read_text() == "ours, later"
    node.converge()
    assert node.snapshot() == before


def test_puts_back_extended_attributes(node):
    path = node.root / "a"
    path.write_text("before")
    os.setxattr(path, "user.note", b"\x00 keep")
    node.converge(node.file("a", "ours"))
    assert os.listxattr(path) == []
    os.setxattr(path, "user.note", b"of somebody, and gone with our file")
    assert node.converge().changed
    assert path.read_text() == "before"
    assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == {"user.note": b"\x00 keep"}


def test_what_was_right_already_is_not_ours(node):
    (node.root / "a").write_text("same")
    (node.root / "a").chmod(0o644)
    report = node.converge(node.file("a", "same"), node.directory(""))
    assert not report.changed
    assert node.entries() == {}
    node.converge()
    assert (node.root / "a").read_text() == "same"


def test_a_ledger_that_was_lost_knows_our_names_again(node):
    ours = [node.file("etc/node-device-plugin/config.yaml", "x"), node.link("bin/node-device-plugin", "x")]
    node.converge(*ours, node.file("theirs", "same"))
    os.unlink(pathlib.Path(node.ledger) / "ledger.json")
    (node.root / "bin/node-device-plugin").unlink()
    (node.root / "bin/node-device-plugin").symlink_to("of somebody")
    report = node.converge(*ours, node.file("theirs", "same"))
    assert report.written == [node.path("bin/node-device-plugin")]
    report = node.converge()
    assert report.removed == [node.path("bin/node-device-plugin"), node.path("etc/node-device-plugin/config.yaml")]
    # Folders and what has another name may have been there before.
    assert set(node.snapshot()) == {"etc", "etc/node-device-plugin", "bin", "bin/node-device-plugin", "theirs"}
    assert os.readlink(node.path("bin/node-device-plugin")) == "of somebody"


def test_takes_away_what_is_no_longer_wanted(node):
    node.converge(node.file("d/a", "1"), node.file("d/b", "2"), node.file("e/c", "3"))
    report = node.converge(node.file("d/a", "1"))
    assert report.removed == [node.path("d/b"), node.path("e/c"), node.path("e")]
    assert set(node.snapshot()) == {"d", "d/a"}


def test_keeps_what_it_is_told_to(node):
    node.converge(node.file("d/a", "1"))
    report = node.converge(keep=[node.path("d/a")])
    assert not report.changed
    assert set(node.snapshot()) == {"d", "d/a"}
    node.converge()
    assert node.snapshot() == {}


def test_a_change_by_someone_else_is_fixed_while_wanted(node):
    node.converge(node.file("a", "ours"))
    (node.root / "a").write_text("theirs")
    report = node.converge(node.file("a", "ours"))
    assert report.diffs[0]["before"] == "theirs"
    assert (node.root / "a").read_text() == "ours"
    node.converge()
    assert node.snapshot() == {}


def test_a_mode_that_somebody_changed_is_shown_and_fixed(node):
    node.converge(node.file("a", "ours"))
    (node.root / "a").chmod(0o600)
    (diff,) = node.converge(node.file("a", "ours")).diffs
    assert (diff["before"], diff["after"]) == ("mode 0600\n", "mode 0644\n")
    assert oct((node.root / "a").stat().st_mode) == "0o100644"


def test_whoever_reads_a_file_is_told_of_another_content_alone(node):
    first = node.converge(node.file("a", "ours"), node.file("d/b", "ours"), node.link("c", "a"))
    assert sorted(first.contents) == sorted(first.written)
    path = node.root / "a"
    os.utime(path, (1e9, 1e9))
    inode = path.stat().st_ino
    path.chmod(0o666)
    report = node.converge(node.file("a", "ours"), node.file("d/b", "ours, later"), node.link("c", "d"))
    assert report.written == [node.path(name) for name in ("a", "d/b", "c")]
    assert report.contents == [node.path(name) for name in ("d/b", "c")]
    # Whoever has the old one open for writing, has nothing of ours; and for a service that goes by it, it is no newer.
    assert path.stat().st_ino != inode
    assert path.stat().st_mtime == 1e9


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_an_owner_that_somebody_changed_is_shown_and_fixed(node):
    everything_there = everything(node)
    node.converge(*everything_there)
    # Folders too: whoever owns one may replace what is in it, whatever that file's owner.
    given = [node.path(name) for name in ("etc/cdi/a.json", "etc/app", "var/sockets")]
    for path in given:
        os.chown(path, 65534, 65533)
    foretold = node.converge(*everything_there, check=True)
    assert sorted(foretold.written) == sorted(given)
    assert {(diff["before"], diff["after"]) for diff in foretold.diffs} == {
        ("mode 0644, owner 65534:65533\n", "mode 0644, owner 0:0\n"),
        ("mode 0755, owner 65534:65533\n", "mode 0755, owner 0:0\n"),
        ("mode 0750, owner 65534:65533\n", "mode 0750, owner 0:0\n"),
    }
    assert node.converge(*everything_there).diffs == foretold.diffs
    assert {(os.stat(path).st_uid, os.stat(path).st_gid) for path in given} == {(0, 0)}
    assert not node.converge(*everything_there).changed
    node.converge()
    assert node.snapshot() == {}


def test_a_directory_of_ours_that_everybody_may_write_to_is_fixed(node):
    node.converge(*everything(node))
    (node.root / "etc" / "app").chmod(0o777)
    (node.root / "theirs").mkdir(mode=0o700)
    report = node.converge(*everything(node), node.file("theirs/a", "1"))
    assert node.path("etc/app") in report.written
    assert ("mode 0777\n", "mode 0755\n") in [(diff["before"], diff["after"]) for diff in report.diffs]
    snapshot = node.snapshot()
    assert (snapshot["etc/app"][0], snapshot["theirs"][0]) == ("0o40755", "0o40700")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to others")
def test_a_directory_that_passes_its_group_on_is_no_drift(node):
    os.chown(node.root, 0, 65534)
    node.root.chmod(0o2755)
    node.converge(*everything(node))
    assert not node.converge(*everything(node)).changed


def test_a_directory_that_cannot_be_removed_stays_in_the_ledger_until_it_can_be(node, monkeypatch):
    """With the directories above it, which it keeps: the next removal takes all of them away."""
    before = node.snapshot()
    node.converge(node.file("opt/app/versions/a", "x"))
    busy, rmdir = node.path("opt/app/versions"), os.rmdir

    def refuse(path):
        if path == busy:
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        rmdir(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refuse)
        for _run in range(2):
            report = node.converge()
            why = "it is empty but cannot be removed (Device or resource busy): fix that, then run again"
            assert report.kept == [{"path": busy, "reason": why}]
            assert busy not in report.removed
            assert sorted(node.entries()) == [node.path("opt"), node.path("opt/app"), busy]
    report = node.converge()
    assert report.removed == [busy, node.path("opt/app"), node.path("opt")]
    assert (node.snapshot(), node.entries(), report.kept) == (before, {}, [])


def test_a_directory_that_somebody_moved_behind_a_link_stays_so(node):
    node.converge(*everything(node))
    os.rename(node.path("etc/app"), node.path("elsewhere"))
    os.symlink("../elsewhere", node.path("etc/app"))
    assert not node.converge(*everything(node)).changed


def test_what_someone_else_changed_since_the_last_run_is_told_apart(node):
    assert node.converge(*everything(node)).edited == []
    (node.root / "etc/cdi/a.json").write_text("theirs")
    (node.root / "etc/app/secret").chmod(0o644)
    (node.root / "var/sockets").rmdir()
    (node.root / "bin/tool").unlink()
    (node.root / "bin/tool").symlink_to("elsewhere")
    changed = ["bin/tool", "etc/app/secret", "etc/cdi/a.json", "var/sockets"]
    assert sorted(node.converge(*everything(node), check=True).edited) == [node.path(name) for name in changed]
    # What is wanted otherwise, too, counts as that.
    wanted = [
        node.file("etc/cdi/a.json", "[]"),
        node.file("etc/app/secret", "x", 0o640),
        node.link("bin/tool", "other"),
        node.directory("var/new"),
    ]
    report = node.converge(*wanted)
    assert (sorted(report.written), report.edited) == ([item["path"] for item in sorted(wanted, key=str)], [])


def test_a_change_by_someone_else_stays_when_ours_goes(node):
    node.converge(node.file("d/a", "ours"), node.file("d/b", "ours"))
    (node.root / "d" / "a").write_text("theirs")
    (node.root / "d" / "b").unlink()
    report = node.converge()
    assert report.kept == [{"path": node.path("d/a"), "reason": "it was changed by someone else"}]
    assert set(node.snapshot()) == {"d", "d/a"}
    assert node.entries() == {}


@pytest.mark.parametrize("check", [True, False])
def test_what_stays_for_that_is_said_of_every_role(node, monkeypatch, check):
    ended = []
    module = types.SimpleNamespace(
        params={"owner": "role", "files": [], "code": None},
        check_mode=check,
        exit_json=lambda **answer: ended.append(answer),
    )
    monkeypatch.setattr(node_module, "AnsibleModule", lambda **_arguments: module)
    monkeypatch.setattr(node_module, "Ledger", lambda: Ledger(node.ledger))
    node.converge(node.file("a", "ours"), node.file("b", "ours"))
    (node.root / "a").write_text("theirs")
    managed_files.main()
    (answer,) = ended
    assert answer["warnings"] == [f"kept: {node.path('a')}, it was changed by someone else"]
    assert (answer["removed"], [kept["path"] for kept in answer["kept"]]) == ([node.path("b")], [node.path("a")])


def test_directories_stay_while_anyone_needs_them(node):
    node.converge(node.file("d/a", "1"), owner="one")
    node.converge(node.file("d/b", "2"), owner="two")
    node.converge(owner="one")
    assert set(node.snapshot()) == {"d", "d/b"}
    (node.root / "d" / "foreign").write_text("")
    node.converge(owner="two")
    assert set(node.snapshot()) == {"d", "d/foreign"}
    assert node.entries() == {}


def test_a_refused_file_changes_nothing(node):
    node.converge(node.file("a", "good"), node.file("b", "1"))
    before, entries = node.snapshot(), node.entries()

    def validate(item, staged):
        assert item["path"] != node.path("a") or pathlib.Path(staged).read_bytes() == b"bad"
        if item["path"] == node.path("a"):
            raise LedgerConflict("no")

    with pytest.raises(LedgerConflict, match="no"):
        node.converge(node.file("b", "2"), node.file("a", "bad"), node.file("new/c", ""), validate=validate)
    assert (node.snapshot(), node.entries()) == (before, entries)


def test_another_owners_file_is_refused(node):
    node.converge(node.file("a", "1"), owner="one")
    with pytest.raises(LedgerConflict, match="belongs to one, so two does not write it"):
        node.converge(node.file("a", "2"), owner="two")


def test_a_directory_in_the_way_is_refused(node):
    (node.root / "a").mkdir()
    with pytest.raises(LedgerConflict, match="is a directory, but a file must be there"):
        node.converge(node.file("a", "1"))


def test_a_power_cut_after_the_ledger_is_harmless(node, monkeypatch):
    (node.root / "a").write_text("theirs")
    before = node.snapshot()
    put_in_place = ledger.put_in_place

    def cut(staged, path):
        if path == node.path("a"):
            raise KeyboardInterrupt
        put_in_place(staged, path)

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "put_in_place", cut)
        with pytest.raises(KeyboardInterrupt):
            node.converge(node.file("a", "ours"))
    assert node.path("a") in node.entries()
    assert [path.name for path in node.root.glob(".*")] == [".a.node-devices-new"]
    assert not node.converge().changed
    assert node.snapshot() == before


@pytest.mark.parametrize("removal", [False, True])
def test_after_a_power_cut_at_any_time_a_run_completes_and_a_removal_restores(node, tmp_path, removal):
    (node.root / "etc").mkdir()
    for name in ("a", "etc/b"):
        (node.root / name).write_text("theirs")
    os.symlink("elsewhere", node.path("l"))
    before = node.snapshot()
    wanted = [node.file("a", "ours"), node.file("etc/b", "ours"), node.link("l", "a"), node.file("new/c/d", "ours")]
    if removal:
        node.converge(*wanted)
    states = crash_states.recorded(tmp_path, lambda: node.converge(*([] if removal else wanted)))
    for state in states:
        crash_states.put(state, tmp_path)
        node.converge(*wanted)
        assert not node.converge(*wanted).changed
        node.converge()
        assert node.snapshot() == before
        assert node.entries() == {}
        assert not os.path.exists(node.ledger)


def test_what_a_power_cut_left_beside_a_file_goes_when_that_is_written(node):
    (node.root / ".a.node-devices-new").write_text("half")
    node.converge(node.file("a", "ours"))
    assert set(node.snapshot()) == {"a"}


def test_what_others_stage_beside_a_file_is_theirs(node):
    (node.root / ".a.k2x9.tmp").write_text("of somebody")
    node.converge(node.file("a", "ours"), node.link("b", "a"))
    node.converge()
    assert set(node.snapshot()) == {".a.k2x9.tmp"}


@pytest.mark.parametrize("check", [True, False])
def test_what_was_there_before_is_not_lost_where_somebody_changed_the_file_since(node, check):
    for name in ("a", "b", "c"):
        (node.root / name).write_text("before us")
    os.symlink("elsewhere", node.path("d"))
    (node.root / "a").chmod(0o640)
    node.converge(*(node.file(name, "ours") for name in ("a", "b", "c")), node.link("d", "ours"))
    (node.root / "a").write_text("changed")
    (node.root / "b").unlink()
    (node.root / "d").unlink()
    os.symlink("changed", node.path("d"))
    report = node.converge(check=check)
    copies = [node.path(name) + ".node-devices-before" for name in ("a", "b", "d")]
    assert report.written == copies
    assert [kept["reason"] for kept in report.kept] == [
        f"it was {what} by someone else; the original is in {copy}"
        for what, copy in zip(("changed", "removed", "changed"), copies, strict=True)
    ]
    if not check:
        file = ("0o100640", b"before us")
        assert node.snapshot() == {
            "a": ("0o100644", b"changed"),
            "a.node-devices-before": file,
            "b.node-devices-before": ("0o100644", b"before us"),
            "c": ("0o100644", b"before us"),
            "d": ("0o120777", "changed"),
            "d.node-devices-before": ("0o120777", "elsewhere"),
        }
        assert not node.converge().changed


def test_of_three_that_want_the_ledger_at_once_none_loses_its_entry(node):
    """The first removes the directory as it leaves, while the second waits for it."""
    third_is_in = threading.Event()

    def enter(name, wait):
        with Ledger(node.ledger) as book:
            if name == "third":
                third_is_in.set()
            elif wait:
                third = threading.Thread(target=enter, args=("third", False))
                others.append(third)
                third.start()
                # Long enough for it to come in, if it can.
                third_is_in.wait(0.5)
            book.entries["/" + name] = {"kind": "file", "owner": name}
            book.save()

    others = []
    first = Ledger(node.ledger)
    with first:
        second = threading.Thread(target=enter, args=("second", True))
        second.start()
        # It is in the directory once it waits for its lock.
        while not any(link == node.ledger for link in _open_files(but=first._lock)):
            time.sleep(0.01)
    second.join()
    for thread in others:
        thread.join()
    assert set(node.entries()) == {"/second", "/third"}


def _open_files(but):
    """What this process has open, apart from one descriptor."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) != but:
                yield os.readlink("/proc/self/fd/" + name)


def test_the_ledger_is_private_and_says_who_and_what(node):
    node.converge(node.file("a", "1"), owner="cdi_specs")
    path = pathlib.Path(node.ledger) / "ledger.json"
    assert oct(path.stat().st_mode) == "0o100600"
    assert json.loads(path.read_text())["entries"][node.path("a")]["owner"] == "cdi_specs"


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "",
        "\0" * 100,
        "[]",
        '{"format": 1}',
        '{"format": 1, "entries": []}',
        '{"format": 1, "entries": {"/a": "b"}}',
        '{"format": 1, "entries": {"/a": {"kind": "file"}}}',
        '{"format": 1, "entries": {"/a": {"kind": "directory", "owners": "b"}}}',
        '{"entries": {}}',
    ],
)
def test_a_damaged_ledger_is_refused(node, content):
    os.mkdir(node.ledger)
    (pathlib.Path(node.ledger) / "ledger.json").write_text(content)
    with pytest.raises(LedgerConflict, match="is damaged"):
        node.converge(node.file("a", "1"))
    assert node.snapshot() == {}


def test_without_its_damaged_ledger_a_node_recognises_its_files(node):
    """The message's advice: remove the ledger and run again."""
    node.converge(node.file("a", "1"))
    path = pathlib.Path(node.ledger) / "ledger.json"
    path.write_text("{")
    with pytest.raises(LedgerConflict, match="Without a backup, remove it and run site") as refused:
        node.converge(node.file("a", "2"))
    assert str(refused.value).startswith(f"{path} is damaged")
    path.unlink()
    assert node.converge(node.file("a", "2")).written == [node.path("a")]
    assert node.snapshot()["a"][1] == b"2"
    node.converge()
    assert not path.exists()


def test_a_full_disk_names_the_file(node, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        ledger.write_file(node.path("a"), b"x", 0o644)
    assert caught.value.filename == node.path("a")
    assert node.snapshot() == {}


def test_a_check_of_two_tasks_says_what_each_of_them_does(node):
    """What the first one would have written is there for the second one: neither says the other's."""
    node.converge(node.file("cdi/a.json", "a, held"), node.file("cdi/b.json", "b"))
    adding = [node.file("cdi/a.json", "a2, held"), node.file("cdi/b.json", "b"), node.file("cdi/c.json", "c")]
    removing = [node.file("cdi/a.json", "a2"), node.file("cdi/c.json", "c")]
    written = {item["path"]: item["content"] for item in adding}
    foretold = [node.converge(*adding, check=True), node.converge(*removing, check=True, pending=written)]
    done = [node.converge(*adding), node.converge(*removing, pending={"/none": b""})]
    assert [report.diffs for report in foretold] == [report.diffs for report in done]
    assert [(report.written, report.removed) for report in foretold] == [
        (report.written, report.removed) for report in done
    ]
    assert [len(report.diffs) for report in done] == [2, 2]


def test_a_real_run_counts_no_file_as_written_before(node):
    file = node.file("a", "1")
    assert node.converge(file, pending={file["path"]: b"1"}).written == [file["path"]]
    assert node.snapshot()["a"] == ("0o100644", b"1")


def test_new_directories_are_reported_last_and_the_ledgers_own_never(node):
    files = [node.file("etc/app/b", "1"), node.file("etc/a", "1")]
    in_ledger = {"path": f"{node.ledger}/code/x", "kind": "file", "content": b"", "mode": 0o600}
    order = [*(file["path"] for file in [*files, in_ledger]), node.path("etc"), node.path("etc/app")]
    for check in (True, False):
        assert node.converge(*files, in_ledger, check=check).written == [*order, f"{node.ledger}/code"]


def test_a_directory_of_ours_is_fixed_even_around_a_file_of_an_earlier_task(node):
    file = node.file("etc/a", "1")
    node.converge(file)
    os.chmod(node.path("etc"), 0o700)
    pending = {file["path"]: file["content"]}
    assert node.converge(file, check=True, pending=pending).written == [node.path("etc")]


def test_a_check_knows_of_the_directory_that_an_earlier_task_makes(node):
    adding = [node.file("cdi/a.json", "a, held")]
    foretold = node.converge(
        node.file("cdi/a.json", "a"), check=True, pending={item["path"]: item["content"] for item in adding}
    )
    assert foretold.written == [node.path("cdi/a.json")]


def test_a_ledger_without_room_leaves_no_file_beside_those_that_were_to_be_written(node, monkeypatch):
    node.converge(node.file("a", "1"))
    before = node.snapshot()
    fsync = os.fsync

    def full(descriptor):
        if os.readlink("/proc/self/fd/%d" % descriptor).startswith(node.ledger):
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: '.*/ledger.json'"):
            node.converge(node.file("a", "2"))
    assert node.snapshot() == before
    assert node.converge(node.file("a", "2")).changed
