"""What the actions of status.yml ask a node, and that no answer ends the play."""

from __future__ import annotations

import json
import types

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import claims, manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    ApiError,
    NotFound,
    Unavailable,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import configuration_file
from ansible_collections.nodedevices.kubernetes.plugins.action import fleet_report, node_status
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration, framed
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import document, drift, node
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import deployed
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.device_classes import only_by_claims
from fleet_nodes import CDI_ON, CONFIGURATION, FACTS, device, serving, silent, status, well

PLUGIN_CLI = "/usr/local/bin/node-device-plugin"
CAMERA = {"name": "example.com/camera", "devices": [{"id": "a", "nodes": [{"path": "/dev/null"}]}]}
#: What CAMERA comes to in the file of a service.
SHA256 = manifests.sha256_of(configuration_file.text({"resources": [CAMERA]}))
STATUS = status(
    serving("example.com/camera", device("a")), configuration={"path": CONFIGURATION, "sha256": SHA256, "problems": []}
)
NODE = {
    "kind": "Node",
    "metadata": {"name": "w1"},
    "status": {
        "capacity": {"example.com/dongle": "4"},
        "allocatable": {"example.com/dongle": "4"},
        "nodeInfo": {"kubeletVersion": "v1.33.1"},
    },
}


@pytest.fixture
def look(monkeypatch):
    """look(facts, answers by the command's first argument, arguments, the host's variables).

    Gives the node's entry and what was executed there.
    """
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    # test_arguments_of_the_preflight.py has the arguments.
    monkeypatch.setattr(drift, "arguments", lambda *_arguments: {"managed_files": [{"owner": "device_plugin"}]})

    def run_action(facts=FACTS, answers=None, variables=None, api_only=False, **arguments):
        answers = {"status": STATUS, "runtime": CDI_ON, **(answers or {})}
        action = object.__new__(node_status.ActionModule)
        action._task = types.SimpleNamespace(args={"command": PLUGIN_CLI, **arguments}, check_mode=False)
        action._templar = types.SimpleNamespace(template=lambda value: value)
        executed = []

        def execute(module_name, module_args, task_vars):
            # The plugin's code has a test of its own.
            executed.append((module_name, {name: each for name, each in module_args.items() if name != "code"}))
            if isinstance(facts, Exception):
                raise facts
            return dict(facts)

        def command(_action, line, _given=None):
            executed.append(line)
            answer = answers[line.split()[1]]
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, str):
                return framed.Said(1, "", answer)
            # A status that is not fine has the exit code 1, and says all the same.
            return framed.Said(1, json.dumps(answer), "")

        action._execute_module = execute
        monkeypatch.setattr(framed, "run", command)
        given = {"inventory_hostname": "w1", "node_devices_resources": [CAMERA], "node_devices_api_only": api_only}
        given.update(variables or {})
        result = action.run(None, given)
        assert result["changed"] is False
        assert "failed" not in result
        return result["status"], executed

    return run_action


def test_three_executions_that_only_read(look):
    found, executed = look()
    (module, arguments), *commands = executed
    asked = arguments.pop("converge")
    assert [each["configuration"] for each in asked.pop("cdi_specs")] == [{"resources": [CAMERA]}]
    assert asked == {"managed_files": [{"owner": "device_plugin"}]}
    assert module == "nodedevices.kubernetes.node_preflight"
    assert (arguments["commands"], arguments["cdi"]) == ([PLUGIN_CLI], True)
    assert commands == [
        f"{PLUGIN_CLI} status -o json",
        f"{PLUGIN_CLI} runtime --socket /run/containerd/containerd.sock -o json",
    ]
    assert (found["name"], found["state"], found["problems"]) == ("w1", "ok", [])
    assert found["runtime"]["cdi"]["effective"] is True


