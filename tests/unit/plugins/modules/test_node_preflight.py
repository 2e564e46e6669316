"""What stands in the way on a node, as the action says it: one sentence each, before anything is written."""

from __future__ import annotations

import errno
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import types

import pytest
import yaml
from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import extended_resources
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import ApiError, NotFound
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.kubelet.dra import RECORDS
from ansible_collections.nodedevices.kubernetes.plugins.action import node_preflight
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock
from ansible_collections.nodedevices.kubernetes.plugins.modules import node_preflight as module
from ansible_collections.nodedevices.kubernetes.plugins.modules.node_preflight import looked_for
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration, framed, preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.asked import completed
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import cluster_access

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]
FACTS = {
    "python": {"version": [3, 11, 2], "executable": "/usr/bin/python3"},
    "uid": 0,
    "init": "systemd",
    "runtime": {"name": "containerd", "version": "1.7.24", "obstacles": []},
    "kubelet": None,
    "commands": [],
    "cdi_files": [],
    "claims_prepared": [],
    "spec_devices": [],
    "ledger": [],
    "missing_devices": [],
    "missing_host_paths": [],
    "device_plugins": {"instance": None, "registered": [], "others": [], "drivers": []},
    "other_than_devices": {},
    "device_links": {},
}
# Of the play that the action is in.
PLAY = "play-2"
MISSING = "node1: /bin/plugin is not installed on the node: run role node_tools (site.yml) first"


def of_module(unshown=False, **answer):
    """What the node would do for a module, as the preflight's module says."""
    return {"answer": answer, "has_unshown_work": unshown}


@pytest.fixture
def look(monkeypatch):
    """look(facts, code of `test -x`, check mode, answers of the first modules, arguments).

    It gives the result, and what the modules were given.
    """
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_action(facts=FACTS, code=1, check=False, answers=(), known=None, variables=(), **arguments):
        answers = list(answers)
        action = run_action.action = object.__new__(node_preflight.ActionModule)
        play = types.SimpleNamespace(_uuid=PLAY)
        action._task = types.SimpleNamespace(args=arguments, check_mode=check, get_play=lambda: play)
        given = []

        def execute(module_name, module_args, task_vars):
            # The plugin's code has a test of its own.
            given.append({name: each for name, each in module_args.items() if name != "code"})
            return dict(answers.pop(0) if answers else facts)

        action._execute_module = execute
        monkeypatch.setattr(framed, "run", lambda _action, _line, _given=None: framed.Said(code, "", ""))
        action._templar = types.SimpleNamespace(template=lambda value: value)
        known = {} if known is None else {"node_devices_node": known}
        return action.run(None, {"inventory_hostname": "node1", **known, **dict(variables)}), given

    return run_action


def test_a_command_that_is_missing_is_one_sentence(look):
    result, given = look(requires=["python", "command"], command="/bin/plugin")
    assert given == [{"commands": ["/bin/plugin"]}]
    assert result["failed"] is True
    assert result["msg"].splitlines()[1:] == [MISSING]


@pytest.mark.parametrize(("mode", "refused"), [("service", True), (None, False), ("daemonset", False)])
def test_a_dra_driver_needs_the_node_s_access(look, mode, refused):
    driver = {"name": "d.example.com", "node": "node1", "kubeconfig": "/kubelet.conf"}
    declared = {**declaration.read({}, lambda value: value).as_data(), "dra": driver}
    # A pod has an account of its own.
    facts = FACTS if mode == "daemonset" else {**FACTS, "dra": {"problem": "No such file", "paths": []}}
    arguments = {"mode": mode} if mode else {}
    result, (given,) = look(facts, requires=["python"], declaration=declared, **arguments)
    # The node tells with the plugin's code.
    assert given.get("dra") == (None if mode == "daemonset" else driver)
    lines = ["node1: resources with api: dra cannot use /kubelet.conf: No such file"] * refused
    assert result.get("msg", "").splitlines()[1:] == lines


def test_what_the_node_knows_of_a_dra_driver(tmp_path):
    driver = {"name": "d.example.com", "node": "node1", "kubeconfig": str(tmp_path / "kubelet.conf")}
    problem = f"{tmp_path}/kubelet.conf: No such file or directory"
    assert module.dra_access(driver, "/var/lib/kubelet") == {"dra": {"problem": problem, "paths": ()}}
    assert module.dra_access(None, "/var/lib/kubelet") == {}


def test_the_claims_that_a_node_has_prepared(tmp_path):
    directories = [str(tmp_path / "missing"), str(tmp_path), f"{tmp_path}/"]
    records = tmp_path / RECORDS
    records.mkdir()
    for name in (".u3.staged", "note.txt"):
        (records / name).write_text("{")
    assert module.prepared_claims(directories) == []
    claim = {"uid": "u1", "namespace": "default", "name": "viewer"}
    (records / "u1.json").write_text(json.dumps({"claim": claim, "driver": "d.example.com"}))
    (records / "u2.json").write_text(json.dumps({"claim": claim}))
    (records / "u3.json").write_text("{")
    (records / "u4.json").write_text(json.dumps({"claim": claim, "driver": ["d"]}))
    assert [(each["name"], each["driver"], each["directory"]) for each in module.prepared_claims(directories)] == [
        ("default/viewer", "d.example.com", str(tmp_path)),
        ("default/viewer", None, str(tmp_path)),
        ("u3.json", None, str(tmp_path)),
        ("default/viewer", None, str(tmp_path)),
    ]


@pytest.mark.parametrize("settings", [{}, {"dynamic_cdi_dir": "/srv/cdi"}])
def test_the_node_looks_for_claims_where_the_plugin_records_them(look, settings):
    _result, (given,) = look(requires=["python"], variables={"node_devices_settings": settings})
    assert given.get("cdi_dir") == settings.get("dynamic_cdi_dir")


