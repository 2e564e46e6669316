"""What role cdi_runtime does on a node: what it changes and gives back, when CDI stays on, and what it refuses."""

from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import sys
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import cdi_needed, runtime_facts
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import cdi_runtime
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge.node import Node
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import launch, runtime
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import node_code
from role_on_node import Adapter, Module, RoleOnNode

from node_device_plugin.runtime import configuration
from node_device_plugin.runtime.configuration.cdi import SPEC_DIRS, Cdi, Change, UnsupportedConfig


@pytest.fixture
def role(tmp_path, monkeypatch):
    return RoleOnNode(tmp_path, monkeypatch)


def test_all_that_was_edited_is_taken_back_in_one_transaction(role):
    answer = role.converge()
    (plan,) = role.plans
    # The root file first: it is what the runtime can check.
    assert [(file.path, file.content, file.expected_sha256) for file in plan.files] == [
        (path, f"theirs in {path}".encode(), ledgers.sha256(f"ours in {path}".encode()))
        for path in (role.root, role.drop_in)
    ]
    assert (plan.undo, plan.unit, plan.spec_dirs) == (True, "containerd.service", None)
    assert plan.question == ["/bin/true", "runtime", "--socket", "/run/x.sock", "-o", "json"]
    assert [diff["prepared"].splitlines() for diff in answer["diff"]] == [
        [f"--- before: {path}", f"+++ after: {path}", "@@ -1 +1 @@", "-(hidden)", "+(hidden)"]
        for path in (role.root, role.drop_in)
    ]
    assert answer["written"] == [role.root, role.drop_in]
    assert (answer["changed"], answer["restarted"], answer["seconds"]) == (True, True, 0.1)


HOLDER = {"namespace": "default", "pod": "app", "container": "main", "names": ["vendor.com/gpu=0", "vendor.com/gpu=1"]}


@pytest.mark.parametrize("check_mode", [False, True])
def test_cdi_stays_on_under_a_container_with_a_device_of_others(role, check_mode):
    role.check_mode = check_mode
    role.holders = {"held": [HOLDER, {**HOLDER, "namespace": "", "pod": "1f-2e", "names": ["x.y/z=0"]}], "unknown": []}
    answer = role.converge(device_plugin_dir="/d")
    assert role.plans == []
    assert answer["changed"] is False
    assert answer["kept"] == [
        "pod default/app (container main) holds vendor.com/gpu=0, vendor.com/gpu=1",
        "pod 1f-2e (container main) holds x.y/z=0",
    ]
    assert answer["msg"] == f"kept: CDI stays on, because {'; '.join(answer['kept'])}"
    assert answer["warnings"] == [answer["msg"]]
    assert [" ".join(question) for question in role.questions] == [
        "/bin/true holders --by-cdi --socket /run/x.sock --kubelet-root /k --device-plugin-dir /d -o json"
    ]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"held": [], "unknown": ["the runtime does not answer: start it"]}, "the runtime does not answer: start it"),
        ("it has no grpc", "/bin/true holders failed: it has no grpc"),
        ({}, "'held'"),
        ({"held": [{}], "unknown": []}, "'namespace'"),
        (FileNotFoundError(), "/bin/true is not installed on the node"),
    ],
)
def test_cdi_stays_on_while_nobody_knows(role, told, reason):
    role.holders = told
    answer = role.converge()
    assert role.plans == []
    (kept,) = answer["kept"]
    assert kept.startswith("nobody knows which containers hold a CDI device: ")
    assert reason in kept


def test_the_command_of_an_earlier_release_is_told_and_runs_the_source_of_this_one(role):
    role.holders = "error: unrecognized arguments: --by-cdi"
    assert role.converge() == {"changed": False, "other_release": True, "warnings": []}
    role.holders = {"held": [], "unknown": []}
    assert role.converge(command="/bin/node-device-plugin", this_release="/tmp/x.zip")["problems"] == [
        "/bin/node-device-plugin is not installed on the node: run role node_tools (site.yml) first"
    ]
    assert role.converge(this_release="/tmp/x.zip")["restarted"] is True
    assert role.questions[-1][:5] == ["/bin/python3", "-I", "/tmp/x.zip", "holders", "--by-cdi"]


