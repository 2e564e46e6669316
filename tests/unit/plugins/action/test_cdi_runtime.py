"""What the action makes of a node: which files it takes back, and how many runtimes of a run are restarted at once."""

from __future__ import annotations

import base64
import os
import time
import types

import pytest
from ansible import constants
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import cdi_runtime
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import parallel_restarts
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.plugin_cli import PluginCliError, PluginCliMissing
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.runtimes.cdi import (
    SPEC_DIRS,
    Cdi,
    Change,
    UnsupportedConfig,
)

ROOT, DROP_IN = "/etc/containerd/config.toml", "/etc/containerd/conf.d/site.toml"


class Adapter:
    """Gives the root file and a drop-in back what they were."""

    name, tells_cdi, keeps_containers = "containerd", True, True
    cdi = Cdi(enabled=False, spec_dirs=SPEC_DIRS)

    def undo(self, path, ours, before, check):
        assert ours
        return Change(path, f"ours in {path}", before)

    def check_command(self, path):
        return ["check", path]

    def question(self, command):
        return [command]

    def left_on(self, changes):
        return None


def entry(path, before):
    kept = {"kind": "file", "content": base64.b64encode(before.encode()).decode(), "mode": 420, "uid": 0, "gid": 0}
    return {"owner": "cdi_runtime", "sha256": ledgers.sha256(f"ours in {path}".encode()), "before": kept}


@pytest.fixture
def action(monkeypatch):
    action = cdi_runtime.ActionModule.__new__(cdi_runtime.ActionModule)
    action._task = types.SimpleNamespace(check_mode=False)
    action._command, action._specs, action._adapter, action._max_parallel_restarts = "plugin", None, Adapter(), 1
    config = {"real_path": ROOT, "content": f"ours in {ROOT}", "imported": {DROP_IN: f"ours in {DROP_IN}"}}
    action._vars, action._runtime = {}, {"unit": "containerd.service", "config": config, "socket": "/run/x.sock"}
    action._places = {"command": "plugin", "kubelet_root": "/k", "device_plugin_dir": "/d"}
    # What the node's command tells of containers with CDI devices.
    action.told = {"held": [], "unknown": []}
    monkeypatch.setattr(cdi_runtime.plugin_cli, "ask", lambda *question: action.questions.append(question) or told())

    def told():
        if isinstance(action.told, Exception):
            raise action.told
        return action.told

    action.questions = []
    action._node = {"ledger": {path: entry(path, f"theirs in {path}") for path in (DROP_IN, ROOT)}}
    monkeypatch.setattr(cdi_runtime.plugin_cli, "is_there", lambda *_arguments: True)
    action._staying_specs = list
    action.asked = []
    action._on_node = lambda **arguments: action.asked.append(arguments) or {"seconds": 0.1}
    action._put_back = lambda: action.asked.append("put back")
    return action


def test_all_that_was_edited_is_taken_back_in_one_transaction(action):
    result = action._take_back()
    (asked,) = action.asked
    # The root file first: it is what the runtime can check.
    assert asked["check_command"] == ["check", ROOT]
    assert asked["files"] == [
        {
            "path": path,
            "content": f"theirs in {path}",
            "expected_sha256": ledgers.sha256(f"ours in {path}".encode()),
            "original": None,
        }
        for path in (ROOT, DROP_IN)
    ]
    assert [diff["prepared"].splitlines()[2:] for diff in result["diff"]] == [
        ["@@ -1 +1 @@", f"-ours in {path}", f"+theirs in {path}"] for path in (ROOT, DROP_IN)
    ]


HOLDER = {"namespace": "default", "pod": "app", "container": "main", "names": ["vendor.com/gpu=0", "vendor.com/gpu=1"]}