def test_names_of_groups_are_looked_up(look):
    named = {"name": "example.com/camera", "devices": [{"id": "a", "nodes": [{"path": "/dev/null", "gid": "video"}]}]}
    numbered = {**CAMERA, "devices": [{"id": "a", "nodes": [{"path": "/dev/null", "gid": 44}]}]}
    runs = with_configuration(manifests.sha256_of(configuration_file.text({"resources": [numbered]})))
    for number, problems in ((44, 0), (None, 2)):
        facts = {**FACTS, "accounts": {"groups": {"video": number}}}
        found, executed = look(facts, {"status": runs}, variables={"node_devices_resources": [named]})
        assert executed[0][1]["accounts"] == {"groups": ["video"]}
        assert len(found["problems"]) == problems


def test_the_socket_that_is_named_is_looked_at(look):
    of_host = {"node_devices_cri_socket": "/run/x.sock"}
    wrong = {**of_host, "node_devices_resources": [{"name": "x"}]}
    for given in ({"cri_socket": "/run/x.sock"}, {"variables": of_host}, {"variables": wrong}):
        assert look(**given)[1][0][1]["cri_socket"] == "/run/x.sock"


def test_a_service_that_runs_with_something_else(look):
    running = {**STATUS["plugin"], "configuration": {**STATUS["plugin"]["configuration"], "sha256": "0" * 64}}
    found, _executed = look(answers={"status": {**STATUS, "plugin": running}})
    says = f"the plugin runs with configuration 000000000000, but {SHA256[:12]} is declared: run site.yml"
    assert (found["state"], found["problems"]) == ("wrong", [says])


def test_a_rollback_is_shown_but_makes_no_node_wrong(look, monkeypatch):
    monkeypatch.setattr(drift, "found", lambda _facts: ([], ["as after rollback.yml"]))
    found, _executed = look()
    assert (found["state"], found["problems"]) == ("ok", ["as after rollback.yml"])
    assert list(document.findings([found])) == []


def test_a_difference_makes_a_node_wrong_and_is_said_once(look, monkeypatch):
    monkeypatch.setattr(drift, "found", lambda _facts: (["/x: not as declared", "/x: not as declared"], []))
    found, _executed = look()
    assert (found["state"], found["problems"]) == ("wrong", ["/x: not as declared"])
    # Without the plugin nothing is compared, and neither is a declaration that is wrong.
    assert look({**FACTS, "commands": []})[0]["state"] == "not provisioned"
    assert "/x" not in str(look(variables={"node_devices_resources": [{"name": "x"}]})[0]["problems"])


def test_files_that_cannot_be_compared_are_said(look, monkeypatch):
    def undefined(*_arguments):
        raise ValueError("'x' is undefined")

    monkeypatch.setattr(drift, "arguments", undefined)
    says = "the node's files cannot be compared with the declaration: 'x' is undefined"
    found, executed = look()
    assert found["problems"] == [says]
    assert len(executed) == 3


@pytest.mark.parametrize(
    "facts",
    [
        AnsibleConnectionFailure("no route to w1"),
        {"unreachable": True, "msg": "no route to w1"},
    ],
)
def test_a_host_that_is_not_reached(look, facts):
    found, executed = look(facts)
    assert len(executed) == 1
    assert (found["state"], found["problems"]) == ("unreachable", ["no route to w1"])
    assert [row["name"] for row in found["resources"]] == ["example.com/camera"]


def test_a_host_that_is_lost_between_two_questions(look):
    found, _executed = look(answers={"runtime": AnsibleConnectionFailure("it hung up")})
    assert (found["state"], found["problems"]) == ("unreachable", ["it hung up"])


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (
            {"failed": True, "module_stderr": "/bin/sh: 1: /usr/bin/python3: not found"},
            "Python was not found on the node",
        ),
        (
            {"failed": True, "msg": "Missing sudo password"},
            "the preflight module failed on the node (-vvv shows its whole output): Missing sudo password",
        ),
        (AnsibleError("No python interpreters found for host w1"), "Python was not found on the node"),
    ],
)
def test_a_host_that_cannot_be_looked_at(look, facts, says):
    found, executed = look(facts)
    assert len(executed) == 1
    assert found["state"] == "wrong"
    assert found["problems"][0].startswith(says)


def test_a_host_without_the_plugin_is_not_asked_for_its_words(look):
    found, executed = look({**FACTS, "commands": []})
    assert len(executed) == 1
    assert found["state"] == "not provisioned"


