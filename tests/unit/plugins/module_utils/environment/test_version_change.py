"""From one version of the plugin to another on a node: on trial, back where it does not stand it, and what stays."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import subprocess
import sys
import time
import types
from pathlib import Path

import crash_states
import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import boot_unit, node_code
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment import (
    change,
    environments,
    serving,
    targets,
)
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import VersionError, base_python
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.serving import Serving, missing
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_device_plugin.support import node_process
from ansible_collections.nodedevices.kubernetes.plugins.modules import node_tools

CONFIG = "/etc/x/config.yaml"
A, B, C = "0.1.0-aaaaaaaaaaaa", "0.2.0-bbbbbbbbbbbb", "0.3.0-cccccccccccc"
#: The command of an environment: its own words lie beside it.
COMMAND = """#!{python}
import os, sys
folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
path = os.path.join(folder, sys.argv[1])
text = open(path).read() if os.path.exists(path) else ""
if text.startswith("fail "):
    sys.exit(text[5:])
print(text)
"""


def resource(name="x/r", registered=True, **devices):
    """A resource as the command status tells of it: device id to its state, or state and reason."""
    listed = []
    for device, said in devices.items():
        state, reason = said if isinstance(said, tuple) else (said, None)
        listed.append({"id": device, "state": state, "reason": reason})
    return {"name": name, "registered": registered, "devices": listed}


def answer(*resources, allocatable=None, source="kubelet", not_ready=()):
    """What the command status prints."""
    plugin = {"resources": list(resources), "not_ready": list(not_ready)}
    return json.dumps({"plugin": plugin, "problem": "", "source": source, "allocatable": allocatable or {}, "held": []})


def seen(*resources, listed=None, not_ready=()):
    """The same, read."""
    known = {
        each["name"]: {
            "registered": each["registered"],
            "by_claim": each.get("api") == "dra",
            "devices": {device["id"]: (device["state"], device["reason"]) for device in each["devices"]},
        }
        for each in resources
    }
    return Serving(known, listed, tuple(not_ready))


GOOD = resource(a="healthy", b="healthy")
BOTH = {"x/r": ["a", "b"]}


@pytest.mark.parametrize(
    ("before", "now", "sentences"),
    [
        (seen(GOOD, listed=BOTH), seen(GOOD, listed=BOTH), []),
        # More than there was is no harm, and what was bad before may stay so.
        (seen(resource(a="healthy", b="unhealthy")), seen(GOOD), []),
        (seen(resource(a="healthy", b="unhealthy")), seen(resource(a="healthy", b="unhealthy")), []),
        (seen(resource(registered=False)), seen(resource(registered=False)), []),
        (seen(GOOD, listed=None), seen(GOOD, listed=BOTH), []),
        (seen(GOOD, listed=BOTH), Serving(None, BOTH, problem="no plugin answers"), ["no plugin answers"]),
        (seen(GOOD), seen(), ["x/r is not served"]),
        (
            seen(GOOD),
            seen(resource(registered=False, a="healthy", b="healthy")),
            ["x/r: the kubelet has no ListAndWatch stream open"],
        ),
        (
            seen(GOOD),
            seen({**resource(registered=False, a="healthy", b="healthy"), "api": "dra"}),
            ["x/r: the kubelet has not registered the DRA driver"],
        ),
        (seen(GOOD), seen(resource(a="healthy", b=("unhealthy", "gone"))), ["x/r: b is unhealthy, gone"]),
        (seen(GOOD), seen(resource(a="healthy")), ["x/r: b is missing"]),
        (seen(GOOD, listed=BOTH), seen(GOOD, listed={"x/r": ["b"]}), ["x/r: the kubelet does not list a"]),
        (seen(GOOD, listed=BOTH), seen(GOOD, listed={}), ["x/r: the kubelet does not list a, b"]),
        (seen(GOOD, listed=BOTH), seen(GOOD, listed=None), ["the kubelet no longer answers"]),
        # What a pod holds by another name was offered by releases that did not know of it.
        (
            seen(resource(a="healthy", b="healthy"), listed={"x/r": ["a::0", "a::1", "b"]}),
            seen(resource(a=("unhealthy", "held by default/own as x/old"), b="healthy"), listed={"x/r": ["b"]}),
            [],
        ),
        # So was a device whose node another one has, too.
        (
            seen(GOOD, listed=BOTH),
            seen(resource(a="healthy", b=("unhealthy", "two ids lead to one device: b")), listed={"x/r": ["a"]}),
            [],
        ),
        # Another plugin's resource is none of ours.
        (seen(GOOD, listed={**BOTH, "y/s": ["1"]}), seen(GOOD, listed=BOTH), []),
        # Where nobody answered before, being ready counts, if there is a kubelet to be ready for.
        (Serving(None, None), seen(GOOD, listed=BOTH, not_ready=["x/r: no"]), ["x/r: no"]),
        (Serving(None, None), seen(GOOD, listed=None, not_ready=["x/r: no"]), []),
    ],
)
def test_what_is_lacking(before, now, sentences):
    assert missing(before, now) == sentences


class FakeUnit:
    """The service of a node on which nothing else runs: its process is the version that was current at its start.

    ends: versions whose process ends at once.
    """

    name = "x.service"

    def __init__(self, root):
        self.root = root
        self.is_active = True
        self.ends = set()
        self.started = []
        self.guarded = []

    def config_run_from(self, root):
        return CONFIG if self.is_active and root == str(self.root) else None

    def restart(self, until):
        name = os.path.basename(os.readlink(self.root / "current"))
        self.started.append(name)
        self.guarded.append(os.path.exists(change._paths()[0]))
        return "its process ended" if name in self.ends else None

    def show(self):
        return {"InvocationID": str(len(self.started))}

    def is_running_since(self, invocation):
        return invocation == str(len(self.started))

    def journal(self):
        return "last words of %s" % self.started[-1]


class Node:
    """A node with versions, of which the first one is current."""

    def __init__(self, directory):
        self.root = directory / "node-devices"
        self.unit = FakeUnit(self.root)
        self.ledger_directory = str(directory / "ledger")
        self.warnings = []
        self.params = {
            "root": str(self.root),
            "timeout": 0,
            "keep": 2,
            "retry": False,
            "command": "",
            "left": None,
        }
        self.check_mode = False
        (self.root / "versions").mkdir(parents=True)
        self.versions = change.Versions(str(self.root), self.unit, 0)

    def add(self, name, status=None, age=0, python=None):
        """An environment whose command answers, and the ledger knows."""
        directory = self.lay_out(name, status, age, python)
        with Ledger(self.ledger_directory) as ledger:
            entry = {"kind": "tree", "owner": f"node_tools {self.root}", "number": 100 - age}
            ledger.entries[str(directory)] = entry
            ledger.save()
        return directory

    def lay_out(self, name, status=None, age=0, python=None):
        directory = self.root / "versions" / name
        (directory / "bin").mkdir(parents=True)
        command = directory / "bin" / "node-device-plugin"
        command.write_text(COMMAND.format(python=sys.executable))
        command.chmod(0o755)
        (directory / "bin" / "python").symlink_to(python or base_python())
        (directory / "status").write_text(status if status is not None else answer(GOOD, allocatable=BOTH))
        marker = {"name": name, "python": list(sys.version_info[:2])}
        (directory / "complete.json").write_text(json.dumps(marker))
        # The clock was wrong: what is older looks newer.
        os.utime(directory, (1e9 + age,) * 2)
        return directory

    def run(self, state, name=None):
        """What the module does; returns the report and what it tells beside."""
        ledger = Ledger(self.ledger_directory)
        # As `Node.ledger` does.
        with contextlib.nullcontext() if self.check_mode else ledger:
            of_node = node_module.Node(self)
            found = environments.Environments(of_node, ledger, self.params)
            found.versions = self.versions
            done = found.converge(state, name)
            self.warnings += of_node.warnings
            return done, found.told

    def set_default_selinux_context(self, path, changed):
        pass

    @property
    def links(self):
        there = (self.root / name for name in ("current", "previous"))
        return [os.path.basename(os.readlink(link)) if link.is_symlink() else None for link in there]

    @property
    def names(self):
        return sorted(os.listdir(self.root / "versions"))


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(boot_unit, "UNITS", str(tmp_path / "units"))
    # As the real one, which refuses what is below 0, and without its rest.
    quick = types.SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: time.sleep(min(seconds, 0)))
    monkeypatch.setattr(change, "time", quick)
    (tmp_path / "units").mkdir()
    made = Node(tmp_path)
    made.add(A, age=30)
    made.run("present", A)
    assert (made.links, made.unit.started) == ([A, None], [])
    return made


def test_a_version_that_serves_the_same_takes_the_place(node):
    node.add(B, age=20)
    report, told = node.run("present", B)
    assert node.links == [B, A]
    assert node.names == [A, B]
    assert node.unit.started == [B]
    assert node.unit.guarded == [True]
    assert not os.path.lexists(change._paths()[0])
    assert not os.path.lexists(change._paths()[1])
    assert report.changed
    assert str(node.root / "current") in report.written
    assert told["restarted"] is True
    report, told = node.run("present", B)
    assert not report.changed
    assert told["restarted"] is False
    assert node.unit.started == [B]
    assert node.links == [B, A]


def test_a_version_that_serves_late_is_waited_for(node, monkeypatch):
    serves = node.add(B, status=answer(resource(a="healthy", b="unhealthy"), allocatable=BOTH)) / "status"
    rest, rests = change.time.sleep, []

    def sleep(seconds):
        rest(seconds)
        rests.append(seconds)
        if len(rests) == 2:
            serves.write_text(answer(GOOD, allocatable=BOTH))

    monkeypatch.setattr(change.time, "sleep", sleep)
    node.versions.limit = 60
    node.run("present", B)
    assert node.links == [B, A]
    assert len(rests) == 2
    assert 0 < sum(rests) < node.versions.limit


def test_check_mode_says_so_and_does_nothing(node):
    node.check_mode = True
    report, told = node.run("present", B)
    assert report.changed
    assert told["restarted"] is True
    assert node.links == [A, None]
    assert node.unit.started == []


def test_a_check_of_a_bare_node_shows_what_the_run_makes(tmp_path, monkeypatch):
    """The directories are made before anything else, and told all the same."""
    node = Node(tmp_path)
    (node.root / "versions").rmdir()
    node.root.rmdir()
    node.params.update(archive="archive", wheels={})
    monkeypatch.setattr(environments, "build", lambda directory, name, _archive, _wheels: node.lay_out(name))
    node.check_mode = True
    foretold, _told = node.run("present", A)
    assert not node.root.exists()
    node.check_mode = False
    done, _told = node.run("present", A)
    by_path = [sorted(each.diffs, key=lambda diff: diff["before_header"]) for each in (foretold, done)]
    assert by_path[0] == by_path[1]
    assert sorted(done.written) == sorted(foretold.written)
    assert str(node.root / "versions") in done.written


def test_a_ledger_that_was_lost_is_said_and_made_again(node):
    os.unlink(os.path.join(node.ledger_directory, "ledger.json"))
    report, _told = node.run("absent")
    assert not report.changed
    (kept,) = report.kept
    assert kept["path"] == str(node.root)
    assert kept["reason"].startswith(
        f"{node.ledger_directory}/ledger.json does not list what this collection installed: run site.yml"
    )
    report, _told = node.run("present", A)
    assert not report.changed
    node.run("absent")
    assert sorted(os.listdir(node.root)) == ["versions"]
    assert node.names == []


def edit(node, name, files=("lib/gone.py",)):
    """Files of an environment that are not as they were made."""
    marker = node.root / "versions" / name / "complete.json"
    made = {file: [0o100644, 0, 0, 1, 1] for file in files}
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "files": made}))


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ("a", "a.py"),
        ("abcde", "a.py, b.py, c.py, d.py, e.py"),
        ("abcdefghijkl", "a.py, b.py, c.py, d.py, e.py, and 7 more"),
    ],
)
def test_check_mode_names_the_files_that_somebody_edited(node, files, named):
    edit(node, A, [f"{each}.py" for each in files])
    node.check_mode = True
    report, told = node.run("present", A)
    (diff,) = report.diffs
    assert (diff["before"], diff["after"]) == (
        f"virtual environment with these changed files: {named}\n",
        "virtual environment\n",
    )
    # It is made again, and has to serve what was served before.
    assert (report.changed, told["restarted"]) == (True, True)


def test_what_somebody_edited_can_be_gone_back_to(node):
    edit(node, A)
    node.add(B)
    node.run("present", B)
    assert node.links == [B, A]
    node.run("rolled_back")
    assert node.links == [A, None]


def test_what_could_not_be_laid_out_at_first_is_taken_away_by_an_uninstall(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(environments, "build", full)
    monkeypatch.setattr(boot_unit, "UNITS", str(tmp_path / "units"))
    node = Node(tmp_path)
    (node.root / "versions").rmdir()
    node.root.rmdir()
    node.params.update(archive="x", wheels={})
    with pytest.raises(OSError, match="No space left"):
        node.run("present", A)
    report, _told = node.run("absent")
    assert report.kept == []
    assert not node.root.exists()
    assert not os.path.exists(node.ledger_directory)


def test_what_could_not_be_laid_out_leaves_nothing(node, monkeypatch):
    def full(directory, name, _archive, _wheels):
        partial = node.root / "versions" / f".{name}.partial"
        partial.mkdir()
        (partial / "large").write_bytes(b"x")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(environments, "build", full)
    node.params.update(archive="x", wheels={})
    entries = Ledger(node.ledger_directory).entries
    with pytest.raises(OSError, match="No space left"):
        node.run("present", B)
    assert node.names == [A]
    assert Ledger(node.ledger_directory).entries == entries
    # Nor does what is there go where it cannot be made again.
    edit(node, A)
    with pytest.raises(OSError, match="No space left"):
        node.run("present", A)
    assert (node.names, node.links) == ([A], [A, None])
    assert Ledger(node.ledger_directory).entries == entries


BAD = {
    "ends": (None, "its process ended"),
    "lacks": (answer(resource(a="healthy", b=("unhealthy", "gone")), allocatable=BOTH), "x/r: b is unhealthy, gone"),
    "does not answer": ("fail it broke", "status: it broke"),
}


@pytest.mark.parametrize("how", BAD)
def test_a_version_that_does_not_is_taken_back_and_goes(node, how):
    status, says = BAD[how]
    node.add(B, status)
    node.unit.ends = {B} if how == "ends" else set()
    with pytest.raises(change.NotReady) as error:
        node.run("present", B)
    assert says in str(error.value)
    assert f"Version {A} was restored" in str(error.value)
    assert "does not serve it either" not in str(error.value)
    assert f"The last journal lines of {B}:\nlast words of {B}" in str(error.value)
    assert node.unit.started == [B, A]
    assert node.links == [A, None]
    assert node.names == [A]
    assert not os.path.lexists(change._paths()[0])
    assert Ledger(node.ledger_directory).entries[str(node.root / "current")]["target"] == f"versions/{A}"


@pytest.fixture
def refused(node):
    """A node on which B failed its trial."""
    node.add(B, "fail it broke")
    with pytest.raises(change.NotReady):
        node.run("present", B)
    node.unit.started.clear()
    return node


@pytest.mark.parametrize("check", [False, True])
def test_what_did_not_stand_its_trial_is_not_tried_by_every_run(refused, check):
    refused.check_mode = check
    with pytest.raises(VersionError) as error:
        refused.run("present", B)
    assert re.sub(r" at 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", " at that time", str(error.value)) == (
        f"version {B} failed its health check on this node at that time and is not retried automatically: "
        f"{refused.root}/versions/{B}/bin/node-device-plugin status: it broke. Version {A} stays in use; to retry "
        "after fixing the cause, add -e node_tools_retry=true"
    )
    assert refused.unit.started == []
    assert refused.links == [A, None]
    # The version that runs, and the message about the other, stay as they are.
    report, _told = refused.run("present", A)
    assert not report.changed
    assert (refused.root / "refused.json").exists()


@pytest.mark.parametrize(("name", "says"), [(B, "is not retried automatically"), (C, "incomplete")])
def test_wheels_of_what_was_refused_are_not_sent(refused, monkeypatch, name, says):
    class Ended(Exception):
        """The module, as it ends."""

    def end(**answer):
        raise Ended(answer.get("msg") or f"incomplete {answer['incomplete']}")

    refused.params.update(targets={"mine": {"environment": name}}, name=None, state="present", archive=None)
    monkeypatch.setattr(targets, "own", lambda table: "mine")
    monkeypatch.setattr(node_code, "load_for", lambda module: None)
    refused.exit_json = refused.fail_json = end
    monkeypatch.setattr(node_module, "AnsibleModule", lambda **_arguments: refused)
    monkeypatch.setattr(node_module, "Ledger", lambda: Ledger(refused.ledger_directory))
    monkeypatch.setattr(change, "Unit", lambda _service: refused.unit)
    with pytest.raises(Ended, match=says):
        node_tools.main()


def test_what_is_tried_again_where_that_is_asked_for(refused):
    refused.params["retry"] = True
    refused.add(B)
    refused.run("present", B)
    assert refused.links == [B, A]
    assert not (refused.root / "refused.json").exists()
    assert refused.unit.started == [B]


def test_another_version_is_tried_and_the_last_refusal_counts(refused):
    refused.add(C, "fail it broke, too")
    with pytest.raises(change.NotReady):
        refused.run("present", C)
    with pytest.raises(VersionError, match="it broke, too"):
        refused.run("present", C)
    refused.add(B)
    refused.run("present", B)
    assert refused.links == [B, A]
    assert not (refused.root / "refused.json").exists()


def test_without_a_service_nothing_is_on_trial(refused):
    refused.unit.is_active = False
    refused.add(B)
    refused.run("present", B)
    assert refused.links == [B, A]


def test_a_refusal_goes_with_the_role(refused):
    refused.run("absent")
    assert not (refused.root / "refused.json").exists()
    assert Ledger(refused.ledger_directory).entries == {}


@pytest.mark.parametrize("text", ["", "[]", '{"name": "x"}'])
def test_a_refusal_that_somebody_edited_is_none(refused, text):
    (refused.root / "refused.json").write_text(text)
    refused.add(B)
    refused.run("present", B)
    assert refused.links == [B, A]


def test_where_the_old_one_does_not_come_back_either_both_are_said(node):
    node.add(B)
    node.unit.ends = {A, B}
    with pytest.raises(change.NotReady, match=r"was restored, but does not serve it either: its process ended\n"):
        node.run("present", B)
    assert node.links == [A, None]


def test_a_version_that_refuses_the_configuration_touches_nothing(node):
    (node.add(B) / "validate").write_text("fail resources: no such field")
    with pytest.raises(VersionError, match="so nothing was changed: resources: no such field") as error:
        node.run("present", B)
    assert not isinstance(error.value, change.NotReady)
    assert node.unit.started == []
    assert node.links == [A, None]
    assert node.names == [A]


def test_without_a_service_the_link_goes_at_once(node):
    node.unit.is_active = False
    node.add(B, "fail nobody")
    _report, told = node.run("present", B)
    assert node.links == [B, A]
    assert node.unit.started == []
    assert told["restarted"] is False


def test_where_the_old_ones_python_is_gone_there_is_no_way_back(node):
    directory = node.root / "versions" / A
    (directory / "bin" / "node-device-plugin").write_text("#!/nowhere/python\n")
    (directory / "bin" / "python").unlink()
    node.add(B)
    node.run("present", B)
    # Nor is it worth keeping.
    assert node.links == [B, None]
    assert node.names == [B]
    assert node.unit.guarded == [False]


def test_a_version_without_a_way_back_stays_and_says_so(node):
    (node.root / "versions" / A / "bin" / "python").unlink()
    node.add(B)
    node.unit.ends = {B}
    with pytest.raises(
        VersionError, match="does not serve all that was served before: its process ended; no previous version"
    ):
        node.run("present", B)
    assert node.links[0] == B
    assert node.unit.started == [B]


def test_a_run_that_was_killed_on_trial_is_undone_by_the_next(node):
    node.add(B)
    change._write_guard("x.service", str(node.root), A)
    node.versions.flip(B)
    report, _told = node.run("present", A)
    assert node.warnings == ["a change of the plugin's version by an earlier, interrupted run was undone"]
    assert node.links == [A, None]
    assert node.unit.started == [A]
    assert not os.path.lexists(change._paths()[0])
    assert not report.written


def test_a_run_that_was_killed_after_its_trial_has_nothing_to_undo(node):
    change._write_guard("x.service", str(node.root), B)
    node.run("present", A)
    assert node.warnings == []
    assert node.unit.started == []
    assert not os.path.lexists(change._paths()[0])


@pytest.mark.parametrize("state", ["absent", "present", "rolled_back"])
def test_a_power_cut_between_the_ledgers_entry_and_the_guards_end_leaves_nothing_unknown(node, monkeypatch, state):
    """The boot's unit puts the link back to a version of which the ledger says that it is not current."""
    node.add(B)

    def cut():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(change, "close", cut)
        with pytest.raises(KeyboardInterrupt):
            node.run("present", B)
    text = Path(change._paths()[0]).read_text()
    for command in re.findall("^ExecStart=(.*)$", text, re.MULTILINE):
        subprocess.run(command.split(), check=True)
    assert node.links == [A, A]
    node.run(state, B if state == "present" else None)
    if state != "absent":
        assert node.links[0] == (B if state == "present" else A)
        node.run("absent")
    assert (node.links, node.names) == ([None, None], [])
    assert not os.path.exists(node.ledger_directory)


