"""The action that runs the plugin's verification on a node, and the one that reads a declaration."""

from __future__ import annotations

import copy
import json
import re
import socket
import subprocess
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError
from ansible_collections.nodedevices.kubernetes.plugins.action import declaration, verification
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import play, preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import proof

CONFIGURATION = {"resources": [{"name": "a.example/crand"}]}
ROW = {
    "resource": "a.example/crand",
    "capacity": 2,
    "healthy": 2,
    "seen": [],
    "state": "proven",
    "detail": "",
    "shares": 0,
    "absent": [],
}


def report(**changes):
    found = {
        "runtime": "containerd 2.1.9",
        "kubelet": "v1.36.2",
        "resources": [ROW],
        "problems": [],
        "image": "pause:1",
    }
    return {**found, "proven": {"a.example/crand": "1"}, "proven_before": {"a.example/crand": "1"}, **changes}


class Node:
    """What an action executes, and a command in its place that says what it is given to say."""

    def __init__(self, directory):
        self.pipelining, self.modules, self.program = True, [], directory / "node device plugin"
        self.environment = play.environment({"seconds": 900, "over": ""})
        self.says(report())

    def says(self, answer, code=0, of_proofs=None):
        """of_proofs: what it says where it is to look into pods."""
        text, other = (each if isinstance(each, str) else json.dumps(each) for each in (answer, of_proofs or answer))
        self.program.write_text(
            f"""#!/bin/sh
cat /dev/stdin >'{self.program}.given'
echo "$*" >>'{self.program}.called'
case $* in *--proof-pod*) cat <<'END'
{other}
END
;; *) cat <<'END'
{text}
END
esac
exit {code}
"""
        )
        self.program.chmod(0o755)

    @property
    def calls(self):
        return self.program.with_name(self.program.name + ".called").read_text().splitlines()

    @property
    def given(self):
        return json.loads(self.program.with_name(self.program.name + ".given").read_text())

    def command(self, command, in_data=None):
        # As some SSH servers give it: a socket, which holds this little.
        ours, its = socket.socketpair()
        with ours, its:
            ours.sendall(in_data or b"")
            ours.shutdown(socket.SHUT_WR)
            done = subprocess.run(command, shell=True, stdin=its, capture_output=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}

    def module(self, module_name, module_args, task_vars):
        assert task_vars["inventory_hostname"] == "node1"
        self.modules.append((module_name, module_args))
        if module_name == "nodedevices.kubernetes.node_lock":
            return {"changed": False}
        if module_name == "nodedevices.kubernetes.managed_files":
            return {"changed": True, "diff": []}
        raise AssertionError(module_name)

    def sent(self, name, content):
        path = self.program.with_name(f"sent {name}")
        path.write_bytes(content)
        return str(path)


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    facts = {"runtime": {"socket": "/run/x.sock"}, "kubelet": None}
    monkeypatch.setattr(preflight.Preflight, "look", lambda self, asked: facts)
    return Node(tmp_path)


def verify(node, check=False, configuration=CONFIGURATION, **more):
    action = object.__new__(verification.ActionModule)
    arguments = {"declaration": {"configuration": configuration}, "tool": str(node.program)}
    arguments["record"] = "/var/lib/x.json"
    arguments.update(more)
    action._task = types.SimpleNamespace(args=arguments, check_mode=check)
    action._compute_environment_string = lambda given: given.update(node.environment)
    action._connection = types.SimpleNamespace(is_pipelining_enabled=lambda _wrap: node.pipelining)
    action._low_level_execute_command = node.command
    action._execute_module = node.module
    action._sent = node.sent
    return action.run(None, {"inventory_hostname": "node1"})


def test_the_report_is_the_result_without_a_module(node):
    assert verify(node) == {"changed": False, **report()}
    assert (node.given, node.modules) == (CONFIGURATION, [])


@pytest.mark.parametrize(
    ("number", "more", "lasts"),
    [
        (7, {}, None),
        (8, {}, 17 * 60),
        (200, {"timeout": 30}, 401 * 30),
        # Pods of the cluster are waited for on the controller.
        (200, {"kubeconfig": "x"}, None),
    ],
)
def test_the_lock_of_the_play_lasts_for_every_static_pod(node, number, more, lasts):
    verify(node, configuration={"resources": [{"name": f"a.example/{n}"} for n in range(number)]}, **more)
    expected = [] if lasts is None else [("nodedevices.kubernetes.node_lock", {"state": "renewed", "seconds": lasts})]
    assert node.modules == expected


def test_where_the_connection_passes_no_input_on_a_file_does(node):
    node.pipelining = False
    assert verify(node) == {"changed": False, **report()}
    assert (node.given, node.modules) == (CONFIGURATION, [])


