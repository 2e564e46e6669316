"""DeviceClasses, and what a DRA driver may do with a kubelet's credentials, against a real API server."""

from __future__ import annotations

import pytest
import stand_in
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import dra_access
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    Api,
    Conflict,
    LacksRights,
    Place,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.manifests import (
    device_classes as cluster_classes,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import parse_configuration
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.model import DraDriver
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.names import class_name
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.kubelet.dra.slices import pool_name
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support import directory_names
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import device_classes, migration
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.device_classes import Use
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

RESOURCES = ("example.com/camera", "example.com/Odd_Name.1", f"{'a' * 60}.example.com/{'b' * 63}")
NODE, DRIVER = stand_in.KUBELETS_NODE, "nodedevices.kubernetes"
API = "/apis/resource.k8s.io/v1"


@pytest.fixture
def node(cluster):
    node = cluster.node({"cpu": "2"}, NODE)
    yield node
    node.delete()
    for each in cluster.ask("GET", f"{API}/deviceclasses")["items"]:
        cluster.ask("DELETE", f"{API}/deviceclasses/{each['metadata']['name']}")


def use(node, *resources):
    return Use(node, frozenset(resources), DRIVER)


def run(cluster, *uses, check=False):
    """What a run reports."""
    changes = device_classes.converge(Api.of(cluster.kubeconfig(), check), uses)
    return sorted(each.what for each in changes if each.changed)


def there(cluster):
    return {each["metadata"]["name"]: each for each in cluster.ask("GET", f"{API}/deviceclasses")["items"]}


def test_classes_from_the_first_node_to_the_last(cluster, node):
    other = cluster.node({"cpu": "2"})
    uses = use(NODE, *RESOURCES), use(other.name, RESOURCES[0])
    told = run(cluster, *uses, check=True)
    assert (len(told), there(cluster)) == (3, {})
    assert run(cluster, *uses) == told
    versions = {name: each["metadata"]["resourceVersion"] for name, each in there(cluster).items()}
    assert run(cluster, *uses) == []
    assert {name: each["metadata"]["resourceVersion"] for name, each in there(cluster).items()} == versions
    told = run(cluster, use(NODE), check=True)
    assert len(there(cluster)) == 3
    # The class that the other node uses changes only its record.
    assert run(cluster, use(NODE)) == told
    assert list(there(cluster)) == ["camera.example.com"]
    assert run(cluster, use(other.name)) == ["deviceclass camera.example.com"]
    assert there(cluster) == {}
    other.delete()


def test_another_driver_replaces_the_selector(cluster, node):
    run(cluster, use(NODE, RESOURCES[0]))
    assert run(cluster, use(NODE, RESOURCES[0])._replace(driver="d.example.com")) == ["deviceclass camera.example.com"]
    (selector,) = there(cluster)["camera.example.com"]["spec"]["selectors"]
    assert selector["cel"]["expression"] == (
        'device.driver == "d.example.com" && has(device.attributes["d.example.com"].resource) && '
        'device.attributes["d.example.com"].resource == "example.com/camera"'
    )


@pytest.fixture
def names_resources(cluster):
    """Whether the server keeps the extendedResourceName."""
    return int(cluster.ask("GET", "/version")["minor"].rstrip("+")) >= 36


def test_a_class_has_the_name_by_which_ordinary_pods_request_its_devices(cluster, node, names_resources):
    (of_all,) = uses = [use(NODE, *RESOURCES)]
    api = Api.of(cluster.kubeconfig())
    changes = device_classes.converge(Api.of(cluster.kubeconfig(), dry_run=True), uses)
    assert device_classes.nameless(changes, uses) == (set() if names_resources else of_all.resources)
    assert device_classes.nameless(device_classes.converge(api, uses), uses) == (
        set() if names_resources else of_all.resources
    )
    assert {cluster_classes.resource_of(each) for each in there(cluster).values()} == (
        set(RESOURCES) if names_resources else {""}
    )
    assert set(device_classes.without_name(api, RESOURCES)) == (set() if names_resources else set(RESOURCES))
    # Also where the server drops the name, a second run changes nothing.
    assert run(cluster, of_all) == []


def test_a_class_of_a_release_without_the_name_gets_it_at_the_next_run(cluster, node, names_resources):
    of_older = cluster_classes.content(DRIVER, RESOURCES[0], [NODE], is_named=False)
    cluster.ask("POST", f"{API}/deviceclasses", of_older)
    told = run(cluster, use(NODE, RESOURCES[0]), check=True)
    assert told == ["deviceclass camera.example.com"] * names_resources
    assert run(cluster, use(NODE, RESOURCES[0])) == told
    assert cluster_classes.resource_of(there(cluster)["camera.example.com"]) == RESOURCES[0] * names_resources


def test_a_class_of_others_with_the_name_is_refused_before_anything_is_written(cluster, node, names_resources):
    spec = {"extendedResourceName": RESOURCES[0]}
    cluster.ask("POST", f"{API}/deviceclasses", {"metadata": {"name": "theirs"}, "spec": spec})
    wanted, api = use(NODE, *RESOURCES), Api.of(cluster.kubeconfig(), dry_run=True)
    obstacles = device_classes.require_rights(api, DRIVER, RESOURCES)
    if not names_resources:
        assert obstacles == []
        return
    with pytest.raises(DeploymentError, match=r"camera.example.com cannot have .*, because deviceclass theirs has it"):
        run(cluster, wanted)
    assert (list(there(cluster)), len(obstacles)) == (["theirs"], 1)


def test_names_of_objects(cluster, node):
    other = cluster.node({"cpu": "2"})
    assert Api.of(cluster.kubeconfig()).names(Place("nodes")) >= {NODE, other.name}
    other.delete()


def test_a_class_for_most_nodes_that_kubernetes_supports(cluster, node):
    # Kubernetes supports 5,000 nodes.
    names = [f"ip-10-{number // 256}-{number % 256}-7.eu-central-1.compute.internal" for number in range(5000)]
    assert run(cluster, *(use(name, RESOURCES[0]) for name in names)) == ["deviceclass camera.example.com"]
    room = cluster_classes.MOST_BYTES - cluster_classes.size(there(cluster)["camera.example.com"])
    content = there(cluster)["camera.example.com"]["metadata"]["annotations"]
    assert room > 0
    api = Api.of(cluster.kubeconfig(), dry_run=True)
    place = device_classes.CLASSES._replace(name="camera.example.com")
    text = content[cluster_classes.NODES]
    api.merge(place, {"metadata": {"annotations": {cluster_classes.NODES: text + "x" * room}}})
    with pytest.raises(Conflict, match="may not be more than 262144 bytes"):
        api.merge(place, {"metadata": {"annotations": {cluster_classes.NODES: text + "x" * (room + 1)}}})


@pytest.fixture
def shown(monkeypatch):
    """The sandbox hides the directories of tests."""
    monkeypatch.setattr(directory_names, "NEVER_SHOWN", ())


def look(cluster, token, node=NODE):
    return dra_access.look(DraDriver(DRIVER, node, cluster.kubeconfig({"token": token}))).problem


@pytest.mark.usefixtures("shown")
def test_the_kubelets_credentials_suffice_and_nothing_is_stored(cluster, node):
    assert look(cluster, "kubelet-token") is None
    assert cluster.ask("GET", f"{API}/resourceslices")["items"] == []


@pytest.mark.usefixtures("shown")
def test_another_user_lacks_rights(cluster, node):
    assert 'User "reader" cannot list resource "resourceslices"' in look(cluster, "reader-token")
    assert 'User "nobody" cannot get resource "nodes"' in look(cluster, "nobody-token")
    assert "does not accept the token of the user test" in look(cluster, "wrong-token")


@pytest.mark.usefixtures("shown")
def test_a_kubelet_may_only_speak_for_its_node(cluster, node):
    other = cluster.node({"cpu": "2"})
    assert "kubelet-node" in look(cluster, "kubelet-token", other.name)
    other.delete()


def test_the_right_to_keep_classes_is_checked_before_a_run(cluster, node):
    assert device_classes.require_rights(Api.of(cluster.kubeconfig(), dry_run=True), DRIVER, RESOURCES) == []
    assert there(cluster) == {}
    with pytest.raises(LacksRights, match='User "reader" cannot list resource "deviceclasses"'):
        device_classes.require_rights(Api.of(cluster.kubeconfig({"token": "reader-token"}), dry_run=True), DRIVER, ())


def test_claims_with_devices_of_a_node(cluster, node):
    """Allocated as a scheduler does it, on this node, on another node with the same class, and not yet."""
    other = cluster.node({"cpu": "2"})
    api, claims = Api.of(cluster.kubeconfig()), f"{API}/namespaces/default/resourceclaims"
    assert device_classes.allocated(api, NODE) == frozenset()
    run(cluster, use(NODE, *RESOURCES), use(other.name, RESOURCES[0]))
    for name, where, resource in (
        ("here", NODE, RESOURCES[0]),
        ("other", NODE, RESOURCES[1]),
        ("there", other.name, RESOURCES[0]),
        ("new", "", RESOURCES[0]),
    ):
        exactly = {"deviceClassName": class_name(resource)}
        spec = {"devices": {"requests": [{"name": "cam", "exactly": exactly}]}}
        made = cluster.ask("POST", claims, {"metadata": {"name": name}, "spec": spec})
        if where:
            result = {"request": "cam", "driver": DRIVER, "pool": pool_name(where, resource), "device": "one"}
            status = {"allocation": {"devices": {"results": [result]}}}
            cluster.ask("PUT", f"{claims}/{name}/status", {**made, "status": status})
    assert device_classes.allocated(api, NODE) == {"default/here", "default/other"}
    assert device_classes.allocated(api, other.name) == {"default/there"}
    nobody = Api.of(cluster.kubeconfig({"token": "nobody-token"}))
    assert device_classes.allocated(nobody, NODE) == frozenset()
    run(cluster, use(NODE))
    assert device_classes.allocated(api, NODE) == frozenset()
    cluster.ask("DELETE", claims)
    other.delete()


@pytest.mark.parametrize("api", ["dra", "device_plugin"])
def test_which_nodes_move_and_whether_their_pods_can_follow(cluster, node, names_resources, api):
    """The play migrate.yml reads the node and its slices, and tries the DeviceClass in a dry run."""
    camera = {"name": RESOURCES[0], "api": api, "devices": [{"id": "a", "nodes": [{"path": "/dev/null"}]}]}
    declared = parse_configuration({"resources": [camera]})
    dry = Api.of(cluster.kubeconfig(), dry_run=True)
    if api == "dra":
        node.set_capacity("kubelet", RESOURCES[0], "2")
    else:
        content = {
            "metadata": {"name": "of-the-node"},
            "spec": {
                "driver": DRIVER,
                "nodeName": NODE,
                "pool": {"name": pool_name(NODE, RESOURCES[0]), "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a"}],
            },
        }
        cluster.ask("POST", f"{API}/resourceslices", content)
    seen = migration.look(dry, NODE, declared)
    moves = migration.moving(NODE, declared, seen)
    assert moves == [RESOURCES[0]]
    if api == "dra" and not names_resources:
        with pytest.raises(DeploymentError, match="only by ResourceClaims"):
            migration.require_limits(dry, NODE, declared, moves)
    else:
        migration.require_limits(dry, NODE, declared, moves)
    assert there(cluster) == {}
    if api == "device_plugin":
        cluster.ask("DELETE", f"{API}/resourceslices/of-the-node")
    assert migration.look(dry, NODE, declared).published == {}
