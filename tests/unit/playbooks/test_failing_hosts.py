"""What becomes of the other hosts of a batch when one fails: the playbooks as they are, by Ansible, with no node.

The collection's actions and roles are stand-ins that write down what they are asked for.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
ACTION = """
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        step = " ".join([self._task.action.rpartition(".")[2], str(self._task.args.get("state", ""))]).strip()
        host = task_vars["inventory_hostname"]
        with open(task_vars["steps_file"], "a") as file:
            file.write(f"{host}: {step}\\n")
        if step in task_vars.get("failing", ()):
            # As what an action did not foresee: `failed_when` has no say in it.
            raise RuntimeError(f"{host} cannot {step}")
        known = {"environment": {}, "ledger": {}, "host": host, "node": host, "needs_cdi": True}
        known["joined"] = task_vars.get("joined", True)
        known["moves"], known["text"] = task_vars.get("moves", True), f"{host} moves"
        known["check_mode"], known["usable"] = self._task.check_mode, []
        known["has_slices"] = task_vars.get("has_slices", True)
        known["declaration"] = {"configuration": {}, "kubelet_device_plugin_dir": ""}
        shown = {"table": "", "resources": [], "capacities": {}, "configuration": {}, "kubelet_device_plugin_dir": ""}
        return {"changed": False, "what": [], "other_daemonsets": {}, **known, **shown}
