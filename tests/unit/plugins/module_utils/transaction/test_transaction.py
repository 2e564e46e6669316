"""A change of a runtime's configuration is done whole, or not at all, wherever it is cut off."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import types

import crash_states
import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, LedgerConflict
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import Managed, add_file
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import (
    kept,
    launch,
    program,
    runtime,
)
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import steps as transaction_steps
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.journal import Journal
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.plan import Plan
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.program import exclusive
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.runtime import run
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.steps import STEPS
from transaction_node import DROP_IN, NEW, OLD, PROBLEM, Node, full_from, killed_at, read_only_from

#: The runtime's memory, and what is in /run.
VOLATILE = ("daemon.json", "lock", "counted", "interfered")
_BUILT = ["lab/programs/build", "--where", "nvidia-container-toolkit"]
_FOUND = subprocess.run(_BUILT, cwd=pathlib.Path(__file__).parents[5], capture_output=True, text=True, check=False)
NVIDIA_CTK = os.path.join(_FOUND.stdout.strip(), "nvidia-ctk")


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path / "node")


@pytest.fixture
def fresh(tmp_path):
    """Makes as many nodes as are asked for."""
    names = iter(range(10_000))
    return lambda: Node(tmp_path / ("node%d" % next(names)))


def test_it_is_done_with_all_that_belongs_to_the_file(node):
    before = node.tree()["etc/containerd/config.toml"]
    outcome = node.carry_out()
    assert (outcome.identity, outcome.error) == ("mine", None)
    assert node.daemon == {"start": 2, "text": NEW, "active": True}
    after = node.tree()["etc/containerd/config.toml"]
    # Mode, owner and extended attributes are the old file's; content and time are not.
    assert after[:3] + after[4:5] == before[:3] + before[4:5]
    assert after[3] == NEW.encode()
    assert node.drop_in.read_text() == DROP_IN
    entries = Ledger(node.places.directory).entries
    assert entries[str(node.config)]["before"]["mode"] == 0o640
    assert entries[str(node.drop_in)]["before"] is None
    assert entries[str(node.drop_in.parent)] == {"kind": "directory", "owners": ["cdi_runtime"]}


def test_the_steps_are_in_the_journal_in_their_order(node):
    node.carry_out()
    steps = [record["step"] for record in Journal(node.places.closed).records]
    assert steps == ["snapshot", "stage", "guard", "write", "restart", "probe", "ledger", "done"]
    assert [step.name for step in STEPS] == steps[:-1]


def test_taking_it_back_leaves_nothing(node):
    before = node.tree()
    node.carry_out()
    node.settle()
    assert node.carry_out(node.plan(OLD, undo=True)).error is None
    node.settle()
    after = node.tree()
    # Only the time tells that it was written.
    assert after["etc/containerd/config.toml"].pop() == "now"
    before["etc/containerd/config.toml"].pop()
    assert after == before


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (OLD, 0o640),
        # What somebody else wrote since keeps their mode, whether it sorts before the old text or after it.
        ("# hers\nno-cdi\n", 0o600),
        ("# yours\nno-cdi\n", 0o600),
    ],
)
def test_taking_it_back_gives_the_old_mode_with_the_old_text(node, text, mode):
    node.carry_out()
    node.settle()
    node.config.chmod(0o600)
    assert node.carry_out(node.plan(text, undo=True)).error is None
    assert (node.config.read_text(), node.config.stat().st_mode & 0o777) == (text, mode)


@pytest.mark.parametrize(
    ("text", "reason", "restarts"),
    [
        ("broken", "containerd.service did not start: Job for containerd.service failed.", 2),
        ("no-cri", "could not report its version: UNIMPLEMENTED: unknown service", 2),
        ("no-cdi, still", "the running daemon reports CDI enabled: False, spec directories: ['/etc/cdi/']", 2),
        ("cdi, hurts", "container c1 ran before the restart but does not run after it (no exit was recorded)", 2),
        ("cdi, ended 137 Error", "container c1 ran before the restart but does not run after it (exit code 137)", 2),
        ("cdi, ended 255 Error", "container c1 ran before the restart but does not run after it (exit code 255)", 2),
        ("crashes", "containerd.service ended right after its start: connection refused", 3),
    ],
)
def test_what_does_not_work_out_is_undone(node, text, reason, restarts):
    """Provisioning, complaint 6: a bad configuration takes the node down and stays."""
    before = node.tree()
    with node.run_container() as shim:
        # Longer than this test's own limit: nobody waits for one that has ended.
        outcome = node.carry_out(node.plan(text)._replace(timeout=3600))
        assert outcome.error.startswith(reason)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shim.pid, signal.SIGKILL)
    assert node.daemon == {"start": 1 + restarts, "text": OLD, "active": True}
    told = (
        "The previous configuration was restored, and the runtime answers again.\n"
        if restarts
        else "Nothing was changed."
    )
    assert told in outcome.error
    assert (PROBLEM in outcome.error) == bool(restarts)
    node.settle()
    assert node.tree() == before


def test_a_container_that_comes_to_its_own_end_meanwhile_is_no_reason(node):
    """A job's: its shim, that of its pod, runs on."""
    with node.run_container() as shim:
        assert node.carry_out(node.plan("cdi, outlives")).error is None
        os.killpg(shim.pid, signal.SIGKILL)
    assert node.daemon["start"] == 2


