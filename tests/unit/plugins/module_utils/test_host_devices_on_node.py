"""The module host_devices, with stand-ins for /dev, udev and systemd-tmpfiles; files and ledger are real."""

from __future__ import annotations

import json
import os
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import device_nodes, plugin_command, udev_rules
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import host_devices as module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, LedgerConflict

TTY = 'SUBSYSTEM=="tty|usb", ATTRS{idVendor}=="0403", MODE="0660"'
FULL = 'SUBSYSTEM=="mem", KERNEL=="full", MODE="0640"'
OPEN = {"mode": 0o666, "uid": 0, "gid": 0}
SHUT = {"mode": 0o600, "uid": 0, "gid": 0}


def line(path, minor=8, mode="0666", owner="0"):
    return f"c {path} {mode} {owner} 0 - 1:{minor}"


_UNLINK = os.unlink


class Killed(BaseException):
    """The play died here."""


class Node:
    """devices: path to number and access. commands: those that were run. fails: which one fails."""

    def __init__(self, tmp_path, monkeypatch):
        self.root = tmp_path
        self.devices = {}
        self.kernels = set()
        self.commands = []
        self.fails = None
        self.dies_at = None
        self.held, self.asked = [], 0
        for name in ("MODULES", "OPTIONS", "RULES", "NODES"):
            monkeypatch.setattr(module, name, str(tmp_path / name.lower()))
        monkeypatch.setattr(module, "_UDEV", str(tmp_path))
        monkeypatch.setattr(module, "held", self.ask)
        #: The programs of the node, and the kernel modules that it has loaded or built in.
        self.programs, self.loaded = {"modprobe": "/sbin/modprobe"}, set()
        monkeypatch.setattr(module, "get_bin_path", self.get_bin_path)
        monkeypatch.setattr(module, "_is_loaded", lambda name: name in self.loaded)
        for name in ("is_node", "access_of", "set_access", "is_the_kernels", "is_device", "in_sysfs"):
            monkeypatch.setattr(device_nodes, name, getattr(self, name))
        monkeypatch.setattr(module.os, "unlink", self.unlink)
        monkeypatch.setattr(module.os.path, "realpath", lambda path: path)

    def is_node(self, path, device):
        assert device.kind == "c"
        return self.devices[path][0] == device.number if path in self.devices else None

    def access_of(self, path):
        return self.devices[path][1]

    def set_access(self, path, access):
        self.devices[path] = (self.devices[path][0], {key: access[key] for key in SHUT})

    def is_the_kernels(self, path, _device):
        return path in self.kernels

    def is_device(self, path):
        return path in self.devices

    def in_sysfs(self, path):
        return ("mem", path.rpartition("/")[2])

    def unlink(self, path):
        if path in self.devices:
            del self.devices[path]
        else:
            _UNLINK(path)

    def get_bin_path(self, name):
        if name not in self.programs:
            raise ValueError(f"Failed to find required executable {name}")
        return self.programs[name]

    def run_command(self, command, handle_exceptions=True):
        self.commands.append(" ".join(command))
        if self.dies_at and self.dies_at in command:
            raise Killed
        if self.fails and self.fails in command:
            return 1, "", "no"
        if "--show-depends" in command:
            return 0, f"insmod /lib/modules/{command[-1]}.ko\n", ""
        if command[0] == "/sbin/modprobe":
            self.loaded.add(command[-1])
        if command[0] == "systemd-tmpfiles":
            with open(module.NODES) as file:
                for node in device_nodes.parsed(file.read().splitlines()).values():
                    self.devices[node.path] = (node.device.number, node.access)
        return 0, "", ""

    def run(self, nodes=(), rules=(), modules=(), options=(), held=(), prune=True, check=False, made=False, awaited=()):
        """An execution; returns what there was to do and what was kept."""
        files = {module.NODES: nodes, module.RULES: rules, module.MODULES: modules, module.OPTIONS: options}
        parameters = {
            "files": {path: list(lines) for path, lines in files.items() if lines},
            "state": "pruned" if made else "present",
            "prune": prune,
        }
        of_module = types.SimpleNamespace(
            run_command=self.run_command, set_default_selinux_context=lambda path, changed: changed
        )
        stand_in = node_module.Node(of_module, check, facts={"awaited": list(awaited)})
        self.commands.clear()
        self.held = [{"who": who, "paths": [path], "ours": True} for path, who in dict(held).items()]
        self.asked = 0
        with stand_in.ledger() as ledger:
            host = module.HostDevices(stand_in, ledger, parameters)
            host.converge()
        return types.SimpleNamespace(
            actions=host.actions,
            kept={each["path"]: each["reason"] for each in host.report.kept},
            diff={
                each["before_header"].partition(" (mode")[0]: (each["before"], each["after"])
                for each in host.report.diffs
            },
            changed=host.report.changed or bool(host.actions),
            leftovers=host.leftovers,
            asked=self.asked,
            warnings=stand_in.warnings,
            unshown=stand_in.has_unshown_work,
        )

    def ask(self, _node, _parameters):
        """What pods hold, as the plugin's command tells it."""
        self.asked += 1
        return self.held

    def foreseen(self, **wanted):
        """Why the preflight refuses a run that removes nothing, or what it would do; None if it has to be executed."""
        try:
            done = self.run(**wanted, prune=False, check=True)
        except LedgerConflict as conflict:
            return str(conflict)
        return None if done.changed or done.unshown else done

    def entries(self):
        path = self.root / "ledger" / "ledger.json"
        return json.loads(path.read_text())["entries"] if path.exists() else {}

    def lines(self, name):
        path = self.root / name
        return path.read_text().splitlines()[1:] if path.exists() else []


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(node_module, "Ledger", lambda: Ledger(str(tmp_path / "ledger")))
    return Node(tmp_path, monkeypatch)