def boot(node):
    """What systemd does: the guard's commands, if it is there whole."""
    path, link = change._paths()
    if os.path.exists(link):
        for command in re.findall("^ExecStart=(.*)$", Path(path).read_text(), re.MULTILINE):
            subprocess.run(command.split(), check=True)


@pytest.mark.parametrize("state", ["absent", "present"])
def test_after_a_power_cut_at_any_time_of_an_upgrade_nothing_is_unknown(node, tmp_path, state):
    node.add(B)
    for left in crash_states.recorded(tmp_path, lambda: node.run("present", B)):
        crash_states.put(left, tmp_path)
        boot(node)
        current = node.links[0]
        assert current in (A, B)
        # What is current after a boot has stood its trial, of which the ledger learned.
        assert current == A or Ledger(node.ledger_directory).entries[str(node.root / "current")]["target"].endswith(B)
        if state == "present":
            node.run("present", B)
            assert node.links == [B, A]
            assert not node.run("present", B)[0].changed
        node.run("absent")
        assert (node.links, node.names) == ([None, None], [])
        assert sorted(os.listdir(node.root)) == ["versions"]
        assert not os.path.exists(node.ledger_directory)


def test_after_a_power_cut_at_any_time_of_a_roll_back_what_is_current_is_there(node, tmp_path):
    """With one version to keep: the guard leads back to the other one until the change is closed."""
    node.add(B)
    node.run("present", B)
    node.params["keep"] = 1
    ends = set()
    for left in crash_states.recorded(tmp_path, lambda: node.run("rolled_back")):
        crash_states.put(left, tmp_path)
        boot(node)
        ends.add(node.links[0])
        assert (node.root / "current" / "complete.json").exists()
    assert ends == {A, B}
    node.run("rolled_back")
    assert node.names == [A]