@pytest.mark.parametrize("how", ["0 Completed", "3 Error", "137 OOMKilled"])
def test_a_container_that_ends_with_what_watches_it_is_no_reason_either(node, how):
    """A job's of CRI-O: its conmon ends with it, and the runtime knows how it ended."""
    with node.run_container():
        assert node.carry_out(node.plan(f"cdi, ended {how}")).error is None
    assert node.daemon["start"] == 2


@pytest.mark.parametrize("code", [137, 143, 255])
def test_a_container_that_was_killed_right_before_the_restart_is_no_reason(node, code):
    """One of a deleted pod, which the kubelet kills after the pod's grace period."""
    with node.run_container():
        node.finished_at = time.time()
        assert node.carry_out(node.plan(f"cdi, ended {code} Error")).error is None
    assert node.daemon["start"] == 2


def test_a_container_is_no_reason_whose_end_the_runtime_had_not_noticed(node):
    with node.run_container() as shim:
        os.killpg(shim.pid, signal.SIGKILL)
    node.is_unnoticed = True
    assert node.carry_out(node.plan("cdi")).error is None
    assert node.daemon["start"] == 2


def test_whatever_the_journal_holds_it_is_read():
    code, output, error = run(["printf", r"caf\351\n"])
    assert (code, output, error) == (0, "caf\ufffd\n", "")


def test_an_answer_that_is_no_json_is_a_failure_like_another(node, monkeypatch):
    monkeypatch.setattr(runtime, "run", lambda *_arguments, **_more: (0, "<html>", ""))
    with pytest.raises(runtime.Failed, match="ask does not answer in JSON"):
        runtime.Runtime(node.plan()).ask()


def test_a_damaged_plan_is_said_with_what_to_do(node):
    node.carry_out(hook=killed_in(node, "restart"))
    plan = pathlib.Path(node.places.open) / "plan.json"
    whole = plan.read_text()
    for text in ("", whole[:100], "[]", "{}"):
        plan.write_text(text)
        with pytest.raises(
            LedgerConflict,
            match=r"plan\.json is damaged .* correct the runtime.* then remove that copy and /.*/transac",
        ):
            Plan.load(node.places.open)
        # No traceback.
        assert program.main(["recover"], node.places) == 1
    plan.write_text(whole)
    assert node.settle().error.startswith("it was interrupted in step restart")


def test_after_the_advice_about_a_damaged_plan_the_next_change_is_made(node):
    """Correct the configuration from its copy, then remove the copy and the transaction's directory."""
    node.carry_out(hook=killed_in(node, "restart"))
    (pathlib.Path(node.places.open) / "plan.json").write_text("{}")
    with pytest.raises(LedgerConflict) as refused:
        Plan.load(node.places.open)
    directory = str(refused.value).rpartition(" and ")[2]
    assert directory == node.places.open
    copy = node.config.with_name(".config.toml.node-devices-old")
    assert copy.name in str(refused.value)
    copy.replace(node.config)
    shutil.rmtree(directory)
    assert node.settle() is None
    assert node.config.read_text() == OLD
    assert node.carry_out().error is None


def test_the_plan_of_an_earlier_release_is_read(node):
    node.carry_out(hook=killed_in(node, "restart"))
    plan = pathlib.Path(node.places.open) / "plan.json"
    data, loaded = json.loads(plan.read_text()), Plan.load(node.places.open)
    # It had no content of the old files, but their hashes, and the command of a step.
    data["check"] = ["containerd", "config", "dump"]
    assert [file.pop("before") is None for file in data["files"]] == [False, True]
    plan.write_text(json.dumps(data))
    assert Plan.load(node.places.open) == loaded._replace(files=[file._replace(before=None) for file in loaded.files])
    assert node.settle().error.startswith("it was interrupted in step restart")


