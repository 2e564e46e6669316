"""What module cdi_specs does on a node: what it writes, what it keeps, and what stops it."""

from __future__ import annotations

import json
import os
import types

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import cdi_specs, files
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as nodes

from node_device_plugin import declaration
from node_device_plugin.cdi import role_specs

FILE = "node-device-plugin_example.com_camera.json"
HELD = {"resource": "example.com/camera", "device": "a", "namespace": "default", "pod": "viewer"}
HELD.update(all_host_paths=[], by_our_cdi=True)


def camera(*ids, gid=None, **more):
    nodes_of = {name: {"path": f"/dev/{name}", **({"gid": gid} if gid else {})} for name in ids}
    devices = [{"id": name, "nodes": [nodes_of[name]]} for name in ids]
    return {"resources": [{"name": "example.com/camera", "devices": devices, **more}]}


class Node:
    """A node's directories, and the answers of its command ``holders``, the last of these for ever."""

    def __init__(self, directory):
        self.cdi, self.dynamic, self.plugins = (str(directory / name) for name in ("cdi", "dynamic", "plugins"))
        self.ledger = str(directory / "ledger")
        self.answers = [{"held": [], "allocatable": {}}]
        self.asked, self.slept = [], 0.0
        self.runtime = {"name": "containerd", "version": "1.7.24"}

    def run_command(self, command, handle_exceptions):
        assert not handle_exceptions
        self.asked.append(command)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, tuple) else (0, json.dumps(answer), "")

    def set_default_selinux_context(self, path, changed):
        return changed

    def facts(self):
        return {"runtime": self.runtime, "cdi_directories": [self.cdi, self.dynamic], "kubelet_root": "/kubelet"}

    def converge(self, configuration=None, check=False, facts=None, **params):
        params = {"command": "/bin/plugin", "device_plugin_dir": self.plugins, **params}
        if configuration is not None:
            params["configuration"] = configuration
        validated = ArgumentSpecValidator(cdi_specs.PARAMS).validate(params)
        assert not validated.error_messages
        there = nodes.Node(self, check_mode=check, facts=facts or self.facts())
        answer = there.converged(cdi_specs.converge, validated.validated_parameters)
        self.has_unshown_work = there.has_unshown_work
        return answer

    def devices(self):
        with open(f"{self.cdi}/{FILE}") as file:
            return [device["name"] for device in json.load(file)["devices"]]


@pytest.fixture
def node(tmp_path, monkeypatch):
    made = Node(tmp_path)

    def sleep(seconds):
        made.slept += seconds

    monkeypatch.setattr(role_specs, "DIRECTORY", made.cdi)
    monkeypatch.setattr(nodes, "Ledger", lambda: ledger.Ledger(made.ledger))
    monkeypatch.setattr(cdi_specs, "time", types.SimpleNamespace(monotonic=lambda: made.slept, sleep=sleep))
    return made


def test_a_second_run_changes_nothing_and_asks_nobody(node):
    first = node.converge(camera("a", "b"))
    assert (first["changed"], first["written"]) == (True, [f"{node.cdi}/{FILE}", node.cdi])
    assert oct(os.stat(f"{node.cdi}/{FILE}").st_mode)[-3:] == "644"
    for state in ("present", "pruned"):
        for check in (False, True):
            again = node.converge(camera("a", "b"), check, state=state)
            assert (again["changed"], again["written"], again["diff"], again["devices"]) == (False, [], [], [])
            assert again["files"] == first["files"]
    assert node.asked == []


def test_a_look_reads_the_specs_once_for_both_states(node, monkeypatch):
    node.converge(camera("a", "b"))
    found, find, facts = [], role_specs.find, node.facts()
    monkeypatch.setattr(role_specs, "find", lambda *arguments: found.append(arguments) or find(*arguments))
    answers = [node.converge(camera("b"), True, facts, state=state) for state in ("present", "pruned")]
    assert [answer["changed"] for answer in answers] == [True, True]
    assert len(found) == 1


def test_a_look_parses_the_declaration_and_the_ledger_once(node, monkeypatch):
    node.converge(camera("a", "b"))
    declared, facts, parse, load = camera("b"), node.facts(), declaration.parse_configuration, json.load
    parsed, loaded = [], []
    monkeypatch.setattr(declaration, "parse_configuration", lambda *a, **b: parsed.append(a) or parse(*a, **b))
    monkeypatch.setattr(ledger.json, "load", lambda file: loaded.append(file.name) or load(file))
    for state in ("present", "pruned"):
        node.converge(json.loads(json.dumps(declared)), True, facts, state=state)
    item = {"path": f"{node.cdi}/x", "type": "file", "content": None, "configuration": declared, "validate": None}
    answer = nodes.Node(node, True, facts).converged(files.converge, {"owner": "device_plugin", "files": [item]})
    assert answer["changed"] is True
    assert (len(parsed), loaded) == (1, [f"{node.ledger}/ledger.json"])