@pytest.mark.parametrize(
    ("script", "problem"),
    [("exit 3", "exit code 3 without output"), ("echo no >&2", "no"), ("echo {", "{")],
)
def test_a_command_that_gives_no_status_is_described(tmp_path, script, problem):
    command = tmp_path / "bin" / "node-device-plugin"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n%s\n" % script)
    command.chmod(0o755)
    assert serving.ask(str(tmp_path), CONFIG).problem == "%s status: %s" % (command, problem)


def test_a_status_tells_which_resources_the_dra_driver_serves(tmp_path):
    command = tmp_path / "bin" / "node-device-plugin"
    command.parent.mkdir()
    served = [{**resource("x/dra"), "api": "dra"}, {**resource("x/plugin"), "api": "device_plugin"}, resource("x/old")]
    command.write_text(f"#!/bin/sh\necho '{answer(*served)}'\n")
    command.chmod(0o755)
    found = serving.ask(str(tmp_path), CONFIG).resources
    by_claim = {name: each["by_claim"] for name, each in found.items()}
    assert by_claim == {"x/dra": True, "x/plugin": False, "x/old": False}


def test_another_roots_change_is_its_own(node, tmp_path):
    change._write_guard("x.service", "/opt/other", B)
    node.run("present", A)
    assert os.path.lexists(change._paths()[0])