def test_an_edited_file_that_somebody_removed_since_is_planned_as_a_new_one(node):
    """The transaction refuses it, because it expects the text that was read before."""
    node.carry_out()
    node.settle()
    node.config.unlink()
    root, drop_in = node.plan("# hers\n", undo=True).files
    assert (root.content, root.mode, root.expected_sha256) == (b"# hers\n", 0o644, None)
    assert (drop_in.content, drop_in.expected_sha256) == (None, ledger.sha256(DROP_IN.encode()))


def test_a_file_of_another_hand_with_the_old_text_is_not_taken_for_the_old_one(node):
    before = node.tree()
    once = iter([True])

    def by_another_hand(_count, _takes_space):
        if os.path.isdir(node.places.open) and Journal(node.places.open).find("restart") and next(once, False):
            theirs = node.config.with_suffix(".theirs")
            theirs.write_text(OLD)
            theirs.chmod(0o640)
            theirs.rename(node.config)

    outcome = node.carry_out(node.plan("cdi, hurts"), hook=by_another_hand)
    # The daemon came up with theirs.
    assert outcome.error.startswith("the running daemon reports CDI enabled: False")
    node.settle()
    assert node.tree() == before


def an_administrator(node):
    """Writes in place. Gives what it left, as all of these do: path to text."""
    node.config.write_text("# hers\ncdi\n")
    return {str(node.config): "# hers\ncdi\n"}


def an_administrator_by_a_rename(node):
    place = node.config.with_name("theirs")
    place.write_text("# hers\ncdi\n")
    place.rename(node.config)
    return {str(node.config): "# hers\ncdi\n"}


def nvidia_ctk(node):
    """The program itself: it rewrites the file, and has it import one of its own from the drop-ins."""
    drop_in = node.drop_in.with_name("99-nvidia.toml")
    options = [f"--config={node.config}", f"--drop-in-config={drop_in}", "--cdi.enabled"]
    subprocess.check_call([NVIDIA_CTK, "--quiet", "runtime", "configure", "--runtime=containerd", *options])
    written = {str(path): path.read_text() for path in (node.config, drop_in)}
    assert f'imports = ["{drop_in.parent}/*.toml"]' in written[str(node.config)]
    assert "enable_cdi = true" in written[str(drop_in)]
    return written


def another_play(node):
    """Cannot begin a change of the runtime, and writes a file of another role."""
    with pytest.raises(launch.Failed, match="the change could not be started, so nothing was changed"):
        launch.carry_out(node.places, node.plan("# of another play\ncdi\n"))
    path = node.root / "etc" / "cdi" / "spec.json"
    with Ledger(node.places.directory) as book:
        Managed(book, "cdi_specs").converge([{"path": str(path), "kind": "file", "content": b"{}", "mode": 0o644}])
    return {str(path): "{}"}


@pytest.mark.parametrize("other", [an_administrator, an_administrator_by_a_rename, nvidia_ctk, another_play])
@pytest.mark.parametrize("word", ["cdi", "broken", "no-cri"])
def test_what_others_write_in_any_gap_stays_and_nothing_is_lost(fresh, monkeypatch, word, other):
    """Between any two steps."""
    if other is nvidia_ctk and not os.path.exists(NVIDIA_CTK):
        pytest.skip("nvidia-ctk is not built")
    text, steps = OLD.replace("no-cdi", word), transaction_steps.STEPS

    def written_before(number, node):
        def interfering(index, which, do):
            def step(*arguments):
                if (index, which) == number:
                    (node.root / "interfered").write_text(json.dumps(other(node)))
                return do(*arguments)

            return step

        return tuple(
            step._replace(look=interfering(index, "look", step.look), do=interfering(index, "do", step.do))
            for index, step in enumerate(steps)
        )

    for number in ((index, which) for index in range(len(steps)) for which in ("look", "do")):
        node = fresh()
        plan = node.plan(text)
        monkeypatch.setattr(transaction_steps, "STEPS", written_before(number, node))
        outcome = node.carry_out(plan)
        node.settle()
        if not (node.root / "interfered").exists():
            assert word != "cdi", "what fails never comes to its later steps"
            continue
        if other is another_play:
            assert (outcome.error is None) == (word == "cdi")
        elif outcome.error is None:
            assert number > ([step.name for step in steps].index("write"), "do")
        hold_theirs(node, other, outcome)