@pytest.fixture
def old(tmp_path):
    """The environment of an earlier release, whose packages this test's Python has, with this release's source."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python3").chmod(0o755)
    (tmp_path / "source.zip").write_bytes(node_code.archive(with_wire=True))

    def run_command(command):
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        return done.returncode, done.stdout, done.stderr

    params = {"specs": {}, "device_plugin_dir": str(tmp_path), "command": str(programs / "node-device-plugin")}
    params["this_release"] = str(tmp_path / "source.zip")
    node, kubelet = types.SimpleNamespace(run_command=run_command), {"root_dir": str(tmp_path)}
    return lambda: cdi_needed.by_containers(node, params, str(tmp_path / "cri.sock"), kubelet)


def test_an_earlier_release_runs_the_source_of_this_one(old, tmp_path):
    (reason,) = old()
    assert reason.startswith("nobody knows which containers hold a CDI device: the container runtime at")
    (tmp_path / "kubelet_internal_checkpoint").write_text("damaged")
    assert len(old()) == 2


def test_an_environment_that_cannot_run_it_is_unknown(old, tmp_path):
    (tmp_path / "bin/python3").write_text("#!/bin/sh\necho 'No module named grpc' >&2; exit 1\n")
    (reason,) = old()
    assert "No module named grpc" in reason


def test_the_preflights_kubelet_is_not_read_again(role, monkeypatch):
    monkeypatch.setattr(cdi_runtime, "running_kubelet", lambda: pytest.fail("read again"))
    node = Node(Module(role), True, {"runtime": role.facts, "kubelet": {"root_dir": "/of/preflight"}})
    assert node.converged(cdi_runtime.converge, {**dict.fromkeys(cdi_runtime.PARAMS), **role.params})["restarted"]
    assert "/of/preflight" in role.questions[0]


def test_a_drain_asks_before_it_evicts_the_holders(role):
    role.holders = {"held": [HOLDER], "unknown": []}
    assert len(role.converge(specs={"stays": [], "evicted": True})["diff"]) == 2
    assert role.questions == []


@pytest.mark.parametrize("check_mode", [False, True])
def test_cdi_stays_on_while_a_spec_of_ours_stays(role, tmp_path, check_mode, monkeypatch):
    role.check_mode = check_mode
    entries = {**ledgers.Ledger().entries, "/etc/cdi/x.json": {"kind": "file", "owner": "cdi_specs"}}
    role.enter(entries)
    told = {"stays": ["/etc/cdi/y.json"], "dynamic": ["a.b/c=1"]}
    paths = ["/etc/cdi/y.json", "a.b/c=1"] if check_mode else ["/etc/cdi/x.json"]
    assert role.converge(specs=told)["kept"] == [f"{path} exists and a pod may hold its devices" for path in paths]
    told["kept"] = [{"device": "a.b/c=1", "reason": "held by x/y"}, {"path": "/z", "reason": "?"}]
    assert role.converge(specs=told)["kept"] == ["a.b/c=1 is held by x/y"]
    assert role.plans == []
    # The running plugin's specs are in no ledger.
    del entries["/etc/cdi/x.json"]
    role.enter(entries)
    role.adapter.cdi = Cdi(True, ("/etc/cdi", f"{tmp_path}/run"))
    (tmp_path / "run").mkdir()
    for name in ("node-device-plugin_x.json", "other.json"):
        (tmp_path / "run" / name).touch()
    assert role.converge()["kept"] == [
        f"{tmp_path}/run/node-device-plugin_x.json exists and a pod may hold its devices"
    ]


@pytest.mark.parametrize(
    ("told", "is_kept"),
    [
        ({"stays": [], "dynamic": []}, False),
        ({"stays": []}, False),
        ({"stays": [], "dynamic": ["a.b/c=1"]}, True),
        # Nobody said what would stay.
        ({}, True),
    ],
)
def test_check_mode_goes_by_the_specs_that_would_stay(role, told, is_kept):
    """The ledger still has the specs that a real run would have removed before."""
    role.check_mode = True
    role.enter({**ledgers.Ledger().entries, "/etc/cdi/x.json": {"kind": "file", "owner": "cdi_specs"}})
    answer = role.converge(specs=told)
    assert (bool(answer.get("kept")), answer["changed"]) == (is_kept, not is_kept)
    # A real run goes by what is there.
    role.check_mode = False
    assert role.converge(specs=told)["kept"] == ["/etc/cdi/x.json exists and a pod may hold its devices"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_where_nothing_was_cut_off_there_is_nothing_to_recover(role, monkeypatch, check_mode):
    role.check_mode = check_mode
    monkeypatch.setattr(launch, "settle", lambda _places: pytest.fail("nothing was left"))
    assert role.recover() == {"changed": False, "warnings": []}


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (None, {"begun": False, "error": None}),
        (launch.Outcome("x", None, 0.1), {"begun": True, "error": None}),
        (launch.Outcome("x", "it was undone", None), {"begun": True, "error": "it was undone"}),
    ],
)
def test_what_was_cut_off_is_settled_but_not_in_check_mode(role, monkeypatch, outcome, answer):
    settled = []
    monkeypatch.setattr(launch, "settle", lambda places: settled.append(places) or outcome)
    pathlib.Path(role.places.closed).mkdir(parents=True)
    role.check_mode = True
    assert (role.recover(), settled) == ({"changed": True, "warnings": []}, [])
    role.check_mode = False
    assert role.recover() == {"changed": True, "warnings": [], **answer}
    assert settled == [role.places]


def test_cdi_is_not_touched_where_the_ledger_cannot_be_read(role):
    pathlib.Path(role.places.directory, "ledger.json").write_text("{")
    (problem,) = role.converge()["problems"]
    assert "ledger.json is damaged" in problem
    assert role.plans == []


@pytest.mark.parametrize("check_mode", [False, True])
def test_nothing_is_written_without_the_plugins_command(role, check_mode):
    role.check_mode = check_mode
    answer = role.converge(command="/no/plugin")
    missing = "/no/plugin is not installed on the node: run role node_tools (site.yml) first"
    assert (answer.get("problems"), role.plans) == (None if check_mode else [missing], [])


def test_nobody_is_asked_where_nothing_is_turned_off(role):
    role.adapter.texts.clear()
    answer = role.converge()
    # The files go back without a restart.
    assert (answer["changed"], sorted(answer["written"])) == (True, [])
    assert pathlib.Path(role.root).read_text() == f"theirs in {role.root}"
    assert (role.plans, role.questions, ledgers.Ledger().entries) == ([], [], {})


@pytest.mark.parametrize("may_restart", [False, True])
def test_what_the_runtime_reads_no_longer_is_put_back_too(role, may_restart):
    del role.adapter.texts[role.drop_in]
    # The transaction of this test does not write the root file back.
    role.enter(
        {path: each for path, each in ledgers.Ledger().entries.items() if path == role.drop_in or not may_restart}
    )
    role.adapter.text = lambda path: f"ours in {path}" if path == role.root else None
    if may_restart:
        role.enter({**ledgers.Ledger().entries, role.root: {**ledgers.Ledger().entries[role.drop_in]}})
        role.adapter.undo = lambda path, ours, before: Change(path, f"ours in {path}", before)
    answer = role.converge(may_restart=may_restart)
    assert answer["restarted"] is True
    restored = pathlib.Path(role.drop_in).read_text() == f"theirs in {role.drop_in}"
    assert (restored, len(role.plans)) == (may_restart, int(may_restart))


def test_without_a_runtime_the_files_are_put_back(role):
    role.facts = {"socket": "/run/x.sock", "problem": "no such file or directory"}
    assert role.converge()["changed"] is True
    assert pathlib.Path(role.root).read_text() == f"theirs in {role.root}"
    assert role.converge()["msg"] == "this collection changed nothing"


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_tried(role, check_mode):
    """NixOS', Flatcar's, a ConfigMap's: check mode does not promise what a run could not do."""
    role.check_mode = check_mode
    role.config["unwritable"] = "its file system is mounted read-only"
    answer = role.make_effective(Change(role.root, "version = 2\n", "version = 2\nenable_cdi = true\n"))
    assert answer["problems"] == [
        f"{role.root}: CDI is off in the runtime's configuration, but this file cannot be written (its file system is "
        "mounted read-only). Add enable_cdi = true where the file comes from, or start containerd with a writable file"
    ]
    assert role.plans == []