def test_an_interrupt_on_trial_brings_the_old_one_back(node, monkeypatch):
    node.add(B)
    asked = iter([seen(GOOD), KeyboardInterrupt(), seen(GOOD)])

    def ask(environment, config):
        found = next(asked)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(serving, "ask", ask)
    with pytest.raises(KeyboardInterrupt):
        node.run("present", B)
    assert node.links == [A, None]
    assert node.unit.started == [B, A]
    assert not os.path.lexists(change._paths()[0])


def test_the_guard_is_what_a_boot_needs(node):
    change._write_guard("x.service", "/opt/nd", A)
    path, link = change._paths()
    text = Path(path).read_text()
    assert "Before=x.service\n" in text
    assert f"ExecStart=/bin/ln -sfn versions/{A} /opt/nd/.current.back\n" in text
    assert "ExecStart=/bin/mv -T /opt/nd/.current.back /opt/nd/current\n" in text
    assert f"ExecStart=/bin/rm -f {link} {path}\n" in text
    assert os.readlink(link) == path


def test_the_last_versions_stay_and_the_one_before_is_among_them(node):
    node.add(B, age=20)
    node.run("present", B)
    node.add(C, age=10)
    node.run("present", C)
    assert node.links == [C, B]
    assert node.names == [B, C]
    node.params["keep"] = 3
    node.add(A, age=40)
    node.run("present", A)
    # The one before stays, although the other one is newer.
    node.params["keep"] = 2
    node.run("present", A)
    assert node.links == [A, C]
    assert node.names == [A, C]