@pytest.mark.parametrize("check_mode", [False, True])
def test_cdi_stays_on_under_a_container_with_a_device_of_others(action, check_mode):
    action._task.check_mode = check_mode
    action.told = {"held": [HOLDER, {**HOLDER, "namespace": "", "pod": "1f-2e", "names": ["x.y/z=0"]}], "unknown": []}
    result = action._take_back()
    assert action.asked == []
    assert result["changed"] is False
    assert result["kept"] == [
        "pod default/app (container main) holds vendor.com/gpu=0, vendor.com/gpu=1",
        "pod 1f-2e (container main) holds x.y/z=0",
    ]
    assert result["warnings"] == [f"kept: CDI stays on, because {'; '.join(result['kept'])}"]
    ((_action, *question),) = action.questions
    assert " ".join(question) == (
        "plugin holders --by-cdi --socket /run/x.sock --kubelet-root /k --device-plugin-dir /d"
    )


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"held": [], "unknown": ["the runtime does not answer: start it"]}, "the runtime does not answer: start it"),
        (PluginCliError("it is of another release: run upgrade.yml"), "it is of another release: run upgrade.yml"),
        ({}, "'held'"),
        ({"held": [{}], "unknown": []}, "'namespace'"),
        (PluginCliMissing("/x/plugin"), "/x/plugin is not installed on the node"),
    ],
)
def test_cdi_stays_on_while_nobody_knows(action, told, reason):
    action.told = told
    result = action._take_back()
    assert action.asked == []
    (kept,) = result["kept"]
    assert kept.startswith("nobody knows which containers hold a CDI device: ")
    assert reason in kept


def test_a_drain_asks_before_it_evicts_the_holders(action):
    action.told = {"held": [HOLDER], "unknown": []}
    action._specs = {"stays": [], "evicted": True}
    assert len(action._take_back()["diff"]) == 2
    assert action.questions == []


def test_nobody_is_asked_where_nothing_is_turned_off(action):
    action._runtime["config"] = {"real_path": "/other", "content": ""}
    assert action._take_back() is None
    assert (action.asked, action.questions) == (["put back"], [])


def test_what_the_runtime_reads_no_longer_is_put_back_too(action):
    action._runtime["config"]["imported"] = {}
    action._take_back()
    applied, then = action.asked
    assert ([file["path"] for file in applied["files"]], then) == ([ROOT], "put back")


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_tried(action, check_mode):
    """NixOS', Flatcar's, a ConfigMap's: check mode does not promise what a run could not do."""
    action._task.check_mode = check_mode
    action._adapter.plan = lambda check: Change(ROOT, "version = 2\n", "version = 2\nenable_cdi = true\n")
    action._runtime["config"]["unwritable"] = "its file system is mounted read-only"
    with pytest.raises(
        UnsupportedConfig, match=r"mounted read-only\)\. Add enable_cdi = true where the file comes from"
    ):
        action._make_effective()
    assert action.asked == []


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
def test_a_run_says_why_it_edits(action, cdi, reason):
    action._adapter.cdi = cdi
    action._adapter.plan = lambda check: Change(ROOT, "x", "y")
    action._node["ledger"] = {}
    assert action._make_effective()["msg"] == f"{reason}: containerd.service is restarted; it did not answer for 0.1 s"


def test_check_mode_asks_the_node_whether_it_could_be_done(action):
    action._task.check_mode = True
    action._answers = lambda: True
    result = action._apply([Change(DROP_IN, "x", "y")], "CDI is off")
    assert (result["changed"], result["msg"]) == (True, "CDI is off: containerd.service is restarted")
    assert [asked["state"] for asked in action.asked] == ["applied"]
    action._on_node = lambda **arguments: {"failed": True, "msg": "its file system is mounted read-only"}
    with pytest.raises(UnsupportedConfig, match="mounted read-only"):
        action._apply([Change(DROP_IN, "x", "y")], "CDI is off")


@pytest.mark.parametrize(
    ("dirs", "warned"),
    [
        (["/etc/cdi", "/opt/cdi", "/run/cdi/"], False),
        (["/run/cdi", "/etc/cdi"], True),
        (["/var/run/cdi", "/etc/cdi/", "/run/cdi"], False),
        (None, False),
    ],
)
def test_directories_in_the_order_that_gives_links_are_told(action, monkeypatch, dirs, warned):
    asked = []
    answer = {"cdi": {"enabled": True, "spec_dirs": dirs}}
    monkeypatch.setattr(cdi_runtime.plugin_cli, "answer", lambda *arguments: asked.append(arguments) or answer)
    action._adapter.plan = lambda check: None
    result = action._make_effective()
    assert (result["changed"], result["msg"], len(asked)) == (False, "CDI is effective", 1)
    words = (
        "containerd reads /var/run/cdi before /etc/cdi, so a container gets a link instead of its target if a declar"
    )
    assert [warning[: len(words)] for warning in result["warnings"]] == [words] * warned


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_restart_brings_no_other_command_line_into_force(action, check_mode):
    action._task.check_mode = check_mode
    action._runtime["next_start"] = [{"option": "--config", "now": [], "then": ["/b.toml"]}]
    with pytest.raises(
        UnsupportedConfig,
        match=r"^containerd runs with no --config, but containerd.service would now start it with --config=/b.toml: "
        r"restart containerd.service first, because CDI is planned for the options in use$",
    ):
        action._apply([Change(ROOT, "x", "y")], "CDI is off")
    assert action.asked == []