@pytest.mark.parametrize(
    ("cdi", "reason"),
    [
        (Cdi(enabled=False, spec_dirs=("/opt/cdi",)), "CDI is off in the runtime's configuration"),
        # containerd 2.4 and CRI-O, where CDI is always on.
        (
            Cdi(enabled=True, spec_dirs=("/etc/cdi",)),
            "the runtime's configuration does not list /var/run/cdi in cdi_spec_dirs",
        ),
    ],
)
def test_a_run_says_why_it_edits(role, cdi, reason):
    role.adapter.cdi = cdi
    role.enter({})
    answer = role.make_effective(Change(role.root, f"ours in {role.root}", "y"))
    assert answer["msg"] == f"{reason}: containerd.service is restarted; it did not answer for 0.1 s"
    (plan,) = role.plans
    assert (plan.spec_dirs, plan.undo) == (list(SPEC_DIRS), False)
    role.outcome = launch.Outcome("x", None, None)
    assert role.make_effective(Change(role.root, f"ours in {role.root}", "y"))["msg"].endswith("is restarted")
    role.adapter.tells_cdi = False
    role.make_effective(Change(role.root, f"ours in {role.root}", "y"))
    assert role.plans[-1].spec_dirs is None


@pytest.mark.parametrize("check_mode", [False, True])
def test_without_leave_to_restart_the_answer_is_that_of_check_mode(role, check_mode, monkeypatch):
    role.check_mode = check_mode
    change = Change(role.root, f"ours in {role.root}", "y")
    answer = role.make_effective(change, may_restart=check_mode)
    reason = "CDI is off in the runtime's configuration: containerd.service is restarted"
    assert (answer["changed"], answer["restarted"], answer["msg"]) == (True, True, reason)
    assert "seconds" not in answer
    assert role.plans == []
    # What a run could not do is no promise.
    obstacle = "its file system is mounted read-only"
    monkeypatch.setattr(cdi_runtime, "obstacle", {role.root: obstacle}.get)
    answer = role.make_effective(change, may_restart=check_mode)
    assert (answer["problems"], answer["answers"]) == (
        [f"{role.root}: {role.root}: {obstacle}; nothing was changed"],
        True,
    )