def test_rolling_back_undoes_the_last_upgrade_once(node):
    node.add(B)
    node.run("present", B)
    report, told = node.run("rolled_back")
    assert node.links == [A, None]
    assert node.names == [A, B]
    assert report.changed
    assert told["was"] == B
    assert told["environment"].endswith(A)
    assert node.unit.started == [B, A]
    report, _told = node.run("rolled_back")
    assert not report.changed
    assert node.links == [A, None]
    assert node.unit.started == [B, A]


def test_an_upgrade_that_failed_is_not_undone_again(node):
    node.add(B)
    node.run("present", B)
    node.add(C, "fail it broke")
    with pytest.raises(change.NotReady):
        node.run("present", C)
    report, _told = node.run("rolled_back")
    assert not report.changed
    assert node.links == [B, None]
    assert node.names == [A, B]


@pytest.mark.parametrize("wanted", ["0.1.0", A])
def test_rolling_back_to_a_version_by_its_name(node, wanted):
    node.add(B)
    node.run("present", B)
    node.run("rolled_back", wanted)
    assert node.links == [A, None]
    # The version that runs already is not asked whether it can.
    (node.root / "versions" / A / "bin" / "python").unlink()
    report, _told = node.run("rolled_back", wanted)
    assert not report.changed


def test_rolling_back_to_what_is_not_there_or_cannot_run(node):
    node.add(B)
    node.run("present", B)
    with pytest.raises(VersionError, match=rf"version 0\.1 is not installed below .*: use one of {B}, {A}|{A}, {B}"):
        node.run("rolled_back", "0.1")
    (node.root / "versions" / A / "bin" / "python").unlink()
    with pytest.raises(VersionError, match=f"version {A} can no longer run on this node"):
        node.run("rolled_back")
    assert node.links == [B, A]
    assert node.unit.started == [B]