@pytest.mark.parametrize(("mode", "refused"), [("service", True), (None, False)])
def test_the_settings_of_prepared_claims_stay(look, mode, refused):
    driver = {"name": "new.example.com", "node": "node1", "kubeconfig": "/kubelet.conf"}
    settings = {"dynamic_cdi_dir": "/srv/cdi"}
    declared = {**declaration.read({"node_devices_settings": settings}, lambda value: value).as_data(), "dra": driver}
    claim = {"name": "default/viewer", "driver": "old.example.com", "directory": "/run/cdi"}
    facts = {**FACTS, "claims_prepared": [claim]}
    arguments = {"mode": mode} if mode else {}
    result, _ = look(facts, requires=["python"], declaration=declared, **arguments)
    lines = result.get("msg", "").splitlines()[1:]
    assert [line.partition(": is ")[0] for line in lines] == [
        "node1: dra.driver in node_devices_settings",
        "node1: dynamic_cdi_dir in node_devices_settings",
    ] * refused


HOME = "/home/deploy/.pyenv/versions/3.11.7/bin/python3.11"
HIDDEN = {"executable": "/home/deploy/venv/bin/python3", "obstacle": f"the sandbox hides {HOME}", "hidden_root": None}


@pytest.mark.parametrize(
    ("mode", "variables", "refused"),
    [
        ("service", {}, True),
        # No unit runs it.
        ("daemonset", {}, False),
        (None, {}, False),
        # The timer's unit runs it.
        ("daemonset", {"extended_resources_restore": True}, True),
    ],
)
def test_a_python_that_the_service_cannot_run_is_refused(look, mode, variables, refused):
    facts = {**FACTS, "python": {**FACTS["python"], **HIDDEN}}
    arguments = {"mode": mode} if mode else {}
    result, _given = look(facts, requires=["python"], variables=variables, **arguments)
    assert result.get("failed", False) is refused
    says = (
        f"node1: Ansible uses /home/deploy/venv/bin/python3 on this node, but the sandbox hides {HOME}: set "
        "ansible_python_interpreter to a Python that only root can replace, such as /usr/bin/python3"
    )
    assert result.get("msg", "").splitlines()[1:] == [says] * refused


def test_environments_that_the_service_cannot_see_are_refused(look):
    facts = {**FACTS, "python": {**FACTS["python"], "obstacle": None, "hidden_root": "/root"}}
    result, _given = look(facts, requires=["python"], mode="service")
    assert "node1: node_tools_root is below /root, which the sandbox of the plugin's service hides" in result["msg"]


def test_what_a_module_would_refuse_later_is_refused_now(look):
    """For example modules that no modprobe can load, although the roles before host_devices change the node."""
    refused = {"host_devices": [of_module(changed=False, problems=["this node has no modprobe"])]}
    asked = {"requires": ["python"], "converge": {"host_devices": [{}]}}
    result, _given = look({**FACTS, "converged": refused}, **asked)
    assert result["msg"].splitlines()[1:] == ["node1: this node has no modprobe"]
    # Without root, the node's answer is unreliable.
    result, _given = look({**FACTS, "converged": refused, "uid": 1000}, **asked)
    assert len(result["msg"].splitlines()) == 2
    assert "the collection needs root" in result["msg"]


LEFT = {**FACTS, "transaction_left": True, "runtime": {"name": "containerd", "problem": "it does not answer"}}


@pytest.mark.parametrize(
    ("begun", "error", "says"),
    [
        (True, "x did not start", "was undone: x did not start"),
        (True, None, "was finished"),
        (False, None, "had not begun, so nothing was undone"),
    ],
)
def test_what_an_earlier_run_left_is_settled_before_the_node_is_looked_at(look, begun, error, says):
    result, given = look(answers=[LEFT, {"changed": True, "begun": begun, "error": error}], requires=["systemd"])
    assert given == [{}, {"state": "recovered"}, {}]
    assert (result["changed"], result["runtime"]) == (True, FACTS["runtime"])
    assert result["warnings"][0].endswith(says)


@pytest.mark.parametrize("check", [False, True])
def test_what_whoever_began_it_saw_to_its_end_in_the_meantime_is_no_change(look, check):
    """A killed play leaves a module behind on the node, which waits for the transaction and tidies up."""
    result, given = look(answers=[LEFT, {"changed": False}], check=check, requires=["systemd"])
    assert given == [{}, {"state": "recovered"}, {}]
    assert (result["changed"], result["runtime"]) == (False, FACTS["runtime"])
    assert "warnings" not in result


def test_in_check_mode_it_is_only_said(look):
    result, given = look(answers=[{**LEFT, **FACTS}, {"changed": True}], check=True)
    assert given == [{}, {"state": "recovered"}]
    assert "the next run finishes or undoes it first" in result["warnings"][0]


def test_what_cannot_be_settled_stops_the_run(look):
    result, given = look(answers=[LEFT, {"failed": True, "msg": "the disk is read-only"}])
    assert len(given) == 2
    assert result["failed"] is True
    assert "the disk is read-only" in result["msg"]


def test_a_kubelet_that_nobody_tested_is_a_warning_once_a_play(look):
    facts = {**FACTS, "kubelet": {"pid": 7, "version": "1.30.14"}}
    first, _ = look(facts, requires=["kubelet"])
    (warning,) = first["warnings"]
    assert warning.startswith("node1: kubelet 1.30.14: this project is not tested with kubelets older than 1.31")
    second, _ = look(facts, requires=["kubelet"], known=first)
    assert "warnings" not in second
    tested, _ = look({**facts, "kubelet": {"pid": 7, "version": "1.31.0"}}, requires=["kubelet"])
    assert "warnings" not in tested