def test_a_ledger_that_another_process_wrote_is_read_again(node):
    with ledger.Ledger(node.ledger) as mine:
        mine.entries["/a"] = {"kind": "file", "owner": "x"}
        mine.save()
    waiting = ledger.Ledger(node.ledger)
    with ledger.Ledger(node.ledger) as other:
        other.entries["/b"] = {"kind": "file", "owner": "x"}
        other.save()
    with waiting:
        assert waiting.of("x") == ["/a", "/b"]


def test_a_device_that_is_no_longer_declared_stays_until_nobody_holds_it(node):
    node.converge(camera("a", "b"))
    assert node.converge(camera("b"))["changed"] is True
    assert node.devices() == ["b", "a"]
    node.answers = [{"held": [HELD], "allocatable": {}}]
    kept = node.converge(camera("b"), state="pruned")
    assert (kept["changed"], kept["devices"]) == (
        False,
        [{"device": "example.com/camera=a", "reason": "held by default/viewer"}],
    )
    assert node.asked[-1] == [
        *("/bin/plugin", "holders", "--kubelet-root", "/kubelet", "--device-plugin-dir", node.plugins, "-o", "json")
    ]
    node.answers = [{"held": [], "allocatable": {}}]
    assert node.converge(camera("b"), state="pruned")["changed"] is True
    assert node.devices() == ["b"]


def test_what_pods_hold_is_asked_again_by_the_role_s_task(node):
    """The preflight's answer is older, and the play may have installed another command since."""
    node.converge(camera("a", "b"))
    assert node.converge(camera("a", "b"), True)["changed"] is node.has_unshown_work is False
    node.converge(camera("b"))
    node.answers = [{"held": [HELD], "allocatable": {}}]
    assert node.converge(camera("b"), True)["changed"] is node.has_unshown_work is False
    for state in ("pruned", "absent"):
        answer = node.converge(camera("b") if state == "pruned" else None, True, state=state)
        assert (answer["devices"][0]["device"], node.has_unshown_work) == ("example.com/camera=a", True)
    other = camera("a", "b")
    other["resources"][0]["devices"][0]["nodes"] = [{"path": "/dev/other"}]
    assert node.converge(other, True)["in_use"]
    assert node.has_unshown_work is True


def test_prune_waits_until_the_kubelet_no_longer_lists_a_device(node):
    node.converge(camera("a", "b"))
    offered = {"held": [], "allocatable": {"example.com/camera": ["a", "b"]}}
    node.answers = [offered, offered, {"held": [], "allocatable": {"example.com/camera": ["b"]}}]
    assert node.converge(camera("b"), state="pruned")["devices"] == []
    assert (node.slept, node.devices()) == (1.0, ["b"])
    # A device that the kubelet still lists after some seconds stays.
    node.converge(camera("b", "c"))
    node.answers = [{"held": [], "allocatable": {"example.com/camera": ["b", "c"]}}]
    assert node.converge(camera("b"), state="pruned")["devices"] == [
        {"device": "example.com/camera=c", "reason": "still offered by the kubelet as example.com/camera"}
    ]
    # In check mode, a real run's plugin would have withdrawn it.
    slept = node.slept
    assert node.converge(camera("b"), True, state="pruned")["devices"] == []
    assert node.slept == slept


def test_a_held_device_that_would_become_another_one_stops_the_run(node):
    node.converge(camera("a", "b"))
    node.answers = [{"held": [HELD], "allocatable": {}}]
    swapped = camera("a", "b")
    swapped["resources"][0]["devices"][0]["nodes"] = [{"path": "/dev/other"}]
    for check in (False, True):
        answer = node.converge(swapped, check)
        assert (answer["changed"], answer["problems"], answer["in_use"]) == (
            False,
            [],
            [
                "example.com/camera=a is held by default/viewer and would become another device (/dev/other instead of "
                "/dev/a): declare the new device with another id, or end the pod first"
            ],
        )
    # Without the command, the plugin allocated nothing.
    node.answers = [FileNotFoundError()]
    assert node.converge(swapped)["changed"] is True