@pytest.mark.parametrize("other", [an_administrator, an_administrator_by_a_rename, nvidia_ctk])
@pytest.mark.parametrize("word", ["cdi", "broken", "no-cri"])
def test_what_others_write_inside_a_step_or_an_undoing_stays_and_nothing_is_lost(fresh, monkeypatch, word, other):
    """Between any two looks at a file and its neighbours: of keeping, staging, writing, restoring."""
    if other is nvidia_ctk and not os.path.exists(NVIDIA_CTK):
        pytest.skip("nvidia-ctk is not built")
    names = ("look", "seen", "keep", "stage", "is_theirs", "restore", "set_aside")
    really = {name: getattr(kept, name) for name in names}

    def written_before(number, node):
        calls = itertools.count()

        def interfering(do):
            def call(*arguments):
                if next(calls) == number:
                    (node.root / "interfered").write_text(json.dumps(other(node)))
                return do(*arguments)

            return call

        for name, do in really.items():
            monkeypatch.setattr(kept, name, interfering(do))

    for number in itertools.count():
        node = fresh()
        plan = node.plan(OLD.replace("no-cdi", word), drop_in=True)
        written_before(number, node)
        outcome = node.carry_out(plan)
        node.settle()
        if not (node.root / "interfered").exists():
            break
        hold_theirs(node, other, outcome)
    assert number >= (8 if word == "cdi" else 14)


def hold_theirs(node, other, outcome):
    """What others left is in its place, or where the outcome says, and a runtime runs with what is in place."""
    left = json.loads((node.root / "interfered").read_text())
    if other is another_play:
        assert Ledger(node.places.directory).entries[next(iter(left))]["owner"] == "cdi_specs"
    there = {str(path): path.read_text() for path in node.root.glob("etc/c*/**/*") if path.is_file()}
    # What is not in its place is where the outcome says.
    lost = {path for path, written in left.items() if there[path] != written}
    assert all(any(there[path] == left[each] and path in outcome.error for path in there) for each in lost)
    if outcome.error is None:
        assert not lost
        return
    in_place = there[str(node.config)]
    assert node.daemon["active"]
    assert node.daemon["text"] in (OLD, in_place)
    assert in_place in (OLD, left.get(str(node.config)))
    aside = {path: written for path, written in there.items() if path not in (str(node.config), *left)}
    assert set(aside.values()) <= {OLD, *left.values()}
    assert all(path in outcome.error for path in aside)
    assert ("stays as it is" in outcome.error) == (OLD in aside.values())


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.EBUSY, "it is a mount point: change the file at the mount's source"), (errno.EPERM, "it may be immutable")],
)
def test_a_file_that_cannot_be_replaced_stays_and_nothing_stays_open(node, monkeypatch, number, words):
    put_in_place = ledger.put_in_place

    def refuse(staged, path):
        if path == str(node.config):
            raise OSError(number, os.strerror(number), staged, None, path)
        put_in_place(staged, path)

    monkeypatch.setattr(ledger, "put_in_place", refuse)
    before = node.tree()
    outcome = node.carry_out()
    assert outcome.error.startswith("%s: %s; %s" % (node.config, os.strerror(number), words))
    assert outcome.error.endswith("\nNothing was changed.")
    node.settle()
    assert node.tree() == before
    assert node.daemon["start"] == 1


def test_a_directory_of_two_files_is_made_once(node):
    plan = node.plan()
    add_file(plan, {}, (str(node.drop_in.with_name("other.toml")), None, "x"))
    assert [directory.path for directory in plan.directories] == [str(node.drop_in.parent)]


def test_a_write_that_keeps_size_and_time_is_seen(node, monkeypatch):
    """Between the reading and the replacement."""
    look, theirs = kept.look, OLD.replace("theirs", "hers!!")

    def looked(path):
        found = look(path)
        if path == str(node.config) and node.config.read_text() == OLD:
            status = node.config.stat()
            node.config.write_text(theirs)
            os.utime(node.config, ns=(status.st_atime_ns, status.st_mtime_ns))
        return found

    monkeypatch.setattr(kept, "look", looked)
    outcome = node.carry_out()
    assert outcome.error.startswith(f"{node.config} was changed by someone else in the meantime: run again\n")
    assert node.config.read_text() == theirs
    assert node.daemon["start"] == 1


def test_a_file_that_somebody_made_since_it_was_planned_stays(node):
    plan = node.plan()
    node.drop_in.parent.mkdir()
    node.drop_in.write_text("hers\n")
    plan.directories.clear()
    before = node.tree()
    outcome = node.carry_out(plan)
    assert outcome.error.startswith(f"{node.drop_in} was changed by someone else in the meantime: run again")
    node.settle()
    assert node.tree() == before