def test_a_user_who_is_not_root_is_told_so(look):
    found, executed = look({**FACTS, "uid": 1000})
    assert len(executed) == 1
    assert found["problems"][0].startswith("tasks run as user id 1000, but the collection needs root")


def test_a_runtime_that_does_not_answer_and_one_that_refuses(look):
    obstacle = "no container runtime answers at /run/x.sock (connection refused): start it"
    away = {**FACTS, "runtime": {"socket": "/run/x.sock", "problem": "connection refused", "obstacles": [obstacle]}}
    found, executed = look(away)
    assert [line for line in executed if "runtime" in line] == []
    assert (found["state"], found["runtime"]) == ("wrong", None)
    assert found["problems"][0].startswith("no container runtime answers at /run/x.sock (connection refused)")
    found, _executed = look(answers={"runtime": "node-device-plugin: it hangs"})
    assert found["problems"] == [f"{PLUGIN_CLI} runtime failed: node-device-plugin: it hangs"]
    assert found["runtime"]["cdi"]["effective"] is None


def test_a_kubelet_that_is_too_old_is_a_problem(look):
    found, _executed = look({**FACTS, "kubelet": {"pid": 7, "version": "1.28.3"}})
    assert found["problems"][0].startswith("kubelet 1.28.3 silently drops CDI device names")


def test_a_change_that_was_cut_off_is_a_problem(look):
    found, _executed = look({**FACTS, "transaction_left": True})
    assert found["problems"] == [
        "an earlier run was interrupted while it changed the container runtime's configuration: run site.yml, which "
        "finishes or undoes the change"
    ]


def test_a_declaration_that_is_wrong_is_a_problem_and_the_rest_is_read(look):
    found, executed = look(variables={"node_devices_resources": [{"name": "x"}]})
    assert len(executed) == 3
    assert found["problems"][0].startswith("node_devices_resources[0] (x).name: 'x' is not an extended resource")
    assert found["resources"][0]["name"] == "example.com/camera"


def test_the_node_object_is_read_without_another_execution(look, monkeypatch):
    class Cluster:
        def node(self, name):
            if name != "in-the-cluster":
                raise ApiError(f"the cluster has no node {name}")
            return NODE

    monkeypatch.setattr(node_status.Api, "of", {"/k": Cluster()}.get)
    variables = {"node_devices_resources_more": [{"name": "example.com/dongle", "capacity": 4}]}
    facts = {**FACTS, "kubelet": None}
    found, executed = look(facts, variables=variables, kubeconfig="/k", node_name="in-the-cluster")
    assert len(executed) == 3
    assert found["kubelet"] == {"running": True, "version": "1.33.1"}
    assert {row["name"]: row["state"] for row in found["resources"]} == {
        "example.com/camera": "healthy",
        "example.com/dongle": "healthy",
    }
    found, _executed = look(variables=variables, kubeconfig="/k")
    assert found["problems"] == ["the cluster has no node w1"]
    assert {row["name"]: row["state"] for row in found["resources"]}["example.com/dongle"] == "unknown"


WAITS = {"reason": "ImagePullBackOff", "message": "not found"}


@pytest.fixture
def in_cluster(monkeypatch):
    """in_cluster(the node's pods, what its metrics say): a cluster where the plugin is a DaemonSet's pod."""

    def made(*pods, metrics="", ready="True", refused="", **shows):
        conditions = [{"type": "Ready", "status": ready, "message": "it hangs"}]
        shown = {**NODE, "status": {**NODE["status"], "conditions": conditions, **shows}}

        class Cluster:
            def node(self, _name):
                return shown

            def text(self, _place):
                return metrics

            def get(self, _place):
                return {"metadata": {"uid": "1", "generation": 1}, "status": {"observedGeneration": 1}}

            def list(self, place, **_selectors):
                if refused:
                    raise ApiError(refused)
                owned = {"labels": {"controller-revision-hash": "1"}, "ownerReferences": [{"uid": "1"}]}
                return {"pods": list(pods), "controllerrevisions": [{"revision": 1, "metadata": owned}]}.get(
                    place.kinds, []
                )

        cluster = Cluster()
        monkeypatch.setattr(node_status.Api, "of", lambda _path: cluster)
        return cluster

    return made