def numbered(action, result):
    """The number that a declaration has instead of its name."""
    declared = action.preflight.with_numbers(result["declaration"], result)
    (spec,) = declared["cdi_specs"].values()
    of_spec = spec["devices"][0]["containerEdits"]["deviceNodes"][0]["gid"]
    assert declared["configuration"]["resources"][0]["devices"][0]["nodes"][0]["gid"] == of_spec
    return of_spec


CAMERA = {"name": "example.com/camera", "devices": [{"id": "a", "nodes": [{"path": "/dev/null", "gid": "video"}]}]}


def test_names_of_groups_become_numbers_before_anything_is_written(look):
    facts = {**FACTS, "accounts": {"users": {}, "groups": {"video": 44}}}
    result, given = look(facts, variables={"node_devices_resources": [CAMERA]}, declared=True)
    assert [each["accounts"] for each in given] == [{"groups": ["video"]}]
    assert numbered(look.action, result) == 44
    again, given = look(known=result, variables={"node_devices_resources": [CAMERA]}, declared=True)
    assert (again["declaration"], given) == (result["declaration"], [])


def test_a_group_that_the_node_does_not_know_is_said_with_node_and_field(look):
    result, _given = look(variables={"node_devices_resources": [CAMERA]}, declared=True)
    with pytest.raises(preflight.NotReady) as refused:
        numbered(look.action, {**result, "accounts": {"users": {}, "groups": {"video": None}}})
    assert str(refused.value).splitlines() == [
        "node1: example.com/camera.devices (a).nodes[0].gid: the node has no group 'video': create the group there, or "
        "give its number"
    ]


def test_facts_from_before_a_name_was_declared_are_not_trusted(look):
    known, _given = look()
    afresh = {"accounts": {"groups": {"video": 44}}}
    result, given = look(afresh, known=known, variables={"node_devices_resources": [CAMERA]}, declared=True)
    assert given == []
    assert numbered(look.action, result) == 44
    assert given == [{"accounts": {"groups": ["video"]}}]


def test_a_name_on_a_node_that_only_the_api_reaches_is_refused(look):
    variables = {"node_devices_api_only": True, "node_devices_resources": [CAMERA]}
    result, given = look(variables=variables, declared=True)
    assert given == []
    assert result["msg"].splitlines()[1:] == [
        "node1: example.com/camera.devices (a).nodes[0].gid: must be a number, because the run cannot look up a name "
        "if only the Kubernetes API reaches the node"
    ]


def test_the_node_looks_names_up():
    found = module.numbers(users=["root", "no such user"], groups=["root"])
    assert found == {"users": {"root": 0, "no such user": None}, "groups": {"root": 0}}
    assert module.numbers() == {"users": {}, "groups": {}}


def test_a_command_that_was_found_is_not_asked_for_again(look):
    result, _given = look({**FACTS, "commands": ["/bin/plugin"]}, requires=["command"], command="/bin/plugin")
    assert "failed" not in result
    assert result["commands"] == ["/bin/plugin"]


def test_what_is_known_may_be_from_before_the_command_was_installed(look):
    known = {**FACTS, "read_in": PLAY}
    result, given = look(code=0, known=known, requires=["command"], command="/bin/plugin")
    assert given == []
    assert "failed" not in result
    assert look(code=1, known=known, requires=["command"], command="/bin/plugin")[0]["failed"] is True


@pytest.mark.parametrize("read_in", ["play-1", None])
def test_what_another_play_has_read_may_have_changed_since(look, read_in):
    """Such as a role that comes after site.yml in one run: by now another plugin may serve what is declared."""
    known = {
        **FACTS,
        "device_plugins": {"instance": None, "registered": [], "others": [], "drivers": []},
        "read_in": read_in,
    }
    changed = {"instance": None, "registered": ["a.example/b"], "others": ["other.sock"], "drivers": []}
    now = {**known, "device_plugins": changed}
    declared = {**DECLARED, "cdi_specs": {}, "foreign_kinds": [], "resources": [{"name": "a.example/b"}]}
    result, given = look(now, known=known, declaration=declared, mode="service")
    (asked,) = given
    assert (asked["device_plugin_dir"], asked["device_paths"], asked["host_paths"]) == ("/plugins", {}, [])
    assert (
        "another device plugin already serves a.example/b on this node (sockets of other plugins: other.sock)"
        in result["msg"]
    )


def test_which_play_it_is_that_ansible_runs(tmp_path):
    """Asked about this machine: what was read is made another, so that it shows whether it was taken."""
    known = "{{ node | ansible.builtin.combine({'init': 'known'}) }}"
    again = {
        "nodedevices.kubernetes.node_preflight": {},
        "vars": {"node_devices_node": known},
        "register": "again",
    }
    shown = {"ansible.builtin.debug": {"msg": "init: {{ again.init }}"}}
    plays = [
        {"tasks": [{"nodedevices.kubernetes.node_preflight": {}, "register": "node"}, again, shown]},
        {"tasks": [again, shown]},
    ]
    playbook = tmp_path / "plays.yml"
    playbook.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, **play} for play in plays]))
    interpreter = f"ansible_python_interpreter={sys.executable}"
    ended = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", interpreter, str(playbook)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    inits = re.findall(r"msg: 'init: (.*)'", ended.stdout)
    first = pathlib.Path("/proc/1/comm").read_text().strip()
    assert inits == ["known", first], ended.stdout + ended.stderr


SAYS = '{"name": "containerd", "cdi": {"enabled": true, "spec_dirs": ["/etc/cdi"]}}'