def test_all_files_are_one_plan_with_their_new_directories(role, tmp_path, monkeypatch):
    path = str(tmp_path / "new.d" / "cdi.toml")
    role.enter({})
    monkeypatch.setattr(
        "ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge.node.Node.context_of",
        lambda node, path: "system_u:object_r:container_config_t:s0",
    )
    role.make_effective(Change(path, None, "version = 3\n"))
    (plan,) = role.plans
    assert [(file.path, file.content, file.expected_sha256) for file in plan.files] == [(path, b"version = 3\n", None)]
    assert [directory.path for directory in plan.directories] == [str(tmp_path / "new.d")]
    assert {each.context for each in (*plan.files, *plan.directories)} == {"system_u:object_r:container_config_t:s0"}


def test_a_file_of_another_role_is_refused(role):
    role.enter({role.root: {"kind": "file", "owner": "x", "sha256": ledgers.sha256(b"y"), "mode": 420, "before": None}})
    (problem,) = role.make_effective(Change(role.root, "y", "z"))["problems"]
    assert problem == f"{role.root}: {role.root} belongs to x, so cdi_runtime does not write it"


@pytest.mark.parametrize(
    ("dirs", "warned"),
    [
        (["/etc/cdi", "/opt/cdi", "/run/cdi/"], False),
        (["/run/cdi", "/etc/cdi"], True),
        (["/var/run/cdi", "/etc/cdi/", "/run/cdi"], False),
        (None, False),
    ],
)
def test_directories_in_the_order_that_gives_links_are_told(role, dirs, warned):
    role.running = {"cdi": {"enabled": True, "spec_dirs": dirs}}
    answer = role.make_effective(None)
    assert (answer["changed"], answer["msg"], len(role.questions)) == (False, "CDI is effective", 1)
    words = (
        "containerd reads /var/run/cdi before /etc/cdi, so a container gets a link instead of its target if a declar"
    )
    assert [warning[: len(words)] for warning in answer["warnings"]] == [words] * warned


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_restart_brings_no_other_command_line_into_force(role, check_mode):
    role.check_mode = check_mode
    role.facts["next_start"] = [("--config", [], ["/b.toml"])]
    (problem,) = role.make_effective(Change(role.root, f"ours in {role.root}", "y"))["problems"]
    assert problem == (
        f"{role.root}: containerd runs with no --config, but containerd.service would now start it with "
        "--config=/b.toml: restart containerd.service first, because CDI is planned for the options in use"
    )
    assert role.plans == []


