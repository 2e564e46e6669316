"""How many nodes at a time: what the playbooks make of the variables that users set."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible.module_utils.parsing.convert_bool import boolean
from jinja2.nativetypes import NativeEnvironment

PLAYBOOKS = pathlib.Path(__file__).resolve().parents[3] / "playbooks"
ROLES = PLAYBOOKS.parent / "roles"


def value(text, variables):
    """A templated value as Ansible has it."""
    environment = NativeEnvironment()
    environment.filters["bool"] = boolean
    environment.tests["changed"] = lambda result: result["changed"]
    return environment.from_string(text).render(variables)


def plays(name):
    return yaml.safe_load((PLAYBOOKS / name).read_text())


def rolling(name):
    """The play of a playbook that changes nodes, and what it is given."""
    part = "ansible.builtin.import_playbook"
    play = next(each for each in plays(name) if "serial" in each or part in each)
    if "serial" in play:
        return play, {}
    imported, given = rolling(play["ansible.builtin.import_playbook"])
    return imported, {**given, **play.get("vars", {})}


DEFAULTS = {
    "site.yml": ("100%", 100),
    "upgrade.yml": ([1, "25%", "100%"], 0),
    "rollback.yml": ([1, "25%", "100%"], 0),
    "migrate.yml": (1, 0),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_batches(name):
    play, given = rolling(name)
    found = tuple(value(play[keyword], given) for keyword in ("serial", "max_fail_percentage"))
    assert found == DEFAULTS[name]
    said = {**given, "node_devices_serial": [5], "node_devices_max_fail_percentage": 7}
    assert tuple(value(play[keyword], said) for keyword in ("serial", "max_fail_percentage")) == ([5], 7)


@pytest.mark.parametrize("name", ["site.yml", "upgrade.yml", "uninstall.yml"])
def test_drained_nodes_come_one_after_the_other(name):
    play, given = rolling(name)
    assert value(play["serial"], {**given, "node_devices_drain": "true"}) == 1
    assert value(play["serial"], {**given, "node_devices_drain": False}) == DEFAULTS.get(name, ("100%",))[0]
    assert value(play["serial"], {**given, "node_devices_drain": True, "node_devices_serial": [3]}) == [3]


@pytest.mark.parametrize("name", ["site.yml", "rollback.yml", "uninstall.yml"])
def test_a_play_that_changes_nodes_takes_their_lock_first_and_lets_go_of_it_last(name):
    play = next(each for each in plays(name) if "nodedevices.kubernetes.node_lock" in str(each))
    before = play.get("pre_tasks", play["tasks"][0]["block"])
    first = next(task for task in before if "nodedevices.kubernetes.node_preflight" in task)
    if "pre_tasks" in play:
        # Nothing that can fail stands between it and the block that lets go of the node, however it ends; and a host
        # that fails there does not end the play of the others.
        assert first is before[-1]
        assert "max_fail_percentage" not in play
    else:
        # Before it, a migration only includes tasks, whose first one takes the same lock.
        included = [each["ansible.builtin.include_tasks"]["file"] for each in before[: before.index(first)]]
        assert included == (["tasks/migration_begun.yml"] if name == "site.yml" else [])
        for file in included:
            locks = plays(file)[0]["nodedevices.kubernetes.node_preflight"]["lock"]
            assert locks == first["nodedevices.kubernetes.node_preflight"]["lock"]
    assert len(play["tasks"]) == 1
    lock = first["nodedevices.kubernetes.node_preflight"]["lock"]
    assert (value(lock["minutes"], {}), value(lock["break"], {})) == (15, False)
    said = {"node_devices_lock_minutes": 5, "node_devices_lock_break": True}
    assert (value(lock["minutes"], said), value(lock["break"], said)) == (5, True)
    # What it gives its modules, so that each renews the lock.
    known = {first["register"]: {"environment": {"NODE_DEVICES_LOCK": "{}"}}}
    assert value(play["environment"], known) == known[first["register"]]["environment"]
    assert value(play["environment"], {}) == value(play["environment"], {first["register"]: {"skipped": True}}) == {}


def lets_go(tasks):
    return "nodedevices.kubernetes.node_lock" in tasks[-1]


@pytest.mark.parametrize("name", ["site.yml", "rollback.yml", "uninstall.yml"])
def test_a_play_lets_go_of_its_node_once_however_it_ends(name):
    play = next(each for each in plays(name) if "nodedevices.kubernetes.node_lock" in str(each))
    (whole,) = play["tasks"]
    if "always" in whole:
        (last,) = whole["always"]
        # Also where the node cannot be uncordoned.
        assert lets_go(last["always"])
    else:
        (ended,) = whole["rescue"]
        release, fail = yaml.safe_load((PLAYBOOKS / ended["ansible.builtin.import_tasks"]).read_text())
        assert lets_go([release])
        # The failure has to be the last task of its host: Ansible counts it for max_fail_percentage only then.
        assert list(fail)[1] == "ansible.builtin.fail"
        # A task after the block would not run where another host of the batch fails.
        assert lets_go(whole["block"])
    assert "post_tasks" not in play
    assert str(play).count("'nodedevices.kubernetes.node_lock'") == 1


@pytest.mark.parametrize(
    ("known", "reached"),
    [({}, True), ({"node_devices_api_only": "yes"}, False), ({"node_devices_profile": True}, False)],
)
def test_whom_a_play_connects_to(known, reached):
    variables = yaml.safe_load((PLAYBOOKS / "vars" / "node_devices_hosts.yml").read_text())
    assert value(variables["node_devices_reached"], known) is reached


@pytest.mark.parametrize("name", ["site.yml", "status.yml", "verify.yml", "uninstall.yml"])
def test_facts_are_gathered_where_something_reaches_the_node(name):
    gathering = [
        conditions
        for play in plays(name)
        for part in ("pre_tasks", "tasks")
        for task, conditions in leaves(play.get(part, ()))
        if "nodedevices.kubernetes.node_facts" in task
    ]
    (conditions,) = gathering
    for reached in (True, False):
        known = {"node_devices_gather_facts": True, "node_devices_reached": reached}
        assert all(value("{{ %s }}" % each, known) for each in conditions) is reached
    assert not all(value("{{ %s }}" % each, {}) for each in conditions)


def test_each_node_is_proven():
    proving = [
        (task["vars"]["verification_proofs"], conditions)
        for play in plays("site.yml")
        for task, conditions in leaves(play.get("tasks", ()))
        if task.get("ansible.builtin.import_role", {}).get("name") == "nodedevices.kubernetes.verification"
    ]
    assert proving == [("unproven", ())]


def leaves(tasks, conditions=()):
    """Tasks that are no blocks, each with its conditions and those of the blocks around it."""
    for task in tasks:
        when = task.get("when", [])
        inherited = (*conditions, *(when if isinstance(when, list) else [when]))
        parts = [part for name in ("block", "rescue", "always") for part in task.get(name, ())]
        if parts:
            yield from leaves(parts, inherited)
        else:
            yield task, inherited


def test_a_node_is_drained_before_its_runtime_changes_and_let_go_however_that_ends():
    (whole,) = plays("tasks/drained_cdi_runtime.yml")
    drain, change = whole["block"]
    assert drain["ansible.builtin.import_tasks"] == "drain.yml"
    assert change["ansible.builtin.import_role"]["name"] == "nodedevices.kubernetes.cdi_runtime"
    assert [task["ansible.builtin.import_tasks"] for task in whole["always"]] == ["uncordon.yml"]


@pytest.mark.parametrize("drained", [True, False])
def test_the_runtime_changes_once_with_and_without_a_drain(drained):
    play = next(each for each in plays("site.yml") if "serial" in each)
    changes = [
        str(task)
        for task, conditions in leaves(play["tasks"])
        if ("nodedevices.kubernetes.cdi_runtime" in str(task) or "drained_cdi_runtime.yml" in str(task))
        and all(
            value("{{ %s }}" % each, {"node_devices_drain": drained, "node_devices_reached": True})
            for each in conditions
        )
    ]
    assert ["drained_cdi_runtime.yml" in task for task in changes] == [drained]
    assert "cdi_runtime" in changes[0]


def test_an_uninstall_drains_before_it_looks_for_holders_and_lets_go_however_that_ends():
    play = next(each for each in plays("uninstall.yml") if "serial" in each)
    (block,) = play["tasks"]
    steps = [str(task) for task in block["block"]]
    drained, changed, asked = (
        next(number for number, step in enumerate(steps) if words in step)
        for words in ("tasks/drain.yml", "nodedevices.kubernetes.cdi_runtime", "device_holders")
    )
    # Once the pods have gone, nobody holds a device.
    assert drained < min(changed, asked)
    (always,) = block["always"]
    (uncordon,) = always["block"]
    assert "tasks/uncordon.yml" in str(uncordon)
    assert "drain" in str(uncordon["when"])


@pytest.mark.parametrize("name", ["site.yml", "uninstall.yml"])
def test_the_preflight_checks_what_a_drain_needs(name):
    play = next(each for each in plays(name) if "serial" in each)
    looks = [
        task["nodedevices.kubernetes.node_preflight"]
        for task, _conditions in leaves([*play.get("pre_tasks", ()), *play["tasks"]])
        if "lock" in task.get("nodedevices.kubernetes.node_preflight", ())
    ]
    assert ["node_devices_drain | default(false)" in look["drain"] for look in looks] == [True]


@pytest.mark.parametrize(
    ("cordoned", "result", "names"),
    [
        (True, {"changed": True}, ["Uncordon the node"]),
        # Undone, with its old configuration; refused before anything was touched; another step failed.
        (True, {"failed": True, "answers": True}, ["Uncordon the node"]),
        (True, {"failed": True}, ["Uncordon the node"]),
        (True, None, ["Uncordon the node"]),
        (True, {"failed": True, "answers": False}, ["Keep the node cordoned if its container runtime does not answer"]),
        # The cordon is somebody else's, who is not spoken for.
        (False, {"failed": True, "answers": False}, ["Uncordon the node"]),
    ],
)
def test_a_node_is_let_go_where_its_runtime_answers(cordoned, result, names):
    known = {"node_devices_drained": {"cordoned": cordoned}}
    if result is not None:
        known["cdi_runtime_result"] = result
    reached = []
    for task in plays("tasks/uncordon.yml"):
        if all(value("{{ %s }}" % condition, known) for condition in task.get("when", [])):
            reached.append(task["name"])
            if "ansible.builtin.fail" in task:
                break
    assert reached == names


def included(role, file, known):
    """Whether a role goes on with a file of tasks, where so much is known."""
    tasks = yaml.safe_load((ROLES / role / "tasks" / "main.yml").read_text())
    (task,) = [each for each in tasks if each.get("ansible.builtin.include_tasks") == file]
    conditions = task["when"] if isinstance(task["when"], list) else [task["when"]]
    return all(value("{{ %s }}" % condition, known) for condition in conditions)


STARTED = {
    "device_plugin_started": {"invocation_id": "of-the-service"},
    "device_plugin_pod": {"invocation_id": "of-the-pod"},
}


@pytest.mark.parametrize(
    ("known", "invocation"),
    [
        (STARTED, "of-the-service"),
        ({**STARTED, "device_plugin_mode": "daemonset"}, "of-the-pod"),
        ({}, ""),
        ({"device_plugin_mode": "daemonset"}, ""),
        # Check mode waits for no pod.
        ({"device_plugin_mode": "daemonset", "device_plugin_pod": {"pod": None}}, ""),
        ({"device_plugin_started": {"skipped": True}}, ""),
    ],
)
def test_the_verification_knows_which_plugin_the_play_has_started(known, invocation):
    variables = yaml.safe_load((ROLES / "verification" / "vars" / "main.yml").read_text())
    assert value(variables["verification_invocation"], known) == invocation
    task = yaml.safe_load((ROLES / "verification" / "tasks" / "present.yml").read_text())[0]
    arguments = task["nodedevices.kubernetes.verification"]
    assert arguments["invocation"] == "{{ verification_invocation | default(omit, true) }}"


UNIT = "/etc/systemd/system/node-device-plugin.service"


@pytest.mark.parametrize(
    ("contents", "was_pod", "pending"),
    [
        ([UNIT], False, True),
        ([], False, False),
        # An earlier task has started the service with its new files.
        ([UNIT], True, False),
    ],
)
def test_a_service_that_has_just_started_with_its_new_files_is_not_restarted(contents, was_pod, pending):
    tasks = yaml.safe_load((ROLES / "device_plugin" / "tasks" / "service.yml").read_text())
    (service,) = (task for task in tasks if "nodedevices.kubernetes.service" in task)
    known = {"device_plugin_unit": UNIT, "device_plugin_files": {"contents": contents}, "device_plugin_is_pod": was_pod}
    assert value(service["nodedevices.kubernetes.service"]["pending"], known) is pending


TIMER = "/etc/systemd/system/node-device-capacities.timer"
NOTHING = {"declaration": {"capacities": {}}}


@pytest.mark.parametrize(
    ("known", "concerned"),
    [
        ({"node_devices_node": {"ledger": {}, **NOTHING}}, False),
        ({"node_devices_node": {"ledger": {}, **NOTHING}, "node_devices_kubeconfig": ""}, False),
        ({"node_devices_node": {"ledger": {}, **NOTHING}, "node_devices_kubeconfig": "~/.kube/config"}, True),
        # Without a kubeconfig it is an error, which somebody has to say.
        ({"node_devices_node": {"ledger": {}, "declaration": {"capacities": {"a/b": 1}}}}, True),
        ({"node_devices_node": {"ledger": {TIMER: {}}, **NOTHING}}, True),
        # An uninstall reads no declaration.
        ({"node_devices_node": {"ledger": {}}, "extended_resources_state": "absent"}, False),
        ({"node_devices_node": {"ledger": {TIMER: {}}}, "extended_resources_state": "absent"}, True),
        # The role alone, which has not looked at the node.
        ({}, True),
        ({"node_devices_api_only": True, "node_devices_node": NOTHING}, False),
        # A profile has no node object.
        ({"node_devices_profile": True, "node_devices_node": NOTHING, "node_devices_kubeconfig": "/k"}, False),
    ],
)
def test_a_node_that_has_no_capacities_of_ours_is_asked_once(known, concerned):
    variables = yaml.safe_load((ROLES / "extended_resources" / "vars" / "main.yml").read_text())
    known = {"extended_resources_state": "present", "extended_resources_timer": TIMER, **known}
    for name in ("is_profile", "reached", "may_restore", "may_declare", "concerned"):
        name = f"extended_resources_{name}"
        known[name] = value(variables[name], known)
    assert included("extended_resources", "node_object.yml", known) == concerned


@pytest.mark.parametrize(
    ("known", "part"),
    [
        ({"device_plugin_node": {"device_plugins": {"instance": None}}}, "service"),
        ({"device_plugin_node": {"device_plugins": {"instance": {"mode": "service"}}}}, "service"),
        ({"device_plugin_node": {"device_plugins": {"instance": {"mode": "pod"}}}}, "service"),
        # A run of other tags, which does not look at the node.
        ({}, "service"),
        ({"device_plugin_mode": "daemonset"}, "daemonset"),
        ({"device_plugin_state": "absent"}, "absent"),
        # Nothing but a pod can be there, even if the variable says something else.
        ({"node_devices_api_only": True, "device_plugin_state": "absent"}, "absent"),
        ({"node_devices_profile": True}, "daemonset"),
        ({"node_devices_profile": True, "device_plugin_state": "absent"}, "absent"),
    ],
)
def test_which_tasks_run_the_plugin(known, part):
    role = ROLES / "device_plugin"
    variables = yaml.safe_load((role / "vars" / "main.yml").read_text())
    known = {"device_plugin_mode": "service", "device_plugin_state": "present", **known}
    for name in ("is_profile", "reached", "has_pod", "part"):
        known[f"device_plugin_{name}"] = value(variables[f"device_plugin_{name}"], known)
    assert known["device_plugin_part"] == part
    assert (role / "tasks" / f"{part}.yml").exists()