@pytest.mark.parametrize(
    ("tags", "skipped"),
    [
        ({}, False),
        ({"ansible_run_tags": ["all"], "ansible_skip_tags": ["verify"]}, False),
        ({"ansible_run_tags": ["configure"]}, False),
        ({"ansible_run_tags": ["cdi_runtime", "node_tools"]}, False),
        ({"ansible_run_tags": ["node_tools"]}, True),
        ({"ansible_run_tags": ["all"], "ansible_skip_tags": ["cdi_runtime"]}, True),
        ({"ansible_run_tags": ["all"], "ansible_skip_tags": ["configure"]}, True),
    ],
)
def test_a_run_that_skips_the_role_refuses_no_runtime(look, tags, skipped):
    """Another tool may own the runtime's configuration."""
    asked = {"cdi_runtime": [{"command": "/bin/plugin"}], "service": []}
    _result, (given,) = look(converge=asked, variables=tags)
    asked["cdi_runtime"][0]["state"] = "present"
    assert given["converge"] == ({"service": []} if skipped else asked)


def test_the_runtimes_socket_is_the_same_for_all_that_look(look):
    variables = {"node_devices_cri_socket": "/run/x.sock"}
    asked = {"cdi_runtime": [{"command": "/bin/plugin"}]}
    _result, (given,) = look(converge=asked, variables=variables)
    assert (given["cri_socket"], given["converge"]["cdi_runtime"][0]["cri_socket"]) == ("/run/x.sock", "/run/x.sock")


def test_facts_without_obstacles_are_read_again_where_a_runtime_is_required(look):
    """An uninstall's preflight requires Python alone."""
    runtime = {"name": "containerd", "version": "1.7.24"}
    known = {**FACTS, "runtime": runtime, "read_in": PLAY}
    assert look(requires=["python"], known=known)[1] == []
    _result, (given,) = look(requires=["runtime"], known=known)
    assert given["cdi"] is True
    assert look(requires=["runtime"], known={**FACTS, "read_in": PLAY})[1] == []


def test_an_answer_belongs_to_the_arguments_that_the_roles_tasks_give(look):
    """The node replaces names of groups, for the preflight and for the roles' tasks."""
    declared = declaration.read({"node_devices_resources": [CAMERA]}, lambda value: value).as_data()
    files = {"owner": "us", "files": [{"path": "/x", "configuration": declared["configuration"]}]}
    answered = {name: [of_module(changed=False, problems=[])] for name in ("managed_files", "cdi_specs")}
    facts = {**FACTS, "converged": answered}
    asked = {"managed_files": [files], "cdi_specs": [{}]}
    result, _given = look(facts, declaration=declared, requires=["runtime"], converge=asked)
    assert result["declaration"] == declared
    assert {name: each["arguments"] for name, (each,) in result["converged"].items()} == {
        "managed_files": preflight._digest(files),
        "cdi_specs": preflight._digest(completed("cdi_specs", {}, declared)),
    }


@pytest.mark.parametrize(
    ("name", "arguments", "needed"),
    [
        ("node_preflight", {}, False),
        ("node_preflight", {"cdi": False}, True),
        ("node_preflight", {"dra": {}}, True),
        ("node_preflight", {"converge": {"service": []}}, False),
        ("node_preflight", {"converge": {"cdi_runtime": []}}, True),
        ("cdi_runtime", {"state": "present"}, True),
        ("cdi_runtime", {"state": "recovered"}, False),
        ("node_preflight", {"converge": {"managed_files": [{}, {"files": [{"content": ""}]}]}}, False),
        ("node_preflight", {"converge": {"managed_files": [{}, {"files": [{"configuration": {}}]}]}}, True),
        ("managed_files", {"files": [{"content": ""}, {"configuration": {}}]}, True),
        ("managed_files", {"files": [{"content": ""}]}, False),
        ("managed_files", {}, False),
        ("node_tools", {}, True),
        ("node_preflight", {"converge": {"node_tools": [{}]}}, True),
        ("service", {"files": ["/etc/node-device-plugin/configuration"]}, False),
    ],
)
def test_which_modules_get_the_plugins_code(name, arguments, needed):
    assert preflight._needs_code(name, arguments) is needed


@pytest.mark.parametrize("code", [None, {"sha256": "0"}])
def test_the_controller_gets_the_runtimes_obstacles_and_nothing_of_its_configuration(code):
    dump = "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\ncdi_spec_dirs = ['/opt/cdi']\n"
    config = {"path": "/c.toml", "exists": True, "content": "a = 1\n[x\n", "effective": dump}
    runtime = {"socket": "/s", "name": "containerd", "executable": "/c", "version": "1.7.24", "config": config}
    shown, directories = module.judged(runtime, types.SimpleNamespace(params={"code": code, "cdi": True}))
    # Without the code, nothing on the node parses TOML.
    assert directories == [*(["/opt/cdi"] if code else []), "/etc/cdi", "/var/run/cdi"]
    obstacles = shown.pop("obstacles", [])
    assert shown == {"socket": "/s", "name": "containerd", "version": "1.7.24"}
    assert ["is not valid TOML" in each for each in obstacles] == [True] * bool(code)


@pytest.mark.parametrize("needs_cdi", [True, False])
def test_cdi_is_looked_at_where_a_device_is_given_by_cdi(look, needs_cdi):
    asked = {"cdi_runtime": [{"command": "/bin/plugin"}], "service": []}
    declared = {**DECLARED, "needs_cdi": needs_cdi}
    _result, (given,) = look(requires=["runtime"], converge=asked, declaration=declared)
    assert ("cdi_runtime" in given["converge"], given["cdi"]) == (needs_cdi, needs_cdi)