def test_a_module_is_loaded_unless_the_kernel_has_it(node):
    node.loaded = {"fuse"}
    assert node.run(modules=["fuse", "lamp"]).actions == ["loaded lamp"]
    assert [command for command in node.commands if "modprobe" in command] == [
        "/sbin/modprobe --show-depends lamp",
        "/sbin/modprobe lamp",
    ]


@pytest.fixture
def pauses(monkeypatch):
    """Each pause, after which 0.1 s more are over; and what happens in it."""
    taken, happens = [], {}

    def sleep(seconds):
        taken.append(seconds)
        happens.get(len(taken), lambda: None)()

    clock = types.SimpleNamespace(monotonic=lambda: len(taken) / 10, sleep=sleep)
    monkeypatch.setattr(module, "time", clock)
    return types.SimpleNamespace(taken=taken, happens=happens)


def test_a_driver_that_finds_its_device_after_modprobe_has_ended(node, pauses, tmp_path):
    there, late = tmp_path / "video0", tmp_path / "video1"
    there.touch()
    pauses.happens[3] = late.touch
    awaited = [str(there), str(late)]
    assert node.run(modules=["lamp"], awaited=awaited).actions == ["loaded lamp"]
    assert node.commands[-2:] == ["/sbin/modprobe lamp", "udevadm settle --timeout=10"]
    assert len(pauses.taken) == 3
    # Nothing is loaded now.
    late.unlink()
    assert node.run(modules=["lamp"], awaited=awaited).actions == []
    assert len(pauses.taken) == 3


@pytest.mark.parametrize("check", [True, False])
def test_a_device_that_does_not_come_is_not_waited_for_long(node, pauses, tmp_path, monkeypatch, check):
    """Nor is a busy udev an error. Without udev, only the kernel creates devices."""
    node.fails = "settle"
    monkeypatch.setattr(module, "_UDEV", str(tmp_path / "none"))
    awaited = [str(tmp_path / "video1")]
    assert node.run(modules=["lamp"], awaited=awaited, check=check).actions == ["loaded lamp"]
    assert not any("settle" in command for command in node.commands)
    assert len(pauses.taken) == (0 if check else 50)
    node.loaded.clear()
    monkeypatch.setattr(module, "_UDEV", str(tmp_path))
    assert node.run(modules=["lamp"], check=check).actions == ["loaded lamp"]
    assert any("settle" in command for command in node.commands) is not check


def test_a_node_without_modprobe_is_refused_before_anything_is_written(node):
    """The module, its check mode and the preflight say the same."""
    node.programs.clear()
    says = r"this node has no modprobe, which host_devices_modules needs to load lamp: install kmod"
    for check in (True, False):
        with pytest.raises(LedgerConflict, match=says):
            node.run([line("/dev/lamp0")], modules=["lamp"], check=check)
    assert node.foreseen(modules=["lamp"]).startswith("this node has no modprobe")
    assert (node.entries(), node.lines("modules"), node.commands, node.devices) == ({}, [], [], {})
    # What the kernel has needs no modprobe.
    node.loaded = {"lamp"}
    assert not node.run(modules=["lamp"]).actions
    assert node.foreseen(modules=["lamp"]).actions == []


