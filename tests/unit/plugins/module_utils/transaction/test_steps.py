"""A transaction's steps in this very process: what each kind of end leaves on the node. No process is killed here."""

from __future__ import annotations

import errno
import os

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, sentence
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import launch, program, runtime
from transaction_node import DROP_IN, NEW, OLD, PROBLEM, VALUE, Node


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path / "node")


def carry_out(node, plan):
    """Gives its Outcome, which nobody has to read any more then."""
    with node.commands():
        program.run(node.places, launch._prepared(node.places, plan))
        outcome = launch._outcome(node.places)
        assert launch.settle(node.places) == outcome
    return outcome


def by_another_hand(node, monkeypatch, do):
    """Have somebody do it right before the runtime is restarted for the first time."""
    restart, once = runtime.Runtime.restart, iter([True])

    def restarted(self):
        if next(once, False):
            do()
        restart(self)

    monkeypatch.setattr(runtime.Runtime, "restart", restarted)


def test_it_is_done_and_taken_back_with_all_that_it_made(node):
    before = node.tree()
    done = carry_out(node, node.plan())
    assert done.error is None
    assert done.seconds is not None
    assert node.daemon == {"start": 2, "text": NEW, "active": True}
    assert (node.config.read_text(), node.drop_in.read_text()) == (NEW, DROP_IN)
    assert node.drop_in.parent.stat().st_mode & 0o777 == 0o755
    directory = {"kind": "directory", "owners": ["cdi_runtime"]}
    assert Ledger(node.places.directory).entries[str(node.drop_in.parent)] == directory
    assert carry_out(node, node.plan(OLD, undo=True)).error is None
    assert node.daemon == {"start": 3, "text": OLD, "active": True}
    after = node.tree()
    # Only the time tells that it was written.
    assert after["etc/containerd/config.toml"].pop() == "now"
    before["etc/containerd/config.toml"].pop()
    assert after == before


@pytest.mark.parametrize(
    ("text", "reason", "restarts"),
    [
        ("broken", "containerd.service did not start: Job for containerd.service failed.\n", 2),
        ("no-cri", "could not report its version: UNIMPLEMENTED: unknown service\n", 2),
        ("no-cdi, still", "the running daemon reports CDI enabled: False, spec directories: ['/etc/cdi/']\n", 2),
    ],
)
def test_what_does_not_work_out_leaves_neither_file_nor_directory(node, text, reason, restarts):
    """With a drop-in, in a directory that only this transaction needs."""
    before = node.tree()
    undone = carry_out(node, node.plan(text, drop_in=True))
    assert undone.error.startswith(reason.format(config=node.config))
    assert "The previous configuration was restored, and the runtime answers again.\n" in undone.error
    assert f"The runtime's last journal lines when it failed:\n{PROBLEM}" in undone.error
    assert VALUE not in undone.error
    assert node.daemon == {"start": 1 + restarts, "text": OLD, "active": True}
    assert node.tree() == before


def test_a_directory_in_which_others_have_put_something_stays(node, monkeypatch):
    theirs = node.drop_in.with_name("theirs.toml")
    by_another_hand(node, monkeypatch, lambda: theirs.write_text("theirs"))
    assert carry_out(node, node.plan("broken", drop_in=True)).error
    assert list(node.drop_in.parent.iterdir()) == [theirs]


def test_what_others_wrote_stays_where_the_runtime_runs_with_it(node, monkeypatch):
    by_another_hand(node, monkeypatch, lambda: node.config.write_text("no-cdi, theirs"))
    plan = node.plan()
    undone = carry_out(node, plan._replace(files=plan.files[:1]))
    (former,) = (path for path in node.config.parent.iterdir() if path != node.config)
    assert node.config.read_text() == node.daemon["text"] == "no-cdi, theirs"
    assert former.read_text() == OLD
    assert (
        f"{node.config} was changed by someone else in the meantime and stays as it is; the original is in {former}.\n"
        "The runtime answers again."
    ) in undone.error
    assert "restored" not in undone.error