@pytest.mark.parametrize("check_mode", [False, True])
def test_containers_that_a_restart_would_end_are_not_ended(action, monkeypatch, check_mode):
    action._task.check_mode = check_mode
    action._adapter.keeps_containers = False
    action._adapter.ended = lambda answer: (answer["number"], "let them")
    answer = {"number": 2}
    monkeypatch.setattr(cdi_runtime.plugin_cli, "answer", lambda *_arguments: answer)
    with pytest.raises(
        UnsupportedConfig, match=r"would stop its running containers \(2\): let them, or stop the containers first"
    ):
        action._apply([Change(ROOT, "x", "y")], "CDI is off")
    assert action.asked == []
    answer["number"] = 0
    assert action._apply([Change(ROOT, "x", "y")], "CDI is off")["restarted"] is True


@pytest.mark.parametrize("answers", [True, False])
def test_a_change_that_was_undone_says_whether_the_runtime_answers(action, monkeypatch, answers):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    action._task.args = {"command": "plugin", "state": "absent", "node": {**action._node, "runtime": action._runtime}}
    action._on_node = lambda **_arguments: {"failed": True, "msg": "The previous configuration was restored."}

    def answer(_action, command):
        assert command == ["plugin"]
        if not answers:
            raise cdi_runtime.plugin_cli.PluginCliError("plugin runtime failed: nobody there")
        return {}

    monkeypatch.setattr(cdi_runtime.plugin_cli, "answer", answer)
    action._runtime["socket"] = "/run/x.sock"
    action._runtime["config"]["path"] = ROOT
    result = action.run(None, {"inventory_hostname": "worker1"})
    assert result == {
        "failed": True,
        "msg": f"worker1: {ROOT}: The previous configuration was restored.",
        "answers": answers,
    }


def test_what_is_refused_before_anything_changed_says_nothing_of_the_runtime(action, monkeypatch):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    action._task.args = {"command": "plugin", "state": "absent", "node": {**action._node, "runtime": action._runtime}}
    action._runtime.update(unit=None, pid=7, socket="/run/x.sock")
    action._runtime["config"]["path"] = ROOT
    result = action.run(None, {"inventory_hostname": "worker1"})
    assert (result["failed"], "answers" in result) == (True, False)


def test_a_daemon_whose_file_is_gone_is_restarted(action):
    action._adapter.plan = lambda check: None
    action._adapter.by_hand = False
    action._running_differs = lambda: "the running daemon has CDI off"
    action._runtime["config"]["content"] = None
    action._make_effective()
    assert [asked["files"] for asked in action.asked] == [
        [{"path": ROOT, "content": None, "expected_sha256": None, "original": None}]
    ]


@pytest.mark.parametrize(("number", "most"), [(1, 1), (2, 2)])
def test_runtimes_are_restarted_one_after_the_other(action, tmp_path, monkeypatch, number, most):
    """Provisioning, complaint 8: all nodes restarted at once. Forks of a run, as Ansible has them."""
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    begun, together = tmp_path / "begun", tmp_path / "together"
    begun.mkdir()
    together.mkdir()
    action._max_parallel_restarts = number

    def restart(**_arguments):
        mine = begun / str(os.getpid())
        mine.touch()

        def look():
            (together / str(len(list(begun.iterdir())))).touch()
            time.sleep(0.01)

        # Until as many were in it as may be, and a while more for those that may not.
        while not (together / str(most)).exists():
            look()
        for _ in range(30):
            look()
        mine.unlink()
        return {"seconds": 0.1}

    action._on_node = restart
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                action._apply([Change(ROOT, "x", "y")], "CDI is off")
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert max(int(path.name) for path in together.iterdir()) == most