PATHS = {"/dev/a": {"device": "a.example/b a", "required": True, "exclusive": True}}
WITH_DEVICES = {"requires": ["devices"], "device_paths": PATHS}


@pytest.mark.parametrize(
    ("check", "made", "is_missing"),
    [(False, [], True), (True, [], True), (False, [{"path": "/dev/a"}], True), (True, [{"path": "/dev/a"}], False)],
)
def test_devices_that_were_missing_are_looked_for_again(look, check, made, is_missing):
    """A role may have made them since; check mode has made none."""
    known = {**FACTS, "read_in": PLAY}
    variables = {"host_devices_nodes": made}
    assert look(known=known, **WITH_DEVICES)[1] == [], "none was missing"
    missing = {**FACTS, "missing_devices": ["/dev/a"]}
    result, given = look(known={**missing, "read_in": PLAY}, **WITH_DEVICES)
    assert (result.get("failed"), given) == (None, [{"device_paths": PATHS}])
    result, given = look(missing, check=check, known={**missing, "read_in": PLAY}, variables=variables, **WITH_DEVICES)
    assert (result.get("failed", False), len(given)) == (is_missing, 1)


CAM = {"field": "cam.mounts[0]", "who": "device cam a", "required": True, "all_of": []}


@pytest.mark.parametrize("check", [True, False])
def test_a_missing_mount_is_found_before_anything_is_written(look, check):
    """It passed --check; site.yml then took the resource from 2 devices to 0."""
    declared = {**DECLARED, "host_paths": {"/etc/nope": CAM}}
    node = {**FACTS, "missing_host_paths": ["/etc/nope"]}
    result, (given, *_others) = look(node, check=check, requires=["devices"], declaration=declared)
    assert given["host_paths"] == ["/etc/nope"]
    assert result["msg"].startswith(
        "The node is not ready; this task wrote nothing on it.\nnode1: /etc/nope does not exist"
    )
    assert "failed" not in look(FACTS, check=check, requires=["devices"], declaration=declared)[0]


@pytest.mark.parametrize(("check", "fails"), [(False, True), (True, False)])
def test_check_mode_expects_what_kernel_modules_would_make(look, check, fails):
    declared = {**DECLARED, "host_paths": {"/dev/cam": CAM}}
    node = {**FACTS, "missing_host_paths": ["/dev/cam"]}
    known, variables = {**node, "read_in": PLAY}, {"host_devices_modules": [{"name": "cam"}]}
    result, _given = look(
        node, check=check, known=known, variables=variables, requires=["devices"], declaration=declared
    )
    assert result.get("failed", False) is fails


MADE = {"host_devices_nodes": [{"path": "/dev/made", "type": "c", "major": 1, "minor": 3}]}
LINK = 'SUBSYSTEM=="tty", ATTRS{idVendor}=="1a86", SYMLINK+="made other-%k"'


@pytest.mark.parametrize(
    ("variables", "awaited"),
    [
        (MADE, ["/dev/made"]),
        ({"host_devices_udev_rules": [LINK]}, ["/dev/made", "/dev/other-1"]),
        ({"host_devices_udev_rules": ['KERNEL=="x", MODE="0660"']}, []),
        # Nobody knows what these create, but nothing outside the kernel's directories.
        ({"host_devices_udev_rules": ['KERNEL=="x", RUN+="/bin/make"']}, ["/dev/made", "/dev/other-1", "/dev/nobodys"]),
        ({"host_devices_modules": [{"name": "cam"}]}, ["/dev/made", "/dev/other-1", "/dev/nobodys"]),
        ({}, []),
        # The run skips the role, by its tag alone or with others.
        ({**MADE, "ansible_skip_tags": ["host_devices"]}, []),
        ({**MADE, "ansible_skip_tags": ["verify", "host_devices"]}, []),
        ({**MADE, "ansible_skip_tags": ["verify"]}, ["/dev/made"]),
        ({**MADE, "ansible_skip_tags": None}, ["/dev/made"]),
    ],
)
def test_only_what_host_devices_creates_may_be_missing_before_it(look, variables, awaited):
    """A run installed, restarted containerd, and then missed a device that nobody makes."""
    paths = ["/dev/made", "/dev/other-1", "/dev/nobodys", "/etc/nobodys"]
    declared = {
        **DECLARED,
        "device_paths": {path: {"device": "a.example/b a", "required": True, "exclusive": True} for path in paths[:3]},
        "host_paths": {paths[3]: CAM},
    }
    facts = {**FACTS, "missing_devices": paths[:3], "missing_host_paths": paths[3:]}
    first = {"requires": ["devices"], "declaration": declared, "variables": variables, "lock": {"minutes": 1}}
    result, _given = look(facts, **first)
    head, *lines = result["msg"].splitlines()
    assert head == "The node is not ready; nothing was written on it."
    missing = [line.removeprefix("node1: ").partition(" does not exist")[0] for line in lines]
    assert missing == [path for path in paths if path not in awaited]
    # The preflight has found that the role changes nothing.
    refused = {"changed": False, "problems": ["no"]}
    unknown = {"changed": False, "in_use": ["nobody knows who holds it"]}
    for answer, lines in (
        ({"changed": False}, paths),
        ({"changed": True}, missing),
        (unknown, missing),
        (refused, ["no", *missing]),
    ):
        # The second one is for the task that prunes.
        converged = {"host_devices": [of_module(**answer), of_module(changed=False)]}
        result, _given = look({**facts, "converged": converged}, converge={"host_devices": [{}, {"a": 1}]}, **first)
        assert len(result["msg"].splitlines()) == 1 + len(lines)