def test_a_module_that_the_kernel_lacks_is_refused_before_anything_is_written(node):
    node.fails = "--show-depends"
    with pytest.raises(LedgerConflict, match=r"has lamp, which the running kernel .* lacks \(no\)"):
        node.run([line("/dev/lamp0")], modules=["lamp"])
    assert "lamp, which the running kernel" in node.foreseen(modules=["lamp"])
    assert (node.entries(), node.lines("modules"), node.devices) == ({}, [], {})


def test_what_the_module_refuses_is_refused_by_the_preflight(node):
    node.devices["/dev/lamp0"] = ("1:9", OPEN)
    assert "already exists and is another device" in node.foreseen(nodes=[line("/dev/lamp0")])


def test_modules_that_the_kernel_has(tmp_path, monkeypatch):
    release = tmp_path / "lib" / "modules" / os.uname().release
    release.mkdir(parents=True)
    (release / "modules.builtin").write_text("kernel/fs/fuse/fuse.ko\nkernel/drivers/x/snd-seq.ko\n")
    (tmp_path / "sys" / "module" / "vfio_pci").mkdir(parents=True)
    opened = open
    monkeypatch.setattr(module.os.path, "isdir", lambda path: (tmp_path / path.lstrip("/")).is_dir())
    monkeypatch.setattr("builtins.open", lambda path, *more, **keys: opened(f"{tmp_path}{path}", *more, **keys))
    found = [name for name in ("vfio-pci", "vfio_pci", "fuse", "snd_seq", "seq", "lamp") if module._is_loaded(name)]
    assert found == ["vfio-pci", "vfio_pci", "fuse", "snd_seq"]


def test_a_node_is_made_once_and_gets_another_mode_when_it_is_declared(node):
    assert node.run([line("/dev/lamp0")]).actions == ["made /dev/lamp0"]
    assert not node.run([line("/dev/lamp0")]).changed
    said = node.run([line("/dev/lamp0", mode="0600")], check=True)
    assert node.devices["/dev/lamp0"][1] == OPEN
    done = node.run([line("/dev/lamp0", mode="0600")])
    assert said.actions == done.actions == ["changed /dev/lamp0"]
    shown = ("c 1:8, mode 0666, owner 0:0\n", "c 1:8, mode 0600, owner 0:0\n")
    assert said.diff["/dev/lamp0"] == done.diff["/dev/lamp0"] == shown
    assert node.devices["/dev/lamp0"][1] == SHUT
    # Somebody changed it.
    node.set_access("/dev/lamp0", {**SHUT, "uid": 7})
    assert node.run([line("/dev/lamp0", mode="0600")]).actions == ["changed /dev/lamp0"]


def changed_mode(node):
    node.set_access("/dev/lamp0", SHUT)


def deleted(node):
    del node.devices["/dev/lamp0"]


def edited_file(node):
    with open(module.NODES, "a") as file:
        file.write("# edited\n")


def lost_ledger(node):
    (node.root / "ledger" / "ledger.json").unlink()


def unrecorded(node):
    ledger = node.root / "ledger" / "ledger.json"
    data = json.loads(ledger.read_text())
    del data["entries"]["/dev/lamp0"]
    ledger.write_text(json.dumps(data))


def pending_rules(node):
    ledger = node.root / "ledger" / "ledger.json"
    data = json.loads(ledger.read_text())
    data["entries"]["/run/udev"] = {"kind": "udev rules", "owner": "host_devices udev", "rules": [TTY]}
    ledger.write_text(json.dumps(data))


@pytest.mark.parametrize(
    "drift",
    [None, changed_mode, deleted, edited_file, lost_ledger, unrecorded, pending_rules],
    ids=lambda drift: drift and drift.__name__,
)
def test_devices_that_are_as_wanted_are_foreseen_and_drift_is_not(node, drift):
    node.run([line("/dev/lamp0")], [TTY])
    if drift:
        drift(node)
    before, devices = node.entries(), dict(node.devices)
    node.commands.clear()
    answer = node.foreseen(nodes=[line("/dev/lamp0")], rules=[TTY])
    assert (node.entries(), node.devices, node.commands) == (before, devices, [])
    if drift:
        assert answer is None
    else:
        assert (answer.leftovers, answer.kept, answer.diff, answer.actions) == (False, {}, {}, [])
    # One line more has to be executed, and one line fewer is left over for a later execution.
    assert node.foreseen(nodes=[line("/dev/lamp0"), line("/dev/lamp1")], rules=[TTY]) is None
    fewer = node.foreseen(rules=[TTY])
    assert fewer.leftovers if drift in (None, changed_mode, deleted) else fewer is None