def pod(**state):
    labels = {"controller-revision-hash": "1"}
    return {
        "metadata": {"name": "plugin-x", "namespace": "node-devices", "labels": labels},
        "spec": {"containers": [{"name": "plugin", "ports": [{"containerPort": 9819}]}]},
        "status": {"phase": "Pending", "containerStatuses": [state]},
    }


OF_IMAGE = {"name": "plugin", "image": "example.com/plugin:1", "imageID": "sha256:1"}
RUNS = pod(ready=True, started=True, state={"running": {}}, **OF_IMAGE)
DAEMON_SET = {"mode": "daemonset", "kubeconfig": "/k"}


def wanted(**settings):
    """The hash of what CAMERA comes to."""
    declared = declaration.read({"node_devices_resources": [CAMERA]}, lambda value: value, settings).as_data()
    return manifests.sha256_of(deployed.configuration_text(declared))


def with_configuration(sha256):
    configuration = {"path": "/x", "sha256": sha256, "problems": []}
    return status(serving("example.com/camera", device("a")), configuration=configuration)


def test_a_pod_that_runs_with_what_is_declared(look, in_cluster):
    in_cluster(RUNS)
    found, executed = look(answers={"status": with_configuration(wanted())}, **DAEMON_SET)
    assert len(executed) == 3
    assert (found["state"], found["problems"]) == ("ok", [])
    assert found["pod"] == {
        "name": "node-devices/plugin-x",
        "state": "Running",
        "reason": None,
        "image": "example.com/plugin:1",
        "image_id": "sha256:1",
        "architecture": None,
    }
    assert found["plugin"]["configuration_sha256"] == wanted()
    assert found["plugin"]["version"] == "0.1.0"


def test_a_pod_that_runs_with_something_else(look, in_cluster):
    in_cluster(RUNS)
    found, _executed = look(answers={"status": with_configuration("b" * 64)}, **DAEMON_SET)
    assert found["state"] == "wrong"
    assert found["problems"] == [
        f"the plugin runs with configuration bbbbbbbbbbbb, but {wanted()[:12]} is declared: run site.yml"
    ]


def test_why_a_pod_does_not_run(look, in_cluster):
    in_cluster(pod(ready=False, state={"waiting": WAITS}))
    found, _executed = look(answers={"status": silent()}, **DAEMON_SET)
    assert found["pod"]["state"] == "ImagePullBackOff"
    # Not that no plugin answers, and where: that is no news then.
    assert found["problems"] == ["pod node-devices/plugin-x does not run: ImagePullBackOff: not found"]
    assert found["resources"][0]["state"] == "not served"


def test_a_service_has_no_pod(look, in_cluster):
    in_cluster(RUNS)
    found, _executed = look(kubeconfig="/k")
    assert (found["pod"], found["problems"]) == (None, [])


def test_a_daemonset_without_a_kubeconfig_and_one_that_may_not_be_looked_at(look, in_cluster):
    # The pod's configuration is another text than the service's.
    found, _executed = look(answers={"status": with_configuration(wanted())}, mode="daemonset")
    assert found["problems"] == [
        "node_devices_kubeconfig: not set, but the DaemonSet is read through the Kubernetes API: set it to a "
        "kubeconfig file on the controller"
    ]
    in_cluster(refused="no list on pods")
    found, _executed = look(answers={"status": with_configuration(wanted())}, **DAEMON_SET)
    assert found["problems"] == ["no list on pods"]
    assert found["plugin"]["version"] == "0.1.0"