@pytest.mark.parametrize("wrote", [False, True])
def test_a_role_says_only_of_itself_that_it_wrote_nothing(look, monkeypatch, tmp_path, wrote):
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    known = {**FACTS, "missing_devices": ["/dev/a"], "read_in": PLAY}
    if wrote:
        monkeypatch.setattr(preflight.Preflight, "_written", tmp_path)
    result, _given = look(known, known=known, **WITH_DEVICES)
    earlier = "; earlier tasks of this play may have written on it" if wrote else ""
    assert result["msg"].splitlines()[0] == f"The node is not ready; this task wrote nothing on it{earlier}."


def test_a_node_that_is_not_ready_says_how_an_earlier_change_ended(look):
    """That is written on the node, too."""
    left = {**FACTS, "transaction_left": True, "missing_devices": ["/dev/a"]}
    undone = {"changed": True, "error": "it did not start", "begun": True}
    result, _given = look(left, answers=[left, undone], lock={"minutes": 1}, **WITH_DEVICES)
    head, change, missing, *others = result["msg"].splitlines()
    assert head == "The node is not ready; only the change of an earlier run was finished or undone on it."
    assert change.endswith("by an earlier, interrupted run was undone: it did not start")
    assert missing.startswith("node1: /dev/a does not exist")
    assert others == []


@pytest.mark.parametrize(("lock", "fails"), [({"minutes": 1}, True), (None, False)])
def test_a_play_without_a_declaration_names_misspelled_variables(look, lock, fails):
    arguments = {"lock": lock} if lock else {}
    result, _given = look(variables={"node_devices_in_us": "refuse"}, **arguments)
    assert result.get("failed", False) is fails
    if fails:
        assert "node1: node_devices_in_us: no role" in result["msg"]
        assert "is nearly node_devices_in_use" in result["msg"]


def test_paths_that_do_not_exist(tmp_path, monkeypatch):
    (tmp_path / "there").touch()
    (tmp_path / "broken").symlink_to(tmp_path / "none")
    missing = [str(tmp_path / name) for name in ("broken", "none", "there/below")]
    assert module.missing_of([*missing, str(tmp_path / "there"), str(tmp_path)]) == sorted(missing)
    hangs, stat = threading.Event(), os.stat

    def late(path, *arguments, **options):
        if str(path).endswith("there"):
            hangs.wait()
        return stat(path, *arguments, **options)

    monkeypatch.setattr(module, "_PATIENCE", 0.2)
    monkeypatch.setattr(os, "stat", late)
    try:
        assert module.missing_of([str(tmp_path / "there"), missing[1]]) == [missing[1]]
    finally:
        hangs.set()


# Its plugin is always a pod, whatever the default of the mode is.
PROFILE = {"node_devices_profile": True}


def test_a_node_that_only_the_api_reaches_is_not_looked_at(look):
    result, given = look(variables={"node_devices_api_only": True}, requires=["systemd"], declaration=DECLARED)
    assert (given, result["ledger"], result["declaration"]) == ([], [], DECLARED)


@pytest.mark.parametrize(
    ("mode", "variables", "refused"), [("service", {}, True), ("daemonset", {}, False), ("service", PROFILE, False)]
)
def test_no_service_runs_where_only_the_api_reaches(look, mode, variables, refused):
    result, given = look(variables={"node_devices_api_only": True, **variables}, mode=mode)
    assert (given, "no service can run there: set it to daemonset" in result.get("msg", "")) == ([], refused)


NO_NODE = "the cluster has no node w9: set node_devices_node_name to its name there, or join the node first"


@pytest.mark.parametrize(
    ("error", "joined"),
    [
        (None, True),
        (NotFound(NO_NODE), False),
        # Later tasks report it.
        (ApiError("the API server does not answer"), True),
    ],
)
def test_a_node_that_only_the_api_reaches_may_not_have_joined(look, monkeypatch, error, joined):
    asked = []

    def node(name):
        asked.append(name)
        if error:
            raise error

    monkeypatch.setattr(cluster_access.Api, "of", lambda _path, dry_run=False: types.SimpleNamespace(node=node))
    arguments = {"variables": {"node_devices_api_only": True}, "kubeconfig": "/k", "node_name": "w9"}
    result, given = look(**arguments)
    assert (given, asked, result["joined"]) == ([], ["w9"], joined)
    assert result.get("warnings", []) == [f"node1: {NO_NODE}. Until then, the play skips this host"] * (not joined)
    # A role of the same play does not ask again.
    assert "warnings" not in look(**arguments, known=result)[0]
    assert asked == ["w9"]
    assert look(variables={"node_devices_api_only": True}, known=None)[0]["joined"] is True


def test_a_play_that_takes_the_lock_looks_itself(look):
    _result, given = look(known={**FACTS, "read_in": PLAY}, lock={"minutes": 1})
    assert [each["lock"]["seconds"] for each in given] == [60]


def test_check_mode_does_without_the_command(look):
    result, _given = look(check=True, requires=["command"], command="/bin/plugin")
    assert "failed" not in result


DECLARED = {
    "cdi_specs": {},
    "configuration": {"resources": []},
    "needs_cdi": True,
    "device_paths": {},
    "host_paths": {},
    "kubelet_device_plugin_dir": "/plugins",
    "resources": [],
}


def on_node(facts=FACTS, **answer):
    """The facts of a node that says this of the CDI specs."""
    found = {"answer": {"changed": False, "warnings": [], **answer}, "has_unshown_work": False}
    return {**facts, "converged": {"cdi_specs": [found, found]}}