def test_what_was_there_before_us_gets_its_mode_back_and_is_never_deleted(node):
    node.devices["/dev/lamp0"] = (device_nodes.DeviceNode(line("/dev/lamp0")).device.number, SHUT)
    node.run([line("/dev/lamp0"), line("/dev/lamp1")])
    assert node.devices["/dev/lamp0"][1] == OPEN
    done = node.run()
    assert done.actions == ["restored /dev/lamp0", "removed /dev/lamp1"]
    assert done.diff["/dev/lamp1"] == ("c 1:8, mode 0666, owner 0:0\n", "")
    assert {path: access for path, (_, access) in node.devices.items()} == {"/dev/lamp0": SHUT}
    assert node.entries() == {}


@pytest.mark.parametrize("dies_at", ["systemd-tmpfiles", "udevadm", "trigger", "settle"])
def test_what_a_run_that_died_left_undone_the_next_one_does(node, dies_at):
    node.run([line("/dev/lamp0")], [TTY])
    node.dies_at = dies_at
    with pytest.raises(Killed):
        node.run([line("/dev/lamp1")], [FULL])
    node.dies_at = None
    node.run([line("/dev/lamp1")], [FULL])
    assert list(node.devices) == ["/dev/lamp1"]
    assert "udevadm control --reload" in node.commands
    assert "udevadm trigger --action=change --subsystem-match=mem --sysname-match=full" in node.commands
    # And what the old rule was about, which udev has to forget.
    assert "udevadm trigger --action=change --subsystem-match=tty --subsystem-match=usb" in node.commands
    assert not node.run([line("/dev/lamp1")], [FULL]).changed
    assert node.commands == []


def test_rules_that_udev_could_not_take_in_are_tried_again(node):
    node.fails = "trigger"
    with pytest.raises(OSError, match=r"udevadm trigger .*: no"):
        node.run(rules=[FULL])
    assert node.run(rules=[FULL], check=True).actions == ["udev rules applied"]
    node.fails = None
    assert node.run(rules=[FULL]).actions == ["udev rules applied"]
    assert node.run(rules=[FULL]).actions == []
    node.fails = "settle"
    with pytest.raises(OSError, match="udevadm settle"):
        node.run()
    node.fails = None
    assert node.run().actions == ["udev rules applied"]
    assert node.entries() == {}


def test_a_rule_without_a_subsystem_triggers_nothing_and_says_so(node):
    rule = 'ATTRS{idVendor}=="0403", MODE="0660"'
    done = node.run(rules=[rule, 'LABEL="end"'])
    assert [command for command in node.commands if "trigger" in command] == []
    (warning,) = done.warnings
    assert warning.endswith(": " + rule)


def test_what_a_held_device_needs_stays_and_goes_after_its_pod(node):
    node.devices["/dev/random"] = (device_nodes.DeviceNode(line("/dev/random")).device.number, OPEN)
    everything = {"nodes": [line("/dev/lamp0"), line("/dev/lamp1")], "rules": [TTY], "modules": ["lamp"]}
    everything["options"] = ["options lamp a=1"]
    node.run(**everything)
    held = {"/dev/lamp0": "default/c1 as example.com/lamp"}
    said, done = node.run(held=held, check=True), node.run(held=held)
    why = "it may be needed for /dev/lamp0 of default/c1 as example.com/lamp"
    kept = {"/dev/lamp0": "held by default/c1 as example.com/lamp", module.MODULES: why, module.OPTIONS: why}
    assert said.kept == done.kept == kept
    assert set(said.diff) == set(done.diff) == {"/dev/lamp1", module.NODES, module.RULES}
    assert "/dev/lamp0" in node.devices
    assert node.lines("nodes") == [line("/dev/lamp0")]
    assert (node.lines("modules"), node.lines("options")) == (["lamp"], ["options lamp a=1"])
    # No rule for a tty says anything of it; one for all of its subsystem may.
    assert node.lines("rules") == []
    again = node.run(held=held)
    assert (again.changed, again.kept) == (False, kept)
    assert node.run().actions == ["removed /dev/lamp0"]
    assert node.entries() == {}