def test_a_node_that_only_the_api_reaches(look, in_cluster, monkeypatch):
    sha256 = wanted(cdi_owner="plugin")
    text = (
        f'node_device_plugin_configuration_info{{sha256="{sha256}"}} 1\n'
        f'node_device_plugin_build_info{{version="0.0.9",python="3.13.1"}} 1\n'
    )
    managed = {"manager": "kubelet", "subresource": "status"}
    managed["fieldsV1"] = {"f:status": {"f:capacity": {"f:example.com/camera": {}}}}
    shown = {"capacity": {"example.com/camera": "2"}, "allocatable": {"example.com/camera": "1"}}
    of_node = {"name": "w1", "managedFields": [managed]}
    info = {**NODE["status"]["nodeInfo"], "containerRuntimeVersion": "cri-o://1.33.0"}
    monkeypatch.setitem(NODE, "status", {**NODE["status"], **shown, "nodeInfo": info})
    monkeypatch.setitem(NODE, "metadata", of_node)
    in_cluster(RUNS, metrics=text)
    found, executed = look(api_only=True, **DAEMON_SET)
    assert executed == []
    assert found["kubelet"] == {"running": True, "version": "1.33.1"}
    # What the pod really runs, whatever its image's tag says.
    assert found["plugin"] == {"version": "0.0.9", "ready": True, "started": None, "configuration_sha256": sha256}
    assert (found["runtime"]["name"], found["runtime"]["version"]) == ("cri-o", "1.33.0")
    assert found["runtime"]["cdi"]["effective"] is None
    assert found["problems"] == []
    (row,) = found["resources"]
    assert (row["capacity"], row["healthy"], row["state"]) == (2, 1, "degraded")
    in_cluster(RUNS, metrics=text, ready="Unknown")
    found, _executed = look(api_only=True, **DAEMON_SET)
    assert found["pod"]["state"] == "Unknown"
    assert found["problems"][0] == "the node is not Ready (it hangs): retry when it is Ready"


@pytest.mark.parametrize(
    ("pools", "counts", "state"),
    [
        ({"w1/camera.example.com": 2}, (2, 2), "healthy"),
        ({"w2/camera.example.com": 2}, (None, None), "not registered"),
    ],
)
def test_slices_tell_of_a_node_that_only_the_api_reaches(look, in_cluster, monkeypatch, pools, counts, state):
    in_cluster(RUNS)
    monkeypatch.setattr(claims, "published", lambda _api, driver, node: pools if node == "w1" else {})
    by_claims = {"node_devices_resources": [{**CAMERA, "api": "dra"}]}
    found, _executed = look(api_only=True, variables=by_claims, healthy={CAMERA["name"]: 2}, timeout=0.01, **DAEMON_SET)
    # The node object itself never shows these devices.
    assert not [each for each in found["problems"] if "allocatable" in each]
    (row,) = found["resources"]
    assert (row["capacity"], row["healthy"], row["state"]) == (*counts, state)
    assert row["reasons"] == ["the node has no ResourceSlice of it"] * (state != "healthy")


@pytest.mark.parametrize("api_only", [True, False])
def test_resources_that_pods_get_only_by_claims(look, in_cluster, monkeypatch, api_only):
    in_cluster(RUNS)
    monkeypatch.setattr(claims, "published", lambda *_given: {"w1/camera.example.com": 2})
    by_claims = {"node_devices_resources": [{**CAMERA, "api": "dra"}]}
    options = {"variables": by_claims, "api_only": api_only, **DAEMON_SET}
    before, _executed = look(**options)

    def refused(_api, _names):
        raise ApiError("no right")

    for answer, told in ((refused, []), (lambda _api, names: sorted(names), [only_by_claims([CAMERA["name"]])])):
        monkeypatch.setattr(node_status.device_classes, "without_name", answer)
        found, _executed = look(**options)
        assert (found["problems"], found["state"]) == (before["problems"] + told, before["state"])


@pytest.mark.parametrize("api_only", [True, False])
def test_an_api_server_that_is_away(look, in_cluster, monkeypatch, api_only):
    in_cluster(RUNS)

    def away(_path):
        raise Unavailable(
            "the API server https://x does not answer: Connection refused: retry when the API server answers"
        )

    monkeypatch.setattr(node_status.Api, "of", away)
    found, _executed = look(answers={"status": with_configuration(wanted())}, api_only=api_only, **DAEMON_SET)
    # Only where there is no other way to the node it is not reached.
    assert found["state"] == ("unreachable" if api_only else "wrong")
    assert found["problems"] == [
        "the API server https://x does not answer: Connection refused: retry when the API server answers"
    ]
    assert [row["name"] for row in found["resources"]] == ["example.com/camera"]
    assert found["resources"][0]["state"] == ("unknown" if api_only else "healthy")