def test_what_is_wrong_is_no_failure_of_the_question(node):
    node.says(report(problems=["a.example/crand: nothing"]), code=1)
    result = verify(node)
    assert (result["problems"], result.get("failed")) == (["a.example/crand: nothing"], None)


def test_what_was_proven_is_remembered(node):
    node.says(report(proven={"a.example/crand": "2", "a": "1"}))
    assert verify(node)["changed"] is True
    ((name, arguments),) = node.modules
    assert (name, arguments["owner"]) == ("nodedevices.kubernetes.managed_files", "verification")
    (file,) = arguments["files"]
    assert file["path"] == "/var/lib/x.json"
    assert file["content"] == '{\n    "a": "1",\n    "a.example/crand": "2"\n}\n'


TO_PROVE = {**ROW, "state": "unproven", "detail": "no static pods", "shares": 2}


class FakeCluster:
    """Pods that are as ``status`` says, the class of proofs, a DaemonSet, and node1."""

    dry_run = False

    def __init__(self):
        self.status, self.made, self.pods, self.classes, self.daemon_set = {"phase": "Running"}, [], {}, {}, None
        self.claims = []

    def node(self, name):
        if name != "node1":
            raise ApiError(f"the cluster has no node {name}: set node_devices_node_name")
        return {}

    def moment(self):
        return None

    def get(self, place):
        if place.kinds == "daemonsets":
            return self.daemon_set
        return self.classes.get(place.name) if place.kinds == "priorityclasses" else self.pods.get(place.name)

    def dry(self):
        dry = copy.copy(self)
        dry.classes = dict(self.classes)
        return dry

    def apply(self, place, content):
        self.classes[place.name] = content
        return copy.deepcopy(content)

    def list(self, _place, **_selectors):
        return []

    def create(self, place, content):
        if place.kinds == "resourceclaims":
            self.claims.append((place.path, content))
            return content
        named = content["metadata"].get("name") or f"proof-{len(self.made)}"
        metadata = {**content["metadata"], "name": named, "uid": "u"}
        made = {**content, "metadata": metadata, "status": self.status}
        assert metadata["namespace"] == place.namespace
        self.made.append(made)
        self.pods[metadata["name"]] = made
        return made

    def delete(self, place, _uid):
        return self.pods.pop(place.name, None) is not None


@pytest.fixture
def cluster(monkeypatch):
    fake = FakeCluster()
    monkeypatch.setattr(Api, "of", lambda _path: fake)
    monkeypatch.setattr(proof, "_PAUSE", 0.001)
    return fake


def proven(**changes):
    row = {**TO_PROVE, "state": "proven", "seen": ["crand0", "crand1"], "detail": "", "shares": 0, **changes}
    return report(resources=[row], proven={"a.example/crand": "9"})


def test_the_node_s_warnings_are_ansible_s(node):
    for warnings, told in ((["a.example/crand: a warning"], ["node1: a.example/crand: a warning"]), ([], None)):
        node.says(report(warnings=warnings))
        assert verify(node).get("warnings") == told


def test_with_a_kubeconfig_a_pod_of_the_scheduler_proves_what_the_node_then_sees(node, cluster):
    node.says(report(resources=[TO_PROVE], proven={}), of_proofs=proven())
    configuration = {"resources": [*CONFIGURATION["resources"], {"name": "a.example/other"}]}
    result = verify(node, configuration=configuration, kubeconfig="x", timeout=1)
    (row,) = result["resources"]
    assert (row["state"], row["seen"], row["detail"]) == ("proven", ["crand0", "crand1"], "")
    assert (result["problems"], "warnings" in result) == ([], False)
    (pod,) = cluster.made
    assert (pod["metadata"]["namespace"], "ownerReferences" in pod["metadata"]) == ("kube-system", False)
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"], "args" in container) == ("pause:1", "Never", False)
    assert container["resources"] == {"limits": {"a.example/crand": "2"}}
    assert (spec["priorityClassName"], "nodeName" in spec) == ("node-device-proof", False)
    assert cluster.pods == {}
    # The node looks into that pod, for that resource alone.
    assert [call.split(" --plugin ")[1] for call in node.calls] == [
        "service",
        "service --proof-pod kube-system/proof-0",
    ]
    assert node.given == {"resources": [{"name": "a.example/crand"}]}
    (name, arguments) = node.modules[0]
    assert (name, json.loads(arguments["files"][0]["content"])) == (
        "nodedevices.kubernetes.managed_files",
        {"a.example/crand": "9"},
    )