def test_rules_that_may_be_about_a_held_device_stay(node):
    node.devices["/dev/full"] = (device_nodes.DeviceNode(line("/dev/full")).device.number, OPEN)
    node.run(rules=[TTY, FULL])
    assert node.run(held={"/dev/full": "default/c1"}).kept == {
        module.RULES: "it may be needed for /dev/full of default/c1"
    }
    assert node.lines("rules") == [TTY, FULL]
    assert node.commands == []


def test_what_is_not_wanted_any_more_stays_until_it_may_go(node):
    """In site.yml: the plugin stops to offer a device before its node goes."""
    node.run([line("/dev/lamp0")], modules=["lamp"])
    done = node.run([line("/dev/lamp1")], prune=False)
    assert (done.actions, done.leftovers, done.kept) == (["made /dev/lamp1"], True, {})
    assert node.lines("nodes") == [line("/dev/lamp1"), line("/dev/lamp0")]
    done = node.run([line("/dev/lamp1")])
    assert (done.actions, done.leftovers) == (["removed /dev/lamp0"], False)
    assert (node.lines("nodes"), node.lines("modules")) == ([line("/dev/lamp1")], [])


def test_check_mode_says_of_both_steps_what_they_do(node):
    """Although the first one has made nothing for the second one to find."""
    edited = {
        "nodes": [line("/dev/lamp0", mode="0600"), line("/dev/lamp2")],
        "rules": [FULL],
        "modules": ["lamp"],
        "options": ["options lamp bright=1"],
    }
    for held in ({}, {"/dev/lamp1": "default/c1"}):
        node.run([line("/dev/lamp0"), line("/dev/lamp1")], [TTY], ["lamp", "fan"], ["options lamp bright=0"])
        said = [node.run(**edited, prune=False, check=True), node.run(**edited, held=held, check=True, made=True)]
        done = [node.run(**edited, prune=False), node.run(**edited, held=held, made=True)]
        for one, other in zip(said, done, strict=True):
            assert (one.changed, one.kept, one.diff) == (other.changed, other.kept, other.diff)
            assert one.actions == other.actions
        assert done[1].changed
        node.run()


def test_our_node_becomes_another_device_but_not_while_it_is_held_and_a_foreign_one_never(node):
    node.run([line("/dev/lamp0")])
    with pytest.raises(LedgerConflict, match="held by default/c1"):
        node.run([line("/dev/lamp0", minor=9)], held={"/dev/lamp0": "default/c1"})
    assert node.run([line("/dev/lamp0", minor=9)]).actions == ["removed /dev/lamp0", "made /dev/lamp0"]
    assert node.run().actions == ["removed /dev/lamp0"]
    node.devices["/dev/theirs"] = (device_nodes.DeviceNode(line("/dev/theirs")).device.number, OPEN)
    with pytest.raises(
        LedgerConflict,
        match="/dev/theirs already exists and is another device or file: remove it, or declare another path",
    ):
        node.run([line("/dev/theirs", minor=9)])


def test_who_holds_what_is_asked_where_something_may_go(node):
    """Once, in check mode too. The module has to ask again then."""
    one, other = line("/dev/lamp0"), line("/dev/lamp1")
    assert node.run([one], [TTY], ["lamp"], ["options lamp a=1"]).asked == 0
    kept = {"nodes": [one], "rules": [TTY], "modules": ["lamp"], "options": ["options lamp a=1"]}
    less = [{"nodes": [other]}, {"rules": [FULL]}, {"modules": ["fan"], "options": []}]
    for each in [*less, {"nodes": [line("/dev/lamp0", minor=9)]}]:
        said = node.run(**{**kept, **each}, check=True)
        assert (said.asked, said.unshown, said.changed) == (1, True, True)
    # Without ``prune``, nothing goes except a node that becomes another device.
    for each in less:
        assert node.run(**{**kept, **each}, prune=False, check=True).asked == 0
    assert node.run(**{**kept, "nodes": [line("/dev/lamp0", minor=9)]}, prune=False).asked == 1
    node.run(**kept)
    # What is added, or of a wanted module has other options, needs no question.
    more = {**kept, "nodes": [one, other], "options": ["options lamp a=2"]}
    assert (node.run(**more).actions, node.asked) == (["made /dev/lamp1"], 0)
    assert node.run(**more, made=True).asked == 0