def test_of_a_link_in_the_place_of_the_file_no_copy_is_made(node):
    """The copy would get the link's mode, with which everybody may read it."""
    link = node.root / "link"
    link.symlink_to(node.config)
    kept.keep(types.SimpleNamespace(path=str(link), before=b"secret"))
    assert not os.path.lexists(kept.old(str(link)))
    kept.keep(types.SimpleNamespace(path=str(node.config), before=b"secret"))
    copy = pathlib.Path(kept.old(str(node.config)))
    assert (copy.read_text(), copy.stat().st_mode & 0o777, copy.stat().st_mtime_ns) == ("secret", 0o640, 2_000_000_000)


def test_a_new_file_has_its_selinux_context_before_it_is_in_its_place(node, monkeypatch):
    labelled = []
    monkeypatch.setattr(os, "setxattr", lambda path, name, value, **_more: labelled.append((path, name, value)))
    file = next(file for file in node.plan().files if file.path == str(node.drop_in))
    node.drop_in.parent.mkdir()
    kept.stage(file)
    assert labelled == []
    kept.stage(file._replace(context="system_u:object_r:container_config_t:s0"))
    value = b"system_u:object_r:container_config_t:s0\0"
    assert labelled == [(kept.new(str(node.drop_in)), "security.selinux", value)]
    node.drop_in.write_text("there")
    labelled.clear()
    kept.stage(file._replace(context="system_u:object_r:container_config_t:s0"))
    assert [name for _path, name, _value in labelled if name == "security.selinux"] == []


@pytest.mark.parametrize("how", ["written", "removed", "a directory"])
def test_a_file_that_changed_since_it_was_planned_stays(node, how):
    plan = node.plan()
    node.config.unlink()
    if how == "written":
        node.config.write_text("hers\n")
    elif how == "a directory":
        node.config.mkdir()
    before = node.tree()
    outcome = node.carry_out(plan)
    assert outcome.error.startswith("%s was changed by someone else in the meantime: run again" % node.config)
    node.settle()
    assert node.tree() == before
    assert node.daemon["start"] == 1


def test_only_a_restart_writes_no_file(node):
    node.config.write_text(NEW)
    plan = node.plan(NEW)
    plan = plan._replace(files=[], directories=[], entries={})
    before = node.tree()
    assert node.carry_out(plan).error is None
    node.settle()
    assert node.tree() == before
    assert node.daemon == {"start": 2, "text": NEW, "active": True}


def test_what_is_not_ours_is_not_planned(node):
    plan = node.plan()._replace(files=[], directories=[], entries={})
    with Ledger(node.places.directory) as book:
        book.entries[str(node.config)] = {"kind": "file", "owner": "other", "before": None, "sha256": "", "mode": 0}
        book.save()
    with pytest.raises(LedgerConflict, match="belongs to other, so cdi_runtime does not write it"):
        node.plan()
    node.drop_in.mkdir(parents=True)
    with pytest.raises(LedgerConflict, match="is a directory, but a file must be there"):
        add_file(plan, {}, (str(node.drop_in), None, DROP_IN))
    assert (plan.files, plan.directories, plan.entries) == ([], [], {})