def test_what_the_node_says_of_the_specs_stands_in_the_way(look):
    """Other owners' specs that are only broken are warnings, once in a play."""
    result, given = look(on_node(problems=["x.json: overrides it"]), declaration=DECLARED)
    assert result["msg"].splitlines()[1:] == ["node1: x.json: overrides it"]
    assert given[0]["converge"] == {
        "cdi_specs": [
            {"state": "present", "device_plugin_dir": "/plugins", "configuration": {"resources": []}, "templates": {}}
        ]
    }
    facts = on_node(broken=["x.json: cdiVersion: is missing"], in_use=["it is held"])
    result, _given = look(facts, declaration=DECLARED)
    assert "failed" not in result
    assert result["warnings"] == ["node1: x.json: cdiVersion: is missing"]
    assert "warnings" not in look(known=result, declaration=DECLARED)[0]
    # Without a running runtime, nobody knows what the file costs.
    stopped = {**facts, "runtime": {"name": "containerd"}}
    assert "warnings" not in look(stopped, declaration=DECLARED)[0]


def test_a_foreign_spec_that_crashes_the_runtime_is_refused_before_cdi_is_turned_on(look):
    facts = on_node(crashing=["x.json: crashes it"], broken=["x.json: would not start"])
    for declared in ({"declaration": DECLARED}, {}):
        result, given = look(facts, requires=["runtime"], **declared)
        assert result["msg"].splitlines()[1:] == ["node1: x.json: crashes it"]
        assert len(given[0]["converge"]["cdi_specs"]) == 1
    # An uninstall turns CDI off, and other resources do not need it.
    result, given = look(facts, requires=["python"])
    assert ("failed" in result, given) == (False, [{}])
    result, _given = look(facts, requires=["runtime"], declaration={**DECLARED, "needs_cdi": False})
    assert "failed" not in result
    assert result["warnings"] == ["node1: x.json: would not start"]
    result, given = look(facts, requires=["runtime"], cdi=False)
    assert ("failed" in result, given) == (False, [{"cdi": False}])


def test_the_node_gets_the_code_and_the_declaration_for_each_state(look):
    template = {"kind": "a.io/b", "devices": []}
    declared = {**DECLARED, "cdi_specs": {"node-device-plugin_a.json": {}, "node-devices_a.io_b.json": template}}
    declared["configuration"] = {"dynamic_cdi_dir": "/run/own", "resources": []}
    asked = [{"command": "/bin/plugin"}, {"state": "pruned", "command": "/bin/plugin"}]
    _result, given = look(declaration=declared, converge={"cdi_specs": asked, "service": [{"name": "a"}]})
    assert given[0]["converge"]["service"] == [{"name": "a"}]
    of_both = {
        "state": "present",
        "command": "/bin/plugin",
        "device_plugin_dir": "/plugins",
        "cdi_dir": "/run/own",
        "configuration": declared["configuration"],
        "templates": {"node-devices_a.io_b.json": template},
    }
    assert given[0]["converge"]["cdi_specs"] == [of_both, {**of_both, "state": "pruned"}]


def test_without_a_runtime_its_sentence_is_the_only_one(look):
    facts = {**FACTS, "runtime": {"socket": "/run/x.sock", "problem": "no such file", "obstacles": ["no runtime"]}}
    assert len(look(facts, requires=["runtime"], declaration=DECLARED)[0]["msg"].splitlines()) == 2


def test_a_directory_is_no_device_and_a_link_is_what_it_leads_to(tmp_path):
    (tmp_path / "snd").mkdir()
    (tmp_path / "text").touch()
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "dangling").symlink_to("nowhere")
    paths = [str(tmp_path / name) for name in ("snd", "text", "null", "dangling", "none")]
    assert looked_for([*paths, "/dev/null"]) == {
        "missing_devices": paths[3:],
        "other_than_devices": {paths[0]: "a directory", paths[1]: "a file"},
        "device_links": {paths[2]: "/dev/null"},
    }


class Cluster:
    """A node that takes two pods."""

    def __init__(self, running, labels=()):
        self.pods = [{"status": {"phase": phase}} for phase in ("Running",) * running + ("Succeeded", "Failed")]
        self.labels = dict(labels)

    def get(self, place):
        metadata = {"name": place.name, "labels": self.labels}
        return {"metadata": metadata, "status": {"allocatable": {"pods": "2"}}} if place.name == "worker1" else None

    def node(self, name):
        return self.get(types.SimpleNamespace(name=name))

    def list(self, place, **selectors):
        assert (place.kinds, selectors) == ("pods", {"fieldSelector": "spec.nodeName=worker1"})
        return self.pods


SERVED = {
    **FACTS,
    "device_plugins": {**FACTS["device_plugins"], "instance": {"mode": "service", "resources": ["a.b/c", "a.b/d"]}},
}
RUN = {
    "mode": "service",
    "declaration": {**DECLARED, "capacities": {}, "foreign_kinds": [], "resources": [{"name": "a.b/d"}]},
}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("facts", "memory", "removes"),
    [
        (SERVED, None, "a.b/c"),
        (SERVED, {"patched": {"a.b/seat": None}, "served": ["a.b/old"]}, "a.b/c, a.b/seat"),
        # A first installation.
        (FACTS, None, ""),
    ],
)
def test_a_run_says_first_that_it_removes_a_resource(look, monkeypatch, check, facts, memory, removes):
    """A misspelled variable took a resource from two nodes, and no line said so."""
    annotations = {extended_resources.ANNOTATION: json.dumps(memory)} if memory else {}
    api = types.SimpleNamespace(
        node=lambda name: {"metadata": {"annotations": annotations}},
        list=lambda place, **selectors: [],
    )
    monkeypatch.setattr(cluster_access.Api, "of", lambda _path, dry_run=False: api)
    cluster = {"kubeconfig": "x"} if memory else {}
    result, _given = look(facts, check=check, lock={"minutes": 1}, **RUN, **cluster)
    says = f"node1: this run removes {removes} from the node, because the declaration no longer has it"
    assert result.get("warnings", []) == [says] * bool(removes)
    # A role of the same play does not say it again.
    assert "warnings" not in look(known={**facts, "read_in": PLAY}, check=check, **RUN, **cluster)[0]