def test_who_waits_for_its_turn_keeps_the_lock_of_the_play(tmp_path, monkeypatch):
    class Renewed(Exception):
        pass

    def renew():
        raise Renewed

    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    with parallel_restarts.at_most(1, renew), pytest.raises(Renewed), parallel_restarts.at_most(1, renew):
        pass


@pytest.mark.parametrize("check_mode", [False, True])
def test_other_names_of_a_file_that_is_replaced_are_named(action, check_mode):
    action._task.check_mode = check_mode
    action._runtime["config"]["other_names"] = 2
    words = f"{ROOT} has other hard links (2), which keep the former text: update them by hand"
    assert action._apply([Change(ROOT, "x", "y")], "CDI is off")["warnings"] == [words]
    for harmless in (Change(ROOT, "x", "x"), Change(DROP_IN, "x", "y")):
        assert action._apply([harmless], "CDI is off")["warnings"] == []


def test_a_drop_in_is_tried_in_its_directory(action):
    action._runtime["config"]["drop_in_directory"] = "/etc/crio/crio.conf.d"
    action._adapter.program = "/usr/bin/crio"
    action._adapter.staged_command = lambda: ["crio", "{staged}"]
    action._on_node = lambda **given: action.asked.append(given) or {"effective": "", "staged": ""}
    action._check("text", False, None, "/etc/crio/crio.conf.d/99-x.conf")
    assert action.asked == [
        {
            "state": "checked",
            "files": [{"path": "/etc/crio/crio.conf.d/99-x.conf", "content": "text"}],
            "program": "/usr/bin/crio",
            "sources": [ROOT, DROP_IN],
            "drop_in_directory": "/etc/crio/crio.conf.d",
            "check_command": ["crio", "{staged}"],
        }
    ]


@pytest.mark.parametrize("check_mode", [False, True])
def test_what_somebody_wrote_since_the_runtime_started_is_named(action, check_mode):
    """No way back leads to what runs: the former file is theirs."""
    action._task.check_mode = check_mode
    action._answers = lambda: True
    action._runtime["config"]["later"] = [ROOT]
    words = f"by its time, {ROOT} was changed after containerd started: a restart also applies that change"
    assert action._apply([Change(ROOT, "x", "y")], "CDI is off")["warnings"] == [words]
    action._on_node = lambda **arguments: {"failed": True, "msg": "CRI did not come up"}
    with pytest.raises(UnsupportedConfig, match=f"^CRI did not come up\n{words}$"):
        action._apply([Change(ROOT, "x", "y")], "CDI is off")


@pytest.mark.parametrize("check", [False, True])
def test_a_file_of_others_that_keeps_cdi_on_is_named(action, monkeypatch, check):
    class NvidiaCtk(Adapter):
        """As nvidia-ctk leaves a node."""

        def left_on(self, changes):
            assert [change.path for change in changes] == [ROOT, DROP_IN]
            return "/etc/containerd/conf.d/99-nvidia.toml"

    action._task.check_mode = check
    action._adapter = NvidiaCtk()
    (warning,) = action._take_back()["warnings"]
    assert warning == (
        "kept: CDI stays on, because /etc/containerd/conf.d/99-nvidia.toml of another owner has enable_cdi = true. "
        "If that line was copied from this collection's change, as nvidia-ctk does, remove it there and restart "
        "containerd.service"
    )


@pytest.mark.parametrize("command", ["plugin", "other"])
def test_what_the_look_at_the_node_had_is_not_asked_again(action, monkeypatch, command):
    asked = []
    cdi = {"enabled": True, "spec_dirs": list(SPEC_DIRS)}
    monkeypatch.setattr(cdi_runtime.plugin_cli, "answer", lambda *_arguments: asked.append(1) or {"cdi": cdi})
    action._adapter.plan = lambda check: None
    action._node["running"] = {"command": command, "cdi": cdi}
    assert action._make_effective()["msg"] == "CDI is effective"
    assert len(asked) == (command != "plugin")