def changes_of(fresh, do):
    """How many changes of the disk it makes."""
    node = fresh()
    counted = node.root / "counted"

    def hook(count, _takes_space):
        os.write(descriptor, b".")

    descriptor = os.open(counted, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    do(node, hook)
    os.close(descriptor)
    return counted.stat().st_size


def hold(node, before, after):
    """Old or new, whole, with a runtime that runs with it; and nothing else is left. Gives whether it is the new."""
    outcome = node.settle()
    tree = node.tree()
    is_new = node.config.read_text() == NEW
    assert tree == (after if is_new else before)
    assert node.daemon["text"] == node.config.read_text()
    assert node.daemon["active"]
    assert outcome is None or (outcome.error is None) == is_new
    return is_new


@pytest.fixture
def trees(fresh):
    """What a node is before and after."""
    node = fresh()
    before = node.tree()
    node.carry_out()
    node.settle()
    return before, node.tree()


def power_cuts(node, do):
    """The states of a node's disk that a power cut may leave while it works."""

    def recording():
        with node.commands(really_synced=True):
            do()

    return crash_states.recorded(node.root, recording, VOLATILE)


def boot(node, state):
    """Power up with a state: systemd runs the guard if it is there whole, and then the runtime."""
    crash_states.put(state, node.root, VOLATILE)
    node.power_off()
    wanted = pathlib.Path(node.places.units, "multi-user.target.wants", transaction_steps.GUARD)
    if wanted.exists() and "ExecStart=" in wanted.read_text() and pathlib.Path(node.places.open, program.NAME).exists():
        assert node.recover(boot=True) == 0
    assert node.start(), "the runtime starts"


@pytest.mark.parametrize("text", [NEW, "broken"])
def test_after_a_power_cut_at_any_time_it_is_old_or_new(node, trees, text):
    plan = node.plan(text)
    ends = set()
    for state in power_cuts(node, lambda: program.run(node.places, launch._prepared(node.places, plan))):
        boot(node, state)
        ends.add(hold(node, *trees))
    assert ends == ({True, False} if text == NEW else {False})


def test_after_a_power_cut_at_any_time_of_taking_back_it_is_ours_or_theirs(node):
    node.carry_out()
    node.settle()
    ours = node.tree()
    plan = node.plan(OLD, undo=True)
    ends = set()
    for state in power_cuts(node, lambda: program.run(node.places, launch._prepared(node.places, plan))):
        boot(node, state)
        node.settle()
        tree, text = node.tree(), node.config.read_text()
        assert node.daemon["text"] == text
        if text == NEW:
            assert tree == ours
        else:
            # No ledger, no drop-in, no folder of ours.
            assert [path for path in tree if "node-devices" in path or "conf.d" in path] == []
        ends.add(text)
    assert ends == {OLD, NEW}


def test_after_a_power_cut_while_what_others_wrote_is_swapped_nothing_is_lost(node, monkeypatch):
    """Theirs does not run, so that the old one comes back and theirs goes beside it, by a second name (os.link)."""
    hers = "# hers\nbroken\n"
    restart = runtime.Runtime.restart

    def hers_first(self):
        if node.config.read_text() == "broken":
            place = node.config.with_name("theirs")
            with place.open("w") as file:
                file.write(hers)
                file.flush()
                os.fsync(file.fileno())
            ledger.put_in_place(str(place), str(node.config))
        restart(self)

    def texts():
        return {path.read_text() for path in node.config.parent.iterdir() if path.is_file()}

    monkeypatch.setattr(runtime.Runtime, "restart", hers_first)
    plan = node.plan("broken")
    swapped = 0
    for state in power_cuts(node, lambda: program.run(node.places, launch._prepared(node.places, plan))):
        crash_states.put(state, node.root, VOLATILE)
        left = texts()
        node.power_off()
        wanted = pathlib.Path(node.places.units, "multi-user.target.wants", transaction_steps.GUARD)
        if wanted.exists() and pathlib.Path(node.places.open, program.NAME).exists():
            node.recover(boot=True)
        node.start()
        node.settle()
        assert {OLD, hers} & left <= texts()
        assert OLD in texts()
        swapped += (hers in left) and node.config.read_text() == OLD
    assert swapped


@pytest.mark.parametrize("boots", [False, True])
def test_killed_anywhere_it_ends_old_or_new(fresh, trees, boots):
    changes = changes_of(fresh, lambda node, hook: node.carry_out(hook=hook))
    assert changes > 40
    ends = []
    for number in range(changes):
        node = fresh()
        assert node.carry_out(hook=killed_at(number)) is None or number == changes - 1
        if boots:
            node.power_off()
            assert node.recover(boot=True) == 0
            # It starts after us: whoever restarted it now would wait for himself.
            assert not node.daemon["active"]
            node.start()
        ends.append(hold(node, *trees))
    # Old up to the ledger's entry, and new from then on.
    assert ends == sorted(ends)
    assert 0 < sum(ends) < changes


def test_killed_while_it_recovers_it_goes_on(fresh, trees):
    changes = changes_of(fresh, lambda node, hook: node.carry_out(hook=hook))
    for first in range(1, changes, 9):
        second = 0
        while True:
            node = fresh()
            node.carry_out(hook=killed_at(first))
            node.power_off()
            ended = node.recover(boot=True, hook=killed_at(second))
            node.start()
            hold(node, *trees)
            if ended != -signal.SIGKILL:
                break
            second += 1


def test_killed_while_it_is_undone_it_goes_on(fresh):
    before = fresh().tree()
    changes = changes_of(fresh, lambda node, hook: node.carry_out(node.plan("broken"), hook=hook))
    for number in range(changes):
        node = fresh()
        node.carry_out(node.plan("broken"), hook=killed_at(number))
        node.settle()
        assert node.tree() == before
        assert (node.daemon["text"], node.daemon["active"]) == (OLD, True)


def test_taking_back_killed_anywhere_ends_old_or_new(fresh):
    def done():
        node = fresh()
        node.carry_out()
        node.settle()
        return node

    node = done()
    ours = node.tree()
    node.carry_out(node.plan(OLD, undo=True))
    node.settle()
    theirs = node.tree()
    number = 0
    while True:
        node = done()
        over = node.carry_out(node.plan(OLD, undo=True), hook=killed_at(number))
        node.settle()
        assert node.tree() == (ours if node.config.read_text() == NEW else theirs)
        assert node.daemon["text"] == node.config.read_text()
        if over:
            break
        number += 1
    assert number > 30


def test_a_disk_that_fills_up_anywhere_ends_old_or_new_at_once(fresh, trees):
    changes = changes_of(fresh, lambda node, hook: node.carry_out(hook=hook))
    ends = []
    for number in range(changes):
        node = fresh()
        # Undoing takes no space: it does not wait for somebody to make some.
        outcome = node.carry_out(hook=full_from(number))
        if outcome is not None and outcome.error:
            assert "No space left on device" in outcome.error
        assert outcome is not None or number == 0
        ends.append(hold(node, *trees))
    assert 0 < sum(ends) < changes


def test_a_disk_that_becomes_read_only_is_undone_once_it_is_not(fresh, trees):
    changes = changes_of(fresh, lambda node, hook: node.carry_out(hook=hook))
    for number in range(changes):
        node = fresh()
        node.carry_out(hook=read_only_from(number))
        hold(node, *trees)


@pytest.mark.parametrize("lost", [1, 20])
def test_a_record_that_was_cut_off_was_not_begun(tmp_path, lost):
    Journal.create(str(tmp_path))
    journal = Journal(str(tmp_path))
    journal.append("snapshot", files={})
    journal.append("a longer one", text="x" * 100)
    with open(journal.path, "r+b") as file:
        file.seek(journal._end - lost)
        file.write(b"\0" * lost)
    journal = Journal(str(tmp_path))
    assert [record["step"] for record in journal.records] == ["snapshot"]
    journal.append("undo")
    assert [record["step"] for record in Journal(str(tmp_path)).records] == ["snapshot", "undo"]


def test_the_journals_space_is_taken_beforehand(tmp_path):
    Journal.create(str(tmp_path))
    journal = Journal(str(tmp_path))
    size = os.stat(journal.path).st_size
    journal.append("snapshot", text="x" * 100_000)
    assert os.stat(journal.path).st_size == size
    assert os.stat(journal.path).st_blocks * 512 >= size


def test_nothing_counts_after_a_record_that_cannot_be_read(tmp_path):
    Journal.create(str(tmp_path))
    with open(tmp_path / "journal", "r+b") as file:
        file.write(b'{"step": "snapshot"}\nnonsense\n{"step": "write"}\n')
    assert [record["step"] for record in Journal(str(tmp_path)).records] == ["snapshot"]


def test_the_next_one_first_undoes_what_is_open(node):
    plan = node.plan()
    node.carry_out(hook=killed_in(node, "restart"))
    assert node.places.left() == [node.places.open]
    assert node.carry_out(plan).error is None
    # Nothing had been restarted with it, so nothing was restarted without it.
    assert node.daemon == {"start": 2, "text": NEW, "active": True}


def test_what_is_in_the_ledger_is_done_whatever_goes_wrong_then(node, monkeypatch):
    save = Ledger.save

    def save_and_fail(self):
        save(self)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Ledger, "save", save_and_fail)
    assert node.carry_out().error is None
    assert node.config.read_text() == NEW


