"""What a run finds out about its kubeconfig before it writes anything: one sentence, with the variable and the file."""

from __future__ import annotations

import types

import certificates
import pytest
from ansible.errors import AnsibleUndefinedVariable
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import declaration, node_preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight as preflights
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.declaration import read
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import cluster_access

FACTS = {
    "python": {"version": [3, 11, 2], "executable": "/usr/bin/python3"},
    "uid": 0,
    "runtime": {"name": "containerd"},
    "device_plugins": {"instance": None, "registered": [], "others": [], "drivers": []},
    "cdi_files": [],
    "claims_prepared": [],
    "spec_devices": [],
    "ledger": {},
}
WORD = "c2VjcmV0LXRva2Vu"
DECLARED = read({}, template=lambda value: value).as_data()
PATCHING = {**DECLARED, "capacities": {"example.com/licence": 3}}


@pytest.fixture
def node(cluster):
    return cluster.node({"cpu": "2"})


@pytest.fixture
def preflight(monkeypatch):
    """Runs the preflight with a kubeconfig; returns its result and the modules that ran on the node."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_action(kubeconfig, node_name="worker1", **more):
        action = object.__new__(node_preflight.ActionModule)
        arguments = {"kubeconfig": kubeconfig, "node_name": node_name, "requires": ["python"], "lock": {}}
        arguments.update({name: value for name, value in more.items() if value is not None})
        play = types.SimpleNamespace(_uuid="play")
        action._task = types.SimpleNamespace(args=arguments, check_mode=False, get_play=lambda: play)
        executed = []

        def execute(module_name, module_args, task_vars):
            executed.append(module_name.rpartition(".")[2])
            return dict(FACTS) if executed[-1] == "node_preflight" else {}

        action._execute_module = execute
        result = action.run(None, {"inventory_hostname": "worker1"})
        assert WORD not in str(result)
        return result, executed

    return run_action


@pytest.fixture
def look(preflight):
    """What the preflight says for a kubeconfig, and what ran on the node."""

    def run_action(kubeconfig, declaration=DECLARED, node_name="worker1", drain=None):
        result, executed = preflight(kubeconfig, node_name, declaration=declaration, drain=drain)
        if not result.get("failed"):
            return "", executed
        head, *lines = result["msg"].splitlines()
        assert head == "The node is not ready; nothing was written on it."
        (line,) = lines
        assert line.startswith("worker1: node_devices_kubeconfig")
        assert kubeconfig in line
        return line, executed

    return look_and_let_go(run_action)


def look_and_let_go(run_action):
    """Where it refuses, it lets go of the node, on which it has written nothing."""

    def run(*arguments, **named):
        said, executed = run_action(*arguments, **named)
        assert executed == (["node_preflight", "node_lock"] if said else ["node_preflight"])
        return said

    return run


def test_one_that_leads_to_the_node(cluster, node, look):
    assert look(cluster.kubeconfig(), node_name=node.name) == ""
    assert look(cluster.kubeconfig(), PATCHING, node_name=node.name) == ""
    # Nothing of it is changed.
    version = node.read()["metadata"]["resourceVersion"]
    look(cluster.kubeconfig(), PATCHING, node_name=node.name)
    assert node.read()["metadata"]["resourceVersion"] == version


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "No such file or directory"),
        ('users: [{user: {token: "' + WORD + "}]\nclusters: [", "is not valid YAML: "),
        (f"token: *{WORD}\n", "is not valid YAML: invalid content, line 1, column 8"),
        (f"token: !{WORD} 1\n", "is not valid YAML: invalid content, line 1, column 8"),
        (f"- {WORD}\n", "current-context is not set"),
        ("current-context: a\ncontexts: []\n", "contexts has no context 'a'"),
    ],
)
def test_a_file_that_is_none(tmp_path, look, content, says):
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    assert says in look(str(path))


def test_a_server_that_is_not_there(cluster, look, unused_server):
    said = look(cluster.kubeconfig(server=unused_server))
    assert (
        f"the API server {unused_server} does not answer: Connection refused: retry when the API server answers" in said
    )


def test_a_server_of_another_authority(cluster, tmp_path, look):
    other = certificates.Authority(tmp_path)
    said = look(cluster.kubeconfig(**{"certificate-authority": str(other.path)}))
    assert "does not answer: the server's certificate is not trusted: " in said


def test_a_user_without_rights(cluster, node, look):
    nobody = cluster.authority.sign("carl")
    said = look(cluster.kubeconfig({"client-certificate": str(nobody), "client-key": str(nobody)}), node_name=node.name)
    assert 'User "carl" cannot get' in said
    assert "does not accept the token of the user test: Unauthorized" in look(
        cluster.kubeconfig({"token": WORD}), node_name=node.name
    )


def test_a_cluster_without_the_node(cluster, look):
    assert "the cluster has no node none-such: set node_devices_node_name" in look(
        cluster.kubeconfig(), node_name="none-such"
    )
    # An uninstall goes on for a machine whose node object is gone.
    assert look(cluster.kubeconfig(), None, node_name="none-such") == ""


def test_a_node_that_may_be_drained_is_there_before_anything_is_touched(cluster, look):
    said = look(cluster.kubeconfig(), None, node_name="none-such", drain={"minutes": 10})
    assert "the cluster has no node none-such" in said


GPUS = {"name": "devices.example.com/gpu", "discover": {"cdi": {"kind": "nvidia.com/gpu"}}}

GPUS_HERE = {
    "declaration": read({"node_devices_resources": [GPUS]}, template=lambda value: value).as_data(),
    "mode": "service",
}


@pytest.fixture
def driver(cluster, node):
    """The name of a DRA driver that offers devices of the node in a ResourceSlice."""
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": node.name,
        "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    cluster.ask("POST", slices, {"metadata": {"name": node.name}, "spec": spec})
    yield spec["driver"]
    cluster.ask("DELETE", f"{slices}/{node.name}")


REFUSED = "worker1: a DRA driver serves gpu.nvidia.com on this node, and the declaration offers devices of the CDI kind"


def test_devices_of_a_vendor_whose_dra_driver_has_a_resource_slice(cluster, node, driver, declare, preflight):
    named = {"node_devices_node_name": node.name, "node_devices_resources": [GPUS]}
    (_, line) = declare(cluster.kubeconfig(), **named)
    assert line.startswith(REFUSED)
    assert declare(cluster.kubeconfig(), device_plugin_takeover=True, **named) == []
    (_, line) = preflight(cluster.kubeconfig(), node.name, **GPUS_HERE)[0]["msg"].splitlines()
    assert line.startswith(REFUSED)
    # The slice is of one node.
    other = cluster.node({"cpu": "2"})
    assert declare(cluster.kubeconfig(), **{**named, "node_devices_node_name": other.name}) == []
    assert not preflight(cluster.kubeconfig(), other.name, **GPUS_HERE)[0].get("failed")


@pytest.mark.parametrize("api", ["dra", "device_plugin"])
def test_slices_of_our_own_driver_are_of_no_other_driver(cluster, node, driver, declare, api):
    """As in each run after the first one, and before a move back to the device plugin."""
    settings = {"dra": {"driver": driver}}
    named = {"node_devices_node_name": node.name, "node_devices_resources": [{**GPUS, "api": api}]}
    assert REFUSED not in "".join(declare(cluster.kubeconfig(), node_devices_settings=settings, **named))


def test_resource_slices_that_the_user_may_not_list(cluster, node, preflight):
    user = cluster.kubeconfig({"token": "reader-token"})
    (warning,) = preflight(user, node.name, **GPUS_HERE)[0]["warnings"]
    assert warning.startswith("worker1: cannot check whether a DRA driver offers this node's devices in ResourceSlices")
    assert "give this user list on resourceslices.resource.k8s.io in a ClusterRole" in warning


LICENCES = {"name": "example.com/licence", "capacity": 3}


@pytest.fixture
def declare(monkeypatch):
    """What the first play of site.yml says of a host, whose node nobody logs in to."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run(kubeconfig, roles=("device_plugin",), **variables):
        def template(value):
            if value == "{{ ansible_facts.nodename }}":
                raise AnsibleUndefinedVariable("'nodename' is undefined")
            return value

        action = object.__new__(declaration.ActionModule)
        action._task = types.SimpleNamespace(args={"roles": list(roles)})
        action._templar = types.SimpleNamespace(template=template)
        by_api = {"node_devices_api_only": True, "device_plugin_mode": "daemonset"}
        variables = {**by_api, "node_devices_kubeconfig": kubeconfig, **variables}
        with monkeypatch.context() as patched:
            # Nothing on the node can be asked.
            patched.setattr(preflights.Preflight, "_other_machine", None)
            result = action.run(None, {"inventory_hostname": "worker1", **variables})
        return result["msg"].splitlines() if result.get("failed") else result.get("warnings", [])

    return run