def test_a_resource_with_claims_is_proven_by_a_pod_with_a_claim(node, cluster):
    node.says(report(resources=[TO_PROVE], proven={}), of_proofs=proven())
    configuration = {"resources": [{**CONFIGURATION["resources"][0], "api": "dra"}]}
    result = verify(node, configuration=configuration, kubeconfig="x", timeout=1)
    assert [row["state"] for row in result["resources"]] == ["proven"]
    (pod,) = cluster.made
    name, spec = pod["metadata"]["name"], pod["spec"]
    assert re.fullmatch("node-device-proof-[0-9a-f]{8}", name)
    assert spec["containers"][0]["resources"] == {"claims": [{"name": "devices"}], "limits": {}}
    assert spec["resourceClaims"] == [{"name": "devices", "resourceClaimName": name}]
    ((path, claim),) = cluster.claims
    assert path == "/apis/resource.k8s.io/v1/namespaces/kube-system/resourceclaims"
    assert claim["metadata"]["name"] == name
    (owner,) = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", name, "u")
    (request,) = claim["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "crand.a.example",
        "allocationMode": "ExactCount",
        "count": 2,
    }


def test_beside_a_daemonset_it_is_in_its_namespace_and_goes_with_it(node, cluster):
    cluster.daemon_set = {"metadata": {"name": "node-device-plugin", "uid": "u-7"}}
    node.says(report(resources=[TO_PROVE], proven={}), of_proofs=proven())
    deployment = {"image": "example.com/plugin:1", "namespace": "devices"}
    verify(node, kubeconfig="x", timeout=1, mode="daemonset", deployment=deployment)
    metadata = cluster.made[0]["metadata"]
    assert (metadata["namespace"], metadata["ownerReferences"][0]["uid"]) == ("devices", "u-7")
    # Another image is another plugin, and so is the service.
    assert node.calls[0].endswith("--plugin daemonset example.com/plugin:1")


DAEMON_SET = {"kubeconfig": "x", "mode": "daemonset", "deployment": {"image": "example.com/plugin:1"}}


@pytest.mark.parametrize(
    ("given", "found", "problems"),
    [
        (DAEMON_SET, "the plugin ended", ["the plugin ended"]),
        (DAEMON_SET, "", []),
        (DAEMON_SET, ApiError("the API server does not answer"), []),
        ({"mode": "service", "kubeconfig": "x"}, "the plugin ended", []),
    ],
)
def test_a_plugin_that_ended_since_the_play_saw_it_is_a_problem(node, cluster, monkeypatch, given, found, problems):
    asked = []

    def restarted(_cluster, name, invocation):
        asked.append((name, invocation))
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(verification.rollout, "restarted", restarted)
    assert verify(node, **given, invocation="plugin-x 1")["problems"] == problems
    # The node itself knows about a service.
    by_node = given["mode"] == "service"
    assert ("--invocation plugin-x 1" in node.calls[0]) is by_node
    assert asked == [("node1", "plugin-x 1")] * (not by_node)
    assert verify(node, **DAEMON_SET)["problems"] == []
    assert len(asked) == (0 if by_node else 1)


def test_what_a_proofs_container_lacks_is_wrong(node, cluster):
    row = {**TO_PROVE, "state": "failed", "detail": "no device node"}
    problems = ["a.example/crand: in a container: no device node", "of nobody: else"]
    node.says(report(resources=[TO_PROVE]), of_proofs=report(resources=[row], problems=problems), code=0)
    result = verify(node, kubeconfig="x", timeout=1)
    assert (result["resources"][0]["state"], result["problems"]) == ("failed", problems[:1])
    assert result["proven"] == {}
    assert cluster.pods == {}


def test_who_waits_for_a_pod_keeps_the_lock_of_the_play(node, cluster, monkeypatch):
    monkeypatch.setattr(play, "_RENEWAL_PERIOD", 0)
    cluster.status = {"phase": "Pending"}
    node.says(report(resources=[TO_PROVE]))
    verify(node, kubeconfig="x", timeout=0.01)
    assert ("nodedevices.kubernetes.node_lock", {"state": "renewed"}) in node.modules