def test_the_files_that_were_restored_are_told_apart_from_those_that_stay(node, monkeypatch):
    by_another_hand(node, monkeypatch, lambda: node.drop_in.write_text("theirs"))
    undone = carry_out(node, node.plan("broken", drop_in=True))
    assert f"{node.drop_in} was changed by someone else in the meantime and stays as it is.\n" in undone.error
    assert "The other files were restored, and the runtime answers again." in undone.error
    assert "previous configuration" not in undone.error


def test_a_directory_that_cannot_be_removed_is_told(node, monkeypatch):
    directory, rmdir = str(node.drop_in.parent), os.rmdir

    def busy(path, **more):
        if path == directory:
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        rmdir(path, **more)

    monkeypatch.setattr(os, "rmdir", busy)
    undone = carry_out(node, node.plan("broken", drop_in=True))
    assert f"{directory} is empty but cannot be removed (Device or resource busy): remove it.\n" in undone.error


def test_what_others_wrote_goes_beside_where_the_runtime_does_not_run_with_it(node, monkeypatch):
    by_another_hand(node, monkeypatch, lambda: node.config.write_text("broken, theirs"))
    undone = carry_out(node, node.plan())
    (aside,) = (path for path in node.config.parent.iterdir() if path != node.config)
    assert node.daemon == {"start": 4, "text": OLD, "active": True}
    assert (node.config.read_text(), aside.read_text()) == (OLD, "broken, theirs")
    assert f"the runtime does not start with that change, which is now in {aside}.\n" in undone.error


def test_a_link_that_others_put_in_the_place_gives_way_where_the_runtime_does_not_run_with_it(node, monkeypatch):
    """Nothing has to go beside it: what it leads to is where it was."""
    theirs = node.root / "theirs.toml"

    def link():
        theirs.write_text("broken, theirs")
        node.config.unlink()
        node.config.symlink_to(theirs)

    by_another_hand(node, monkeypatch, link)
    undone = carry_out(node, node.plan())
    assert list(node.config.parent.iterdir()) == [node.config]
    assert (node.config.is_symlink(), node.config.read_text(), theirs.read_text()) == (False, OLD, "broken, theirs")
    assert "the runtime does not start with that change.\n" in undone.error


def test_a_file_that_others_changed_since_it_was_planned_is_not_touched(node):
    plan = node.plan(drop_in=True)
    node.config.write_text("theirs")
    before = node.tree()
    undone = carry_out(node, plan)
    said = f"{node.config} was changed by someone else in the meantime: run again\nNothing was changed."
    assert undone.error == said
    assert node.daemon["start"] == 1
    assert node.tree() == before


class PowerCut(BaseException):
    """Nothing is done any more."""


@pytest.mark.parametrize(
    ("boot", "starts", "says"),
    [
        (True, 2, "The previous configuration was restored before the runtime started."),
        (False, 3, "The previous configuration was restored, and the runtime answers again."),
    ],
)
def test_what_was_cut_off_after_the_restart_is_undone(node, monkeypatch, boot, starts, says):
    """At a boot systemd starts the runtime after that."""
    restart = runtime.Runtime.restart

    def cut_off(self):
        restart(self)
        raise PowerCut

    before = node.tree()
    with node.commands():
        prepared = launch._prepared(node.places, node.plan())
        with monkeypatch.context() as patch:
            patch.setattr(runtime.Runtime, "restart", cut_off)
            with pytest.raises(PowerCut):
                program.run(node.places, prepared)
        assert node.config.read_text() == NEW
        node.power_off()
        program.recover(node.places, boot)
        outcome = launch.settle(node.places)
    reason = "it was interrupted in step restart: its process was killed, or the power failed"
    assert outcome.error.splitlines()[:2] == [reason, says]
    assert node.daemon["start"] == starts
    assert node.tree() == before


def test_what_an_error_of_a_file_system_says_of_the_way_out():
    assert sentence(OSError(16, "Device or resource busy", "/x")) == (
        "/x: Device or resource busy; it is a mount point: change the file at the mount's source"
    )
    assert sentence(OSError(2, "No such file or directory", "/x")) == "/x: No such file or directory"
    assert sentence(OSError(18, "Invalid cross-device link", "/x", None, "/y")) == "/y: Invalid cross-device link"
    assert sentence(ValueError("x")) == "ValueError: x"