@pytest.mark.parametrize(
    "says", ["the cluster has no node w1: set node_devices_node_name to its name there", "give this user get on nodes"]
)
def test_a_node_that_the_cluster_does_not_know_or_show(look, in_cluster, monkeypatch, says):
    cluster = in_cluster(RUNS)

    def refuse(_name):
        raise ApiError(says)

    monkeypatch.setattr(cluster, "node", refuse)
    found, executed = look(api_only=True, **DAEMON_SET)
    assert executed == []
    assert (found["state"], found["problems"]) == ("wrong", [says])
    assert (found["runtime"], found["kubelet"], found["plugin"], found["pod"]) == (None, None, None, None)
    assert found["resources"][0]["state"] == "unknown"


@pytest.mark.parametrize(("api_only", "state"), [(True, "pending"), (False, "wrong")])
def test_a_node_that_has_not_joined(look, in_cluster, monkeypatch, api_only, state):
    says = "the cluster has no node w1: set node_devices_node_name to its name there, or join the node first"
    cluster = in_cluster(RUNS)

    def absent(_name):
        raise NotFound(says)

    monkeypatch.setattr(cluster, "node", absent)
    found, _executed = look(answers={"status": with_configuration(wanted())}, api_only=api_only, **DAEMON_SET)
    assert (found["state"], found["problems"]) == (state, [says])
    if api_only:
        assert found["kubelet"] == {"running": False, "version": None}
        assert found["resources"][0]["state"] == "unknown"


def test_a_node_of_the_api_without_a_kubeconfig(look):
    found, executed = look(api_only=True, mode="daemonset")
    assert executed == []
    assert (found["state"], found["problems"]) == (
        "wrong",
        [
            "node_devices_kubeconfig: not set, but the DaemonSet is read through the Kubernetes API: set it to a "
            "kubeconfig file on the controller"
        ],
    )


@pytest.fixture
def report(monkeypatch):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_action(directory, check=False, members=None, **read):
        action = object.__new__(fleet_report.ActionModule)
        arguments = {"hosts": ["w1", "w2"], "directory": str(directory)}
        action._task = types.SimpleNamespace(args=arguments, check_mode=check)
        hosts = {"w1": {"node_devices_status": read}, "w2": {}}
        for name, statuses in (members or {}).items():
            hosts[name] = {"node_devices_status": {"statuses": statuses}}
        return action.run(None, {"hostvars": hosts})

    return run_action


ENTRY = node.entry("w1", well(serving("example.com/camera", device("a"))))


def test_two_profiles_of_a_cluster_report_a_stray_node_once(report, tmp_path):
    stray = node.entry("stray", node.Read(problems=("its label names no DaemonSet",)))
    pools = {name: [{**ENTRY, "name": name, "profile": name, "members": 3}, stray] for name in ("w1", "w2")}
    result = report(tmp_path, check=True, members=pools)
    assert result["table"].splitlines()[-1] == "7 nodes: 1 wrong, 6 ok"


def test_the_report_has_every_host_of_the_play(report, tmp_path):
    result = report(tmp_path / "new" / "folder", status=ENTRY)
    assert result["changed"] is False
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == ["status.html", "status.json"]
    with open(result["files"]["json"], encoding="utf-8") as file:
        data = json.load(file)
    assert [each["state"] for each in data["nodes"]] == ["ok", "unreachable"]
    assert data["nodes"][0] == ENTRY
    assert data["nodes"][1]["problems"] == ["the play ended for this host before its status was read"]
    assert result["table"].splitlines()[-1] == "2 nodes: 1 unreachable, 1 ok"
    assert result["summary"] == data["summary"]
    with open(result["files"]["html"], encoding="utf-8") as file:
        assert data["generated"] in file.read()