def test_a_pod_without_a_place_is_a_warning_or_a_problem_if_asked_for(node, cluster):
    condition = {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available: 1 Too many pods"}
    cluster.status = {"phase": "Pending", "conditions": [condition]}
    node.says(report(resources=[TO_PROVE]))
    result = verify(node, kubeconfig="x", timeout=0.01)
    detail = f"its pod is Pending after 0.01 s: {condition['message']}"
    assert (result["resources"][0]["state"], result["resources"][0]["detail"]) == ("unproven", detail)
    assert (result["problems"], result["warnings"]) == ([], [f"node1: a.example/crand is unproven: {detail}"])
    assert result["changed"] is False
    result = verify(node, kubeconfig="x", timeout=0.01, require_proof=True)
    assert (result["problems"], "warnings" in result) == ([f"a.example/crand: unproven: {detail}"], False)
    assert len(node.calls) == 2


def test_a_cluster_that_does_not_know_the_node_is_a_reason(node, cluster):
    node.says(report(resources=[TO_PROVE]))
    result = verify(node, kubeconfig="x", node_name="worker9")
    assert result["resources"][0]["detail"] == "the cluster has no node worker9: set node_devices_node_name"
    assert (result["problems"], cluster.made) == ([], [])


def test_nothing_is_made_where_nothing_is_to_prove(node, cluster):
    held = {**TO_PROVE, "shares": 0, "detail": "no device is free, and a container of default/a: nothing"}
    node.says(report(resources=[ROW, held]))
    assert verify(node, kubeconfig="x")["resources"][1] == held
    node.says(report(resources=[TO_PROVE], image=None))
    assert verify(node, kubeconfig="x")["resources"] == [TO_PROVE]
    assert (cluster.made, cluster.classes) == ([], {})


@pytest.mark.parametrize("pipelining", [True, False])
def test_a_command_that_is_not_there(node, pipelining):
    node.pipelining = pipelining
    node.program.unlink()
    result = verify(node)
    assert result["failed"] is True
    assert result["msg"] == f"node1: {node.program} is not installed on the node: run role node_tools (site.yml) first"


def test_a_command_that_fails_without_an_answer(node):
    node.says("no such option", code=2)
    assert verify(node)["msg"] == f"node1: {node.program} verify failed: no such option"


def test_the_command_of_another_release_is_named_as_such(node):
    """After a rollback the node's command does not know what this collection asks it."""
    node.says("node-device-plugin: error: unrecognized arguments: --plugin service", code=2)
    assert verify(node)["msg"] == (
        f"node1: {node.program} verify failed: node-device-plugin: error: unrecognized arguments: --plugin service; "
        "the node's command is of another release than this collection: run upgrade.yml, or use the collection of "
        "the node's release"
    )


def test_check_mode_proves_nothing(node):
    node.program.unlink()
    result = verify(node, check=True)
    assert (result["skipped"], node.modules) == (True, [])


def read(variables, **arguments):
    action = object.__new__(declaration.ActionModule)
    action._task = types.SimpleNamespace(args=arguments)
    action._templar = types.SimpleNamespace(template=lambda value: value)
    return action.run(None, {"inventory_hostname": "node1", **variables})


@pytest.mark.parametrize(("api_only", "owner"), [(True, "plugin"), ("yes", "plugin"), (False, None), (None, None)])
@pytest.mark.parametrize("settings", [{}, {"node_devices_settings": {"log_level": "debug"}}])
def test_where_only_the_api_reaches_the_plugin_owns_the_specs(node, api_only, owner, settings):
    variables = {} if api_only is None else {"node_devices_api_only": api_only}
    configuration = read({**variables, **settings})["configuration"]
    assert configuration.get("cdi_owner") == owner
    assert configuration.get("log_level") == settings.get("node_devices_settings", {}).get("log_level")


def test_a_declaration_is_refused_with_all_that_is_wrong_with_the_roles_variables(node):
    variables = {"node_devices_resources": "crand", "cdi_runtime_max_parallel_restarts": "many"}
    lines = read(variables, roles=["cdi_runtime"])["msg"].splitlines()
    assert len(lines) == 3
    assert all(line.startswith("node1: ") for line in lines[1:])
    assert [name for line in lines[1:] for name in variables if name in line] == [*reversed(variables)]


DAEMONSET = {
    "device_plugin_mode": "daemonset",
    "node_devices_kubeconfig": "/x",
    "node_devices_resources": [{"name": "a.example/crand"}],
}


def test_what_no_daemonset_can_have_is_refused_before_any_node_is_touched(node):
    kvm = {"id": "kvm0", "nodes": [{"path": "/dev/kvm"}]}
    opening = {"name": "a.example/kvm", "health": {"open": True}, "devices": [kvm]}
    variables = {
        **DAEMONSET,
        "node_devices_resources": [opening],
        "device_plugin_deployment": {"resources": {"limits": {"memory": "lots"}}, "namespace": "Ours"},
    }
    assert [line.split(" ")[1] for line in read(variables, roles=["device_plugin"])["msg"].splitlines()[1:]] == [
        "device_plugin_deployment.namespace:",
        "device_plugin_deployment.resources.limits.memory:",
        "resources[0]",
    ]
    # Nothing of it is meant for a service, nor asked of a role that only reads.
    assert "msg" not in read({**variables, "device_plugin_mode": "service"}, roles=["device_plugin"])
    assert "msg" not in read(variables)


def test_a_daemonset_without_a_cluster_is_refused_before_any_node_is_touched(node):
    lines = read({**DAEMONSET, "node_devices_kubeconfig": ""}, roles=["device_plugin"])["msg"].splitlines()
    assert lines[1:] == [
        "node1: node_devices_kubeconfig: not set, but a DaemonSet needs the Kubernetes API: set it to a kubeconfig "
        "file on the controller"
    ]
    assert "msg" not in read(DAEMONSET, roles=["device_plugin"])