"""


class Run:
    """How a run ended, in what order which host did what, and what it said."""

    def __init__(self, done, steps):
        self.code = done.returncode
        self.said = done.stdout + done.stderr
        self.steps = steps

    def hosts_of(self, step):
        return sorted(line.partition(": ")[0] for line in self.steps if line.endswith(": " + step))

    def failed(self):
        return sorted(re.findall(r"^(\w+) +: ok=.* failed=1 ", self.said, re.MULTILINE))


@pytest.fixture
def run(tmp_path):
    """Runs a playbook for the hosts a and b: run(path, what fails by host, "-e", ...)."""
    collection = tmp_path / "collections" / "ansible_collections" / "nodedevices" / "kubernetes"
    actions = collection / "plugins" / "action"
    actions.mkdir(parents=True)
    for name in ("plugin", "plugins/filter"):
        (collection / name).symlink_to(CHECKOUT / name)
    for path in (CHECKOUT / "plugins" / "modules").glob("*.py"):
        (actions / path.name).write_text(ACTION)
    for path in (CHECKOUT / "roles").glob("*/tasks/*.yml"):
        task = {"name": f"{path.parts[-3]} {path.name}", "ansible.builtin.debug": {"msg": ""}}
        copy = collection / path.relative_to(CHECKOUT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(yaml.safe_dump([task]))
    # The role's own tasks where it deploys once for all hosts.
    role = CHECKOUT / "roles" / "device_plugin"
    for name in ("absent.yml", *(path.name for path in (role / "tasks").glob("daemonset*.yml"))):
        shutil.copy(role / "tasks" / name, collection / "roles" / "device_plugin" / "tasks")
    for path in [*(CHECKOUT / "roles").glob("*/defaults"), *(CHECKOUT / "roles").glob("*/vars")]:
        shutil.copytree(path, collection / path.relative_to(CHECKOUT))
    shutil.copy(role / "tasks" / "main.yml", collection / "roles" / "device_plugin" / "tasks")
    steps = tmp_path / "steps"
    variables = {
        "ansible_connection": "local",
        "steps_file": str(steps),
        "device_plugin_mode": "daemonset",
        "node_tools_environment": {"environment": "1.0.0", "changed": False},
    }

    def run_playbook(name, failing, *arguments, configured=None, **variables_of):
        hosts = {host: {"failing": failing.get(host, []), **variables_of.get(host, {})} for host in ("a", "b")}
        inventory = {"node_devices": {"hosts": hosts, "vars": variables}}
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        command = [program, "--inventory", tmp_path / "hosts.yml", CHECKOUT / "playbooks" / name, *arguments]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
            **(configured or {}),
        }
        steps.write_text("")
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        return Run(done, steps.read_text().splitlines())

    return run_playbook


ONE_BATCH = ("-e", '{"node_devices_serial": ["100%"]}')


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("upgrade.yml", "node_preflight"),
        ("rollback.yml", "node_preflight"),
        ("uninstall.yml", "node_preflight"),
    ],
)
def test_a_host_lets_go_of_its_node_where_another_cannot_begin(run, name, step):
    done = run(name, {"b": [step]}, *ONE_BATCH)
    assert done.code == 2, done.said
    assert done.failed() == ["b"], done.said
    assert f"b cannot {step}" in done.said
    assert "a" in done.hosts_of("node_preflight")
    assert done.steps.index("a: node_lock") > done.steps.index("a: node_preflight")
    # Nothing is written on the other one.
    assert [each for each in done.steps if each.startswith("b: daemonset")] == []


@pytest.mark.parametrize("name", ["site.yml", "rollback.yml"])
def test_the_reason_is_said_where_the_lock_cannot_be_removed_either(run, name):
    """A node without a Python that is new enough runs no module at all."""
    done = run(name, {"b": ["node_preflight", "node_lock"]}, *ONE_BATCH)
    assert done.failed() == ["b"], done.said
    assert "b cannot node_lock" in done.said
    assert done.said.index("'Check the node' failed") > done.said.index("b cannot node_lock")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("upgrade.yml", "daemonset deployed"),
        ("site.yml", "daemonset left"),
        ("uninstall.yml", "daemonset absent"),
    ],
)
def test_what_is_done_once_for_all_hosts_fails_each_of_them(run, name, step):
    done = run(name, {"a": [step]}, *ONE_BATCH, "-e", '{"device_plugin_moved": [{}]}')
    assert done.code == 2, done.said
    assert done.hosts_of(step) == ["a"], done.said
    assert done.failed() == ["a", "b"], done.said
    assert done.hosts_of("node_lock") == ["a", "b"]
    for host in "ab":
        assert re.search(rf"^fatal: \[{host}\]: FAILED!.*a cannot {step}", done.said, re.MULTILINE), done.said


@pytest.mark.parametrize("kind", ["api_only", "profile"])
@pytest.mark.parametrize("name", ["site.yml", "uninstall.yml", "rollback.yml"])
def test_what_only_the_api_reaches_is_not_connected_to(run, name, kind):
    done = run(name, {}, *ONE_BATCH, b={f"node_devices_{kind}": True})
    assert done.code == 0, done.said
    assert {*done.hosts_of("node_lock")} == {"a"}
    wanted = {
        "site.yml": ["configured", *(["selected"] if kind == "api_only" else []), "ready"],
        "uninstall.yml": ["removed"],
        "rollback.yml": [],
    }
    own = [each for each in done.steps if each.startswith("b: daemonset")]
    assert own == [f"b: daemonset {state}" for state in wanted[name]]
    # One step for both, so that no pod of the first one is replaced for the other one.
    assert len(done.hosts_of("daemonset deployed")) == (name == "site.yml")
    for role in ("node_tools", "host_devices", "cdi_runtime", "cdi_specs"):
        ended = re.findall(rf" : {role} main.yml\] \*+\n((?:\w+: \[.*\n)+)", done.said)
        assert all("skipping: [b]" in each or "[b]" not in each for each in ended)
        assert bool(ended) is (name != "rollback.yml" or role == "node_tools")
    assert "WARNING" not in done.said
    assert "changed=1" not in done.said


@pytest.mark.parametrize("failing", ["daemonset configured", "daemonset ready"])
def test_what_only_the_api_reaches_fails_without_a_connection(run, failing):
    done = run("site.yml", {"b": [failing]}, *ONE_BATCH, b={"node_devices_api_only": True})
    assert (done.code, done.failed()) == (2, ["b"]), done.said
    assert done.hosts_of("node_lock") == ["a"]
    assert "'s lock" not in done.said


@pytest.mark.parametrize("name", ["site.yml", "verify.yml"])
def test_a_node_that_has_not_joined_is_skipped(run, name):
    by_api = {"node_devices_api_only": True, "joined": False}
    done = run(name, {}, *ONE_BATCH, b=by_api)
    assert done.code == 0, done.said
    assert done.failed() == []
    begun = {"site.yml": ["declaration", "node_preflight"], "verify.yml": ["node_preflight"]}[name]
    assert [each for each in done.steps if each.startswith("b: ")] == [f"b: {step}" for step in begun]
    joined = run(name, {}, *ONE_BATCH, b={**by_api, "joined": True})
    assert joined.code == 0, joined.said
    assert joined.said.count("ok: [b]") > done.said.count("ok: [b]")


PLAYBOOKS = sorted(path.name for path in (CHECKOUT / "playbooks").glob("*.yml"))


@pytest.mark.parametrize("name", PLAYBOOKS)
@pytest.mark.parametrize("strategy", ["free", "host_pinned"])
def test_the_strategy_of_the_users_configuration_does_not_count(run, name, strategy):
    """Both run a task with run_once for each host."""
    by_api = {"node_devices_api_only": True}
    done = run(name, {}, *ONE_BATCH, configured={"ANSIBLE_STRATEGY": strategy}, b=by_api)
    configured = run(name, {}, *ONE_BATCH, b=by_api)
    assert done.code == configured.code == 0, done.said
    assert sorted(done.steps) == sorted(configured.steps)


MOVE = ["node_migration planned", "node_drain drained", "node_migration served", "node_drain uncordoned"]


@pytest.mark.parametrize("has_slices", [True, False])
def test_nodes_move_one_after_the_other(run, has_slices):
    done = run("migrate.yml", {}, a={"has_slices": has_slices}, b={"has_slices": has_slices})
    assert done.code == 0, done.said
    moves = [each for each in done.steps if each.partition(": ")[2] in MOVE]
    # Ansible plans for both hosts at once, so either may come first.
    assert sorted(moves[:2]) == [f"{host}: {MOVE[0]}" for host in "ab"]
    assert moves[2:] == [f"{host}: {step}" for host in "ab" for step in MOVE[1:]]
    # The node is locked before its drain. A look at all requirements comes before the drain, too, except where it
    # would refuse to end DRA under the pods' claims.
    looks = [number for number, each in enumerate(done.steps) if each == "a: node_preflight"]
    drained = done.steps.index("a: node_drain drained")
    assert [number < drained for number in looks[:2]] == [True, False]


@pytest.mark.parametrize("step", [MOVE[1], "daemonset configured", MOVE[2]])
def test_a_node_that_fails_stays_cordoned_and_no_other_node_begins(run, step):
    done = run("migrate.yml", {"a": [step]})
    assert done.code == 2, done.said
    assert [each for each in done.steps if each.startswith("b: ")] == ["b: declaration", f"b: {MOVE[0]}"]
    assert done.hosts_of(MOVE[3]) == []
    assert "a: node_lock" in done.steps
    assert "set the former api again. Then run migrate.yml again" in " ".join(done.said.split())


def test_nothing_is_touched_if_one_node_cannot_move(run):
    done = run("migrate.yml", {"b": [MOVE[0]]})
    assert done.code == 2, done.said
    assert [each for each in done.steps if each.endswith((MOVE[1], "node_preflight"))] == []


@pytest.mark.parametrize(("name", "moves"), [("migrate.yml", False), ("site.yml", True), ("upgrade.yml", True)])
def test_only_a_node_that_moves_is_drained_and_only_by_a_migration(run, name, moves):
    of_host = {"moves": moves}
    done = run(name, {}, a=of_host, b=of_host)
    assert done.code == 0, done.said
    assert done.hosts_of("node_lock") == ["a", "b"]
    assert [each for each in done.steps if "node_drain" in each or "served" in each] == []


def test_check_mode_shows_which_nodes_move_and_goes_no_further(run):
    done = run("migrate.yml", {}, "--check", a={"moves": True}, b={"moves": False})
    assert done.code == 0, done.said
    assert done.hosts_of(MOVE[1]) == ["a"]
    assert done.hosts_of("node_lock") == ["b"]
    # Without claims, nothing hides what the run would refuse or do.
    done = run("migrate.yml", {}, "--check", a={"has_slices": False}, b={"moves": False})
    assert done.code == 0, done.said
    assert done.hosts_of(MOVE[1]) == ["a"]
    assert "a: daemonset configured" in done.steps
    assert done.hosts_of(MOVE[2]) == []