OURS = {"nodedevices.kubernetes/device-plugin": "node-device-plugin"}


@pytest.mark.parametrize(
    ("cluster", "given", "is_refused"),
    [
        (Cluster(2), {}, True),
        (Cluster(3), {}, True),
        (Cluster(1), {}, False),
        # Its pod is there, or replaces one of ours.
        (Cluster(2, OURS), {}, False),
        (Cluster(2), {"deployment": {"image": "a", "priority_class": ""}}, False),
        (Cluster(2), {"deployment": {"image": "a", "priority_class": "mine"}}, True),
        (Cluster(2), {"mode": "service"}, False),
        (Cluster(2), {"kubeconfig": None}, False),
        (Cluster(2), {"node_name": "gone"}, False),
    ],
)
def test_a_node_without_a_slot_for_the_daemonsets_pod_is_named(look, monkeypatch, cluster, given, is_refused):
    monkeypatch.setattr(cluster_access.Api, "of", lambda _path, dry_run=False: cluster)
    arguments = {"mode": "daemonset", "kubeconfig": "x", "node_name": "worker1", **given}
    result, asked = look(**arguments)
    assert asked == [{}], "the module takes none of it"
    assert result.get("failed", False) is is_refused
    if is_refused:
        name = given.get("deployment", {}).get("priority_class", "system-node-critical")
        assert result["msg"].splitlines()[1:] == [
            "node1: node worker1 has no free pod slot (its kubelet accepts 2 pods), so the DaemonSet's pod, with "
            f"priority class {name}, would preempt another pod: free a slot, raise the kubelet's maxPods, or set "
            "device_plugin_deployment.priority_class: '' to let the pod wait"
        ]


@pytest.mark.parametrize(
    ("drain", "kubeconfig", "sentences"),
    [
        ({"minutes": 5, "together": ["node1"]}, "x", []),
        ({"minutes": 5, "together": []}, "x", []),
        ({"minutes": 5}, None, ["set it to a kubeconfig file on the controller"]),
        ({"minutes": 5, "together": ["a", "b", "c"]}, "x", ["3 nodes would be drained at the same time"]),
        (
            {"minutes": 5, "together": ["a", "b"]},
            None,
            ["node_devices_kubeconfig: not set", "2 nodes would be drained"],
        ),
    ],
)
def test_a_drain_that_cannot_be_is_named_with_everything_else(look, monkeypatch, drain, kubeconfig, sentences):
    monkeypatch.setattr(cluster_access.Api, "of", lambda _path, dry_run=False: Cluster(3))
    result, asked = look(drain=drain, kubeconfig=kubeconfig, node_name="worker1")
    assert asked == [{}], "the module takes none of it"
    lines = result.get("msg", "\n").splitlines()[1:]
    assert len(lines) == len(sentences)
    assert all(sentence in line for sentence, line in zip(sentences, lines, strict=True))


def test_a_drain_takes_minutes_that_are_a_number(look):
    with pytest.raises(
        AnsibleError, match="node_devices_drain_minutes: must be a number of minutes, 0 or more, not soon"
    ):
        look(drain={"minutes": "soon"})


def test_a_lock_without_room_is_said_with_its_file(monkeypatch):
    class Failed(Exception):
        pass

    class Module:
        check_mode = False

        def __init__(self, **_):
            self.params = {"lock": {"owner": "play-1"}, "code": None}

        def fail_json(self, msg):
            raise Failed(msg)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "AnsibleModule", Module)
    monkeypatch.setattr(module.os, "geteuid", lambda: 0)
    monkeypatch.setattr(play_lock, "take", full)
    with pytest.raises(Failed, match=r"^/run/node-devices\.lock: No space left on device$"):
        module.main()


def test_only_the_role_s_own_specs_are_read_and_their_texts_stay(tmp_path):
    texts = {"ours.json": '{"kind": "a.io/b", "devices": [{"name": "x"}, {"name": "y"}]}', "other.yaml": "secret: 1"}
    texts["broken.json"] = '{"kind": "a.io/b", "devices": [{}]}'
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    own_paths = [f"{tmp_path}/{name}" for name in ("ours.json", "broken.json")]
    own_paths.append(f"{tmp_path}/gone.json")
    assert module.spec_devices(own_paths) == ["a.io/b=x", "a.io/b=y"]
    # What the converge function has read is not read again.
    read = {"gone.json": {"kind": "a.io/b", "devices": [{"name": "z"}]}}
    assert module.spec_devices(own_paths, read) == ["a.io/b=z"]


def test_of_the_ledger_only_paths_leave_the_node(tmp_path, monkeypatch):
    monkeypatch.setattr(module.ledgers, "Ledger", functools.partial(module.ledgers.Ledger, str(tmp_path)))
    with module.ledgers.Ledger() as ledger:
        for path, owner in (("/etc/b", "cdi_specs"), ("/etc/a", "cdi_runtime")):
            ledger.entries[path] = {"kind": "file", "owner": owner, "sha256": "x", "before": None}
        ledger.save()
    assert module.ledger_facts() == (["/etc/b"], {"ledger": ["/etc/a", "/etc/b"]})
    (tmp_path / "ledger.json").write_text("{")
    own, facts = module.ledger_facts()
    assert (own, facts.pop("ledger")) == ([], [])
    assert "ledger.json is damaged" in facts["ledger_problem"]