def test_how_it_ended_is_said_once(node):
    node.carry_out(hook=killed_in(node, "done"))
    assert node.recover() == 0
    records = Journal(node.places.closed).records
    assert [record["step"] for record in records].count("done") == 1
    assert records[-1]["seconds"] is not None


def test_one_at_a_time(node):
    with exclusive(node.places):
        assert node.recover() == 1
        # Whoever was turned away leaves the lock to whom it belongs.
        assert node.recover() == 1
    assert not os.path.exists(node.places.lock)


def test_a_lock_whose_file_goes_while_it_is_opened_is_taken_again(node, monkeypatch):
    really, removed = fcntl.flock, []

    def flock(descriptor, operation):
        # Who had it ends just now.
        if not removed:
            removed.append(os.unlink(node.places.lock))
        really(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with exclusive(node.places):
        assert os.path.exists(node.places.lock)
        assert node.recover() == 1
    assert not os.path.exists(node.places.lock)


def test_a_lock_that_a_killed_one_left_goes_with_the_next_look(node):
    before = node.tree()
    pathlib.Path(node.places.lock).touch()
    node.settle()
    assert node.tree() == before


def test_what_fails_while_it_is_held_is_not_taken_for_a_lock_that_is_held(node):
    busy = BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(node.config))
    with pytest.raises(BlockingIOError) as raised, exclusive(node.places):
        raise busy
    assert raised.value is busy
    # And the lock is free again.
    assert node.recover() == 0