@pytest.fixture
def converge(node, monkeypatch):
    """Converges as the module does, and returns the answer."""
    lines, paths = module.lines, [module.MODULES, module.OPTIONS, module.RULES, module.NODES]
    monkeypatch.setattr(module, "lines", lambda *wanted: dict(zip(paths, lines(*wanted).values(), strict=True)))

    def converged(check=False, nodes=(), **parameters):
        of_module = types.SimpleNamespace(
            run_command=node.run_command, set_default_selinux_context=lambda *_given: None
        )
        stand_in = node_module.Node(of_module, check, facts={"served": ["example.com/others"]})
        parameters = {"state": "present", "modules": None, "udev_rules": [], "prune": True, **parameters}
        return stand_in.converged(module.converge, {**parameters, "nodes": list(nodes)})

    return converged


LAMP = {"path": "/dev/lamp0", "type": "c", "major": 1, "minor": 8, "mode": "0666", "owner": "0", "group": "0"}


@pytest.mark.parametrize("check", [True, False])
def test_nothing_changes_where_nobody_knows_who_holds_what(node, converge, monkeypatch, check):
    converge(nodes=[LAMP])
    before = (node.entries(), dict(node.devices), node.lines("nodes"))
    monkeypatch.setattr(module, "held", lambda *_given: (_ for _ in ()).throw(plugin_command.CommandError("why")))
    answer = converge(check)
    assert (answer["in_use"], answer["changed"], answer["diff"]) == (["why"], False, [])
    assert (node.entries(), node.devices, node.lines("nodes")) == before


def test_an_uninstall_needs_no_variables(node, converge):
    assert converge(nodes=[LAMP])["actions"] == ["made /dev/lamp0"]
    assert converge(nodes=[LAMP])["changed"] is False
    answer = converge(state="absent")
    assert (answer["actions"], answer["in_use"], node.entries()) == (["removed /dev/lamp0"], [], {})


HELD = {"resource": "example.com/lamp", "device": "l0", "namespace": "default", "pod": "c1", "container": "main"}


def test_whose_device_a_pod_holds(monkeypatch):
    """A device that no plugin offers counts as ours."""
    shared = {**HELD, "resource": "example.com/others", "all_host_paths": ["/dev/other0"], "by_our_cdi": False}
    lamp = {**HELD, "all_host_paths": ["/dev/ctl", "/dev/lamp0"], "by_our_cdi": True}
    told = [lamp, shared, {**shared, "resource": "example.com/gone", "namespace": ""}]
    answer = {"held": told, "allocatable": {"example.com/lamp": ["l0"], "example.com/others": ["l0"]}}
    monkeypatch.setattr(plugin_command, "holders", lambda _node, given: answer if given == {"a": 1} else None)

    def judged(served):
        return module.held(types.SimpleNamespace(facts={"served": served} if served else {}), {"a": 1})

    assert judged(()) == [
        {"who": "default/c1 as example.com/lamp", "paths": ["/dev/ctl", "/dev/lamp0"], "ours": True},
        {"who": "default/c1 as example.com/others", "paths": ["/dev/other0"], "ours": False},
        {"who": "c1 as example.com/gone", "paths": ["/dev/other0"], "ours": True},
    ]
    assert [each["ours"] for each in judged(["example.com/others"])] == [True, True, True]


def test_a_user_that_the_node_lacks_is_named_before_anything_is_written(node):
    with pytest.raises(LedgerConflict, match="the node has no user no-such-user"):
        node.run([line("/dev/lamp0", owner="no-such-user")])
    assert node.entries() == {}


@pytest.mark.parametrize(
    ("rule", "trigger"),
    [
        (FULL, ["--subsystem-match=mem", "--sysname-match=full"]),
        ('KERNEL=="sd*|nvme*", MODE="0660"', ["--sysname-match=sd*", "--sysname-match=nvme*"]),
        ('SUBSYSTEM!="tty", SUBSYSTEMS=="usb", MODE="0660"', []),
        ('SUBSYSTEM==i"TTY", MODE="0660"', []),
    ],
)
def test_what_a_rule_is_applied_to(rule, trigger):
    assert udev_rules.Rule(rule).trigger == trigger


def test_which_devices_a_rule_may_be_about():
    assert udev_rules.Rule(FULL).is_about("mem", "full")
    assert not udev_rules.Rule(FULL).is_about("mem", "null")
    assert not udev_rules.Rule(FULL).is_about("tty", "full")
    assert udev_rules.Rule('ATTRS{a}=="b", MODE="0660"').is_about("tty", "ttyS0")
    assert not udev_rules.Rule('ACTION=="remove", GOTO="end"').is_about("tty", "ttyS0")