@pytest.mark.parametrize("check_mode", [False, True])
def test_containers_that_a_restart_would_end_are_not_ended(role, check_mode):
    role.check_mode = check_mode
    role.adapter.keeps_containers = False
    role.adapter.ended = lambda answer: (answer["number"], "let them")
    role.running["number"] = 2
    change = Change(role.root, f"ours in {role.root}", "y")
    (problem,) = role.make_effective(change)["problems"]
    assert "would stop its running containers (2): let them, or stop the containers first" in problem
    assert role.plans == []
    role.running["number"] = 0
    assert role.make_effective(change)["restarted"] is True
    # In check mode on a new node, the command is not installed yet.
    role.running = FileNotFoundError()
    answer = role.make_effective(change)
    assert ("restarted" in answer, "problems" in answer) == (check_mode, not check_mode)


@pytest.mark.parametrize("answers", [True, False])
def test_a_change_that_was_undone_says_whether_the_runtime_answers(role, answers):
    role.outcome = launch.Outcome("x", "The previous configuration was restored.", 0.1)
    if not answers:
        role.running = "nobody there"
    answer = role.converge()
    assert answer == {
        "changed": False,
        "problems": [f"{role.root}: The previous configuration was restored."],
        "answers": answers,
        "warnings": [],
    }
    role.outcome = runtime.Failed("the change could not be started")
    assert role.converge()["problems"] == [f"{role.root}: the change could not be started"]


def test_what_is_refused_before_anything_changed_says_nothing_of_the_runtime(role):
    role.facts.update(unit=None, pid=7)
    answer = role.converge()
    assert "process 7 belongs to no systemd service" in answer["problems"][0]
    assert "answers" not in answer


def test_a_daemon_whose_files_are_right_is_restarted(role):
    role.running = {"cdi": {"enabled": False, "spec_dirs": None}}
    answer = role.make_effective(None)
    (plan,) = role.plans
    assert (plan.files, plan.entries, answer["diff"]) == ([], {}, [])
    assert answer["msg"].startswith("the running daemon has CDI off, although its configuration turns it on: ")


def test_a_daemon_that_is_not_ours_to_restart_is_named(role):
    role.running = {"cdi": {"enabled": False, "spec_dirs": None}}
    role.adapter.by_hand = True
    role.facts["unit"] = "snap.x.service"
    (problem,) = role.make_effective(None)["problems"]
    assert "the running daemon has CDI off" in problem
    assert problem.endswith(": restart snap.x.service")


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_command_that_is_missing_or_of_another_release(role, check_mode):
    role.check_mode = check_mode
    role.running = FileNotFoundError()
    answer = role.make_effective(None)
    assert answer.get("problems", [answer.get("msg")]) == (
        ["CDI is effective"]
        if check_mode
        else ["/bin/true is not installed on the node: run role node_tools (site.yml) first"]
    )
    role.running = {"cdi": {"enabled": True}}
    assert role.make_effective(None)["problems"] == [
        "the answer of /bin/true runtime has no CDI settings: run upgrade.yml"
    ]


def test_obstacles_are_refused_before_anything_is_planned(role):
    role.facts = {"socket": "/run/x.sock", "problem": "no such file or directory"}
    (problem,) = role.make_effective(None)["problems"]
    assert problem.startswith("no container runtime answers at /run/x.sock (no such file or directory): install")


@pytest.mark.parametrize("check_mode", [False, True])
def test_other_names_of_a_file_that_is_replaced_are_named(role, check_mode):
    role.check_mode = check_mode
    role.config["other_names"] = 2
    words = f"{role.root} has other hard links (2), which keep the former text: update them by hand"
    ours = {path: f"ours in {path}" for path in (role.root, role.drop_in)}
    assert role.make_effective(Change(role.root, ours[role.root], "y"))["warnings"] == [words]
    for harmless in (
        Change(role.root, ours[role.root], ours[role.root]),
        Change(role.drop_in, ours[role.drop_in], "y"),
    ):
        assert role.make_effective(harmless)["warnings"] == []