def test_check_mode_writes_nothing(report, tmp_path):
    result = report(tmp_path / "new", check=True, status=ENTRY)
    assert list(tmp_path.iterdir()) == []
    assert "files" not in result
    assert result["table"].startswith("NODE")


def test_a_directory_that_cannot_be_written_is_named(report, tmp_path):
    (tmp_path / "file").write_text("")
    result = report(tmp_path / "file" / "below", status=ENTRY)
    assert result["failed"] is True
    # What was found is shown all the same.
    assert (
        result["msg"]
        == f"{tmp_path}/file/below: Not a directory\n\n{report(tmp_path, check=True, status=ENTRY)['table']}"
    )


@pytest.mark.parametrize("mode", ["service", "daemonset"])
@pytest.mark.parametrize(
    ("instance", "runs_as"), [("service", "service"), ("pod", "daemonset"), ("process", None), (None, None)]
)
def test_a_plugin_that_runs_otherwise_than_declared(look, in_cluster, mode, instance, runs_as):
    found = instance and {"mode": instance, "resources": []}
    facts = {**FACTS, "device_plugins": {**FACTS["device_plugins"], "instance": found}}
    in_cluster()
    problems = look(facts, **{**DAEMON_SET, "mode": mode})[0]["problems"]
    (said,) = [each for each in problems if "device_plugin_mode" in each] or [""]
    assert (f"set device_plugin_mode: {runs_as}, or device_plugin_takeover" in said) is (runs_as not in (None, mode))


def test_a_service_where_only_the_api_reaches(look, in_cluster):
    in_cluster()
    says = "no service can run there: set it to daemonset"
    assert [each for each in look(api_only=True, kubeconfig="x")[0]["problems"] if says in each]
    assert not [each for each in look(api_only=True, **DAEMON_SET)[0]["problems"] if says in each]


def test_the_unit_of_a_driver_has_files_that_only_the_node_knows(look, monkeypatch):
    known = []

    def arguments(_action, variables, _declared):
        known.append(variables.get("device_plugin_node"))
        return {}

    monkeypatch.setattr(drift, "arguments", arguments)
    facts = {**FACTS, "dra": {"problem": None, "paths": ["/etc/kubernetes/kubelet.conf"]}}
    for resource in ({**CAMERA, "api": "dra"}, CAMERA):
        look(facts, variables={"node_devices_resources": [resource]})
    (of_driver, of_device_plugin) = known
    assert of_driver["dra"]["paths"] == ["/etc/kubernetes/kubelet.conf"]
    assert of_device_plugin is None


@pytest.mark.parametrize(
    ("allocatable", "wrong"),
    [
        # The API server writes numbers in another way.
        ({"a.example/b": "1k", "a.example/c": "0"}, []),
        ({"a.example/b": "1000", "a.example/c": "0"}, []),
        (
            {"a.example/b": "1"},
            [
                "a.example/b: the kubelet lists 1000 healthy, but the node object shows 1 allocatable",
                "a.example/c: the kubelet lists 0 healthy, but the node object shows none allocatable",
            ],
        ),
    ],
)
def test_a_node_object_that_shows_something_else_than_the_kubelet(look, in_cluster, monkeypatch, allocatable, wrong):
    monkeypatch.setattr(node_status, "_PAUSE", 0.001)
    in_cluster(allocatable=allocatable)
    healthy = {"a.example/b": 1000, "a.example/c": 0}
    found = look(kubeconfig="x", healthy=healthy, timeout=0.01)[0]["problems"]
    assert [each for each in found if "allocatable" in each] == wrong
    assert not [each for each in look(kubeconfig="x", timeout=0.01)[0]["problems"] if "allocatable" in each]
    # No node object shows what pods get by claims.
    by_claims = {"node_devices_resources": [{**CAMERA, "api": "dra"}]}
    found = look(kubeconfig="x", variables=by_claims, healthy={CAMERA["name"]: 2}, timeout=0.01)[0]["problems"]
    assert [each for each in found if "allocatable" in each] == []