@pytest.mark.parametrize("state", ["pruned", "absent"])
def test_a_missing_command_with_and_without_a_checkpoint(node, state):
    node.converge(camera("a", "b"))
    node.answers = [FileNotFoundError()]
    os.mkdir(node.plugins)
    checkpoint = f"{node.plugins}/kubelet_internal_checkpoint"
    with open(checkpoint, "w"):
        pass
    wanted = camera("b") if state == "pruned" else None
    refused = node.converge(wanted, state=state)
    assert (refused["changed"], refused["in_use"]) == (
        False,
        [
            "/bin/plugin is not installed on the node: run role node_tools (site.yml) first; without this command, the "
            f"play cannot tell whether a pod holds a device that would be removed, and {checkpoint} exists, so the "
            "kubelet may have allocated one"
        ],
    )
    os.unlink(checkpoint)
    assert node.converge(wanted, state=state)["in_use"] == []
    assert os.path.exists(f"{node.cdi}/{FILE}") is (state == "pruned")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ((1, "", "Traceback\nit broke\n"), "it broke"),
        ((3, "it spoke\n", ""), "it spoke"),
        ((4, "", ""), "4"),
        (
            (2, "", "unrecognized arguments: --cdi-dir"),
            "unrecognized arguments: --cdi-dir; the node's command is of another release than this collection: run "
            "upgrade.yml, or use the collection of the node's release",
        ),
    ],
)
def test_a_command_that_fails_stops_a_removal(node, said, why):
    node.converge(camera("a"))
    node.answers = [said]
    answer = node.converge(state="absent", cdi_dir="/elsewhere")
    assert (answer["changed"], answer["in_use"]) == (False, [f"/bin/plugin holders failed: {why}"])
    assert node.asked[-1][-4:] == ["--cdi-dir", "/elsewhere", "-o", "json"]
    assert node.devices() == ["a"]


def test_nothing_is_written_if_the_runtime_would_refuse_it(node):
    node.runtime = {"name": "containerd", "version": "1.7.12"}
    answer = node.converge(camera("a", container_edits={"additional_gids": [5]}))
    assert answer["changed"] is False
    assert "needs CDI 0.7.0, and containerd 1.7.12 accepts CDI up to 0.6.0" in answer["problems"][0]
    assert not os.path.exists(node.cdi)


def test_a_group_has_the_node_s_number_or_stops_the_run(node):
    node.converge(camera("a", gid="root"))
    with open(f"{node.cdi}/{FILE}") as file:
        assert json.load(file)["devices"][0]["containerEdits"]["deviceNodes"][0]["gid"] == 0
    answer = node.converge(camera("a", gid="no-such-group"))
    assert (answer["changed"], answer["problems"]) == (
        False,
        [
            "example.com/camera.devices (a).nodes[0].gid: the node has no group 'no-such-group': create the group "
            "there, or give its number"
        ],
    )


def test_other_owners_files_are_judged_without_a_declaration(node):
    os.mkdir(node.dynamic)
    spec = {"cdiVersion": "0.6.0", "kind": "vendor.com/x", "devices": []}
    with open(f"{node.dynamic}/x.json", "w") as file:
        json.dump(spec, file)
    answer = node.converge(check=True)
    assert (answer["changed"], answer["problems"], answer["files"]) == (False, [], [])
    assert answer["crashing"][0].startswith(f"{node.dynamic}/x.json: kind: the CDI class 'x' has fewer than two")
    assert answer["broken"][0].startswith(f"{node.dynamic}/x.json: kind: the CDI class 'x' has fewer than two")


def test_a_device_of_another_owner_that_is_needed_must_be_there_if_the_runtime_is_known(node):
    wanted = {"resources": [{"name": "a.io/b", "devices": [{"id": "d", "cdi_devices": ["nvidia.com/gpu=0"]}]}]}
    assert node.converge(wanted, True)["problems"][0].startswith("nvidia.com/gpu=0 is in no valid CDI spec of the node")
    node.runtime = {"name": None, "version": None}
    assert node.converge(wanted, True)["problems"] == []


def test_a_template_s_spec_is_written_as_it_is(node):
    name = "node-devices_example.com_fpga.json"
    device = {"name": "0", "containerEdits": {"env": ["A=1"]}}
    spec = {"kind": "example.com/fpga", "cdiVersion": "0.5.0", "devices": [device]}
    assert node.converge({"resources": []}, templates={name: spec})["written"] == [f"{node.cdi}/{name}", node.cdi]
    with open(f"{node.cdi}/{name}") as file:
        text = file.read()
    assert list(json.loads(text).items()) == list(spec.items())


def test_a_check_shows_once_what_someone_else_did(node):
    node.converge(camera("a"))
    os.chmod(node.cdi, 0o700)
    checked = [node.converge(camera("a"), True, state=state) for state in ("present", "pruned")]
    assert [answer["changed"] for answer in checked] == [True, False]


def test_an_uninstall_also_forgets_a_spec_that_someone_broke(node):
    node.converge(camera("a"))
    with open(f"{node.cdi}/{FILE}", "w") as file:
        file.write("{")
    answer = node.converge(state="absent")
    assert [kept["path"] for kept in answer["kept"]] == [f"{node.cdi}/{FILE}"]
    assert answer["warnings"] == [f"kept: {node.cdi}/{FILE}, it was changed by someone else"]
    assert (node.asked, os.path.exists(node.ledger)) == ([], False)