@pytest.mark.parametrize("check_mode", [False, True])
def test_what_somebody_wrote_since_the_runtime_started_is_named(role, check_mode, monkeypatch):
    """No way back leads to what runs: the former file is theirs."""
    role.check_mode = check_mode
    role.later = {7: [role.root]}
    words = f"by its time, {role.root} was changed after containerd started: a restart also applies that change"
    change = Change(role.root, f"ours in {role.root}", "y")
    assert role.make_effective(change)["warnings"] == [words]
    role.outcome = launch.Outcome("x", "CRI did not come up", None)

    def carry_out(_places, plan):
        # Our own writes are as new.
        role.later[7] = [role.root, *(file.path for file in plan.files)]
        return role.outcome

    monkeypatch.setattr(launch, "carry_out", carry_out)
    if not check_mode:
        assert role.make_effective(change)["problems"] == [f"{role.root}: CRI did not come up\n{words}"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_file_of_others_that_keeps_cdi_on_is_named(role, check_mode):
    class NvidiaCtk(Adapter):
        """As nvidia-ctk leaves a node."""

        def left_on(self, changes):
            assert [change.path for change in changes] == [role.root, role.drop_in]
            return "/etc/containerd/conf.d/99-nvidia.toml"

    role.check_mode = check_mode
    role.adapter = NvidiaCtk(role.adapter.texts)
    (warning,) = role.converge()["warnings"]
    assert warning == (
        "kept: CDI stays on, because /etc/containerd/conf.d/99-nvidia.toml of another owner has enable_cdi = true. "
        "If that line was copied from this collection's change, as nvidia-ctk does, remove it there and restart "
        "containerd.service"
    )


def test_the_running_daemon_may_spell_its_directories_otherwise(role, monkeypatch):
    role.running = answer = {"cdi": {"enabled": True, "spec_dirs": ["/etc/cdi/", "/run/cdi"]}}
    assert role.make_effective(None)["changed"] is False
    monkeypatch.setattr(runtime, "run", lambda *_arguments, **_more: (0, json.dumps(answer), ""))
    asked = types.SimpleNamespace(unit="x", question=["plugin"], spec_dirs=["/etc/cdi", "/var/run/cdi"], timeout=0)
    assert runtime.Runtime(asked).wait(cdi=True) == answer
    asked.spec_dirs = ["/etc/cdi", "/opt/cdi"]
    with pytest.raises(runtime.Failed, match="spec directories"):
        runtime.Runtime(asked).wait(cdi=True)


def test_a_link_stays_and_the_file_behind_it_is_written(role, tmp_path):
    real = tmp_path / "srv" / "containerd.toml"
    real.parent.mkdir()
    real.write_text("version = 2\n")
    link = tmp_path / "link.toml"
    link.symlink_to("srv/containerd.toml")
    config = runtime_facts.containerd_config(
        functools.partial(runtime_facts.installed("/bin/true"), name="containerd"),
        ["containerd", "--config", str(link)],
    )
    # Imports are relative to the link, as containerd resolves them.
    assert (config["path"], config["real_path"], config["content"]) == (str(link), str(real), "version = 2\n")
    role.facts["config"] = config
    role.enter({})
    role.make_effective(Change(config["real_path"], config["content"], "version = 2\n# new\n"))
    (plan,) = role.plans
    assert [(file.path, file.content) for file in plan.files] == [(str(real), b"version = 2\n# new\n")]
    assert list(plan.entries) == [str(real)]


def test_a_text_that_the_runtime_refuses_is_not_written(role, monkeypatch):
    def plan():
        raise UnsupportedConfig("containerd rejects the new configuration: invalid at https://u:p4ss@reg.example")

    role.adapter.plan = plan
    # A key may be a URL with credentials.
    assert role.converge(state="present")["problems"] == [
        f"{role.root}: containerd rejects the new configuration: invalid at https://(hidden)@reg.example"
    ]
    assert role.plans == []


def test_the_node_finds_the_adapter(role, monkeypatch):
    monkeypatch.undo()
    assert configuration.of({**role.facts, "name": "crio"}).name == "CRI-O"