def test_a_run_says_first_what_it_removes_from_a_node_that_only_the_api_reaches(cluster, node, declare, monkeypatch):
    asked = []
    monkeypatch.setattr(cluster_access, "removed", lambda *given: asked.append(given) or {"a.b/old"})
    served = {"name": "a.b/serial", "discover": {"paths": ["/dev/ttyS*"]}}
    (said,) = declare(cluster.kubeconfig(), node_devices_node_name=node.name, node_devices_resources=[LICENCES, served])
    assert said.startswith("worker1: this run removes a.b/old from the node")
    ((shown, declared, api_only),) = asked
    assert (shown["metadata"]["name"], api_only) == (node.name, True)
    assert declared["capacities"] == {LICENCES["name"]: LICENCES["capacity"]}
    assert [each["name"] for each in declared["resources"]] == ["a.b/serial"]


def test_of_a_node_that_only_the_api_reaches_it_is_said_with_the_declaration(cluster, node, declare):
    named = {"node_devices_node_name": node.name}
    head = "The cluster cannot be used; no node was touched."
    assert declare(cluster.kubeconfig(), **named) == []
    assert declare(cluster.kubeconfig(), node_devices_resources=[LICENCES], **named) == []
    assert declare("/none-such", **named) == [
        head,
        "worker1: node_devices_kubeconfig: /none-such: No such file or directory",
    ]