def test_a_roll_back_that_fails_leaves_all_as_it_was(node):
    node.add(B)
    node.run("present", B)
    node.unit.ends = {A}
    with pytest.raises(change.NotReady):
        node.run("rolled_back")
    assert node.links == [B, A]
    assert node.names == [A, B]
    assert node.unit.started == [B, A, B]


def test_rolling_back_where_nothing_is_installed(tmp_path):
    with pytest.raises(VersionError, match=r"no version is installed below .*: run site\.yml first"):
        Node(tmp_path).run("rolled_back")


SHOWN = (
    "ActiveState=%s\nSubState=running\nInvocationID=1\nExecStart={ path=%s ; argv[]=%s run --config /etc/c.yaml ; "
    "ignore_errors=no ; start_time=[n/a] ; pid=0 }\n"
)


@pytest.mark.parametrize(
    ("state", "path", "config"),
    [
        ("active", "/opt/nd/current/bin/node-device-plugin", "/etc/c.yaml"),
        ("activating", "/opt/nd/current/bin/node-device-plugin", None),
        ("active", "/usr/bin/node-device-plugin", None),
    ],
)
def test_which_service_runs_from_here(monkeypatch, state, path, config):
    monkeypatch.setattr(node_process, "answer_of", lambda command: (SHOWN % (state, path, path), None))
    assert change.Unit("x.service").config_run_from("/opt/nd") == config
    monkeypatch.setattr(node_process, "answer_of", lambda command: (None, "no systemd"))
    assert change.Unit("x.service").config_run_from("/opt/nd") is None


@pytest.mark.parametrize(
    ("states", "problem"),
    [
        ([("1", "deactivating", "stop"), ("2", "activating", "start"), ("2", "active", "running")], None),
        ([("1", "active", "running"), ("2", "activating", "auto-restart")], "its process ended"),
        ([("2", "failed", "failed")], "its process ended"),
        ([("2", "activating", "start")] * 2, "it did not start"),
    ],
)
def test_a_restart_is_watched_to_its_end(monkeypatch, states, problem):
    shown = iter([("1", "active", "running"), *states])
    clock = iter(range(100))

    def show(self):
        return dict(zip(("InvocationID", "ActiveState", "SubState"), next(shown), strict=False))

    monkeypatch.setattr(change.Unit, "show", show)
    monkeypatch.setattr(change, "answer_of", lambda command: ("", None))
    monkeypatch.setattr(
        change, "time", types.SimpleNamespace(sleep=lambda seconds: None, monotonic=lambda: next(clock))
    )
    assert change.Unit("x.service").restart(len(states)) == problem