def killed_in(node, step):
    """A hook: SIGKILL once that step is in the journal."""

    def hook(_count, _takes_space):
        if os.path.isdir(node.places.open) and Journal(node.places.open).find(step):
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


def test_what_cannot_be_undone_is_said_and_stays_open(node, monkeypatch):
    node.carry_out(hook=killed_in(node, "restart"))

    def refuse(_staged, path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "put_in_place", refuse)
        with pytest.raises(
            launch.Failed,
            match="interrupted change to the container runtime cannot be undone: the program's last words",
        ):
            node.settle()
    assert node.places.left() == [node.places.open]
    assert node.settle().error.startswith("it was interrupted in step restart")
    assert node.config.read_text() == OLD


@pytest.mark.parametrize("renamed", [False, True])
def test_what_another_hand_wrote_goes_beside_where_the_runtime_does_not_start_with_it(node, renamed):
    """A node never ends worse than it began."""
    once = iter([True])

    def by_another_hand(_count, _takes_space):
        if os.path.isdir(node.places.open) and Journal(node.places.open).find("restart") and next(once, False):
            theirs = node.config.with_suffix(".theirs") if renamed else node.config
            theirs.write_text("broken, hers")
            theirs.rename(node.config)

    outcome = node.carry_out(hook=by_another_hand)
    node.settle()
    assert (node.config.read_text(), node.daemon["text"], node.daemon["active"]) == (OLD, OLD, True)
    (aside,) = (path for path in node.config.parent.iterdir() if path != node.config)
    assert aside.read_text() == "broken, hers"
    assert (
        f"the runtime does not start with that change, which is now in {aside}.\nThe previous configuration"
        in outcome.error
    )
    assert "restored, and the runtime answers again." in outcome.error


def test_killed_while_another_hands_file_goes_beside_one_of_both_is_in_the_place(fresh):
    for number in itertools.count():
        node = fresh()
        node.carry_out(hook=killed_in(node, "restart"))
        node.config.write_text("broken, hers")
        node.start()
        over = node.recover(hook=killed_at(number)) != -signal.SIGKILL
        assert node.config.read_text() in (OLD, "broken, hers")
        node.settle()
        assert (node.config.read_text(), node.daemon["active"]) == (OLD, True)
        if over:
            break


def test_what_stands_in_the_place_of_the_file_stays(node):
    node.carry_out(hook=killed_in(node, "restart"))
    node.config.unlink()
    node.config.mkdir()
    assert "stays as it is; the original is in " in node.settle().error
    assert node.config.is_dir()
    assert node.places.left() == []


def test_the_program_is_an_archive_that_python_runs(tmp_path):
    path = tmp_path / program.NAME
    path.write_bytes(program.archive())
    done = subprocess.run([sys.executable, "-I", str(path), "nonsense"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "usage: program.zip run PREPARED | recover [--boot]\n")


def test_copies_are_outside_of_a_directory_that_is_read_whole(node, monkeypatch):
    """CRI-O reads every file of its folder of drop-ins, whatever its name, and would go on with the old one."""
    directory = node.root / "crio.conf.d"
    copies = [f"{node.root}/.crio.conf.d.99-ours.conf.node-devices-{which}" for which in ("old", "new")]
    path = str(directory / "99-ours.conf")
    assert [kept.old(path), kept.new(path)] == copies
    directory.mkdir()
    (directory / "99-ours.conf").write_text("old")
    kept.keep(types.SimpleNamespace(path=path, before=b"old"))
    assert [each.name for each in directory.iterdir()] == ["99-ours.conf"]
    before = kept.look(path)
    (directory / "99-ours.conf").write_text("new")
    assert kept.restore(types.SimpleNamespace(path=path, content=b"new", expected_sha256=before))
    assert (directory / "99-ours.conf").read_text() == "old"
    # Nothing is renamed from one file system to another.
    (node.root / "linked.d").symlink_to(directory)
    assert kept.old(str(node.root / "linked.d" / "x")) == f"{node.root}/linked.d/.x.node-devices-old"
    monkeypatch.setattr(kept, "mount_points", lambda: {str(directory)})
    assert kept.old(path) == f"{directory}/.99-ours.conf.node-devices-old"