def test_of_a_node_that_has_not_joined_nothing_can_be_said_yet(cluster, declare):
    assert declare(cluster.kubeconfig(), node_devices_resources=[LICENCES]) == []


def test_the_inventorys_name_counts_where_none_can_be_worked_out(cluster, declare):
    full = cluster.node({"cpu": "2", "pods": "0"}, "worker1")
    try:
        with full.kubelet():
            full.version()
            for variables in ({}, {"node_devices_node_name": "{{ ansible_facts.nodename }}"}):
                (_, line) = declare(cluster.kubeconfig(), **variables)
                assert "node worker1 has no free pod slot" in line
    finally:
        full.delete()


def test_its_user_may_patch_the_node_if_the_declaration_has_capacities(cluster, node, declare):
    user = cluster.kubeconfig({"token": "reader-token"})
    named = {"node_devices_node_name": node.name}
    assert declare(user, **named) == []
    (_, line) = declare(user, node_devices_resources=[LICENCES], **named)
    assert "cannot patch" in line


def test_its_pod_has_a_slot_if_it_runs_as_a_daemonset(cluster, declare):
    full = cluster.node({"cpu": "2", "pods": "0"})
    named = {"node_devices_node_name": full.name}
    with full.kubelet():
        full.version()
        (_, other) = declare(cluster.kubeconfig(), device_plugin_mode="service", **named)
        (_, line) = declare(cluster.kubeconfig(), **named)
    assert other.startswith("worker1: device_plugin_mode: is service, but node_devices_api_only means")
    assert f"node {full.name} has no free pod slot" in line


def test_both_are_said_at_once(declare):
    head, *lines = declare("/none-such", node_devices_resources=[{"name": "nonsense"}])
    assert head == "The declaration cannot be used; no node was touched."
    assert [line for line in lines if "nonsense" in line]
    assert [line for line in lines if "/none-such" in line]


def test_a_node_that_is_reached_and_a_role_of_its_own_ask_no_api(declare):
    assert declare("/none-such", node_devices_api_only=False) == []
    assert declare("/none-such", roles=()) == []
