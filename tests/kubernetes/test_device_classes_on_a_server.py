"""DeviceClasses, and what a DRA driver may do with a kubelet's credentials, against a real API server."""

from __future__ import annotations

import pytest
import stand_in
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import dra_access
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, LacksRights
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.model import DraDriver
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import device_classes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.device_classes import Use

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
        'device.driver == "d.example.com" && device.attributes["d.example.com"].resource == "example.com/camera"'
    )


def test_the_claims_of_a_node(cluster, node):
    run(cluster, use(NODE, RESOURCES[0]))
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "viewer"},
        "spec": {
            "devices": {"requests": [{"name": "cam", "exactly": {"deviceClassName": "camera.example.com"}}]},
        },
    }
    place = f"{API}/namespaces/default/resourceclaims"
    created = cluster.ask("POST", place, claim)
    api = Api.of(cluster.kubeconfig())
    assert list(device_classes.claims(api, DRIVER, NODE)) == []
    result = {"request": "cam", "driver": DRIVER, "pool": f"{NODE}/camera.example.com", "device": "front"}
    created["status"] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "viewer", "uid": "1"}],
    }
    cluster.ask("PUT", f"{place}/viewer/status", created)
    assert list(device_classes.claims(api, DRIVER, NODE)) == ["default/viewer (pod viewer)"]
    assert list(device_classes.claims(api, DRIVER, "another")) == []
    assert list(device_classes.claims(api, "d.example.com", NODE)) == []
    cluster.ask("DELETE", f"{place}/viewer")


def look(cluster, token, node=NODE):
    return dra_access.look(DraDriver(DRIVER, node, cluster.kubeconfig({"token": token}))).problem


def test_the_kubelets_credentials_suffice_and_nothing_is_stored(cluster, node):
    assert look(cluster, "kubelet-token") is None
    assert cluster.ask("GET", f"{API}/resourceslices")["items"] == []


def test_another_user_lacks_rights(cluster, node):
    assert 'User "reader" cannot list resource "resourceslices"' in look(cluster, "reader-token")
    assert 'User "nobody" cannot get resource "nodes"' in look(cluster, "nobody-token")
    assert "does not accept the token of the user test" in look(cluster, "wrong-token")


def test_a_kubelet_may_only_speak_for_its_node(cluster, node):
    other = cluster.node({"cpu": "2"})
    assert "kubelet-node" in look(cluster, "kubelet-token", other.name)
    other.delete()


def test_the_right_to_keep_classes_is_checked_before_a_run(cluster, node):
    device_classes.require_rights(Api.of(cluster.kubeconfig(), dry_run=True), DRIVER)
    assert there(cluster) == {}
    with pytest.raises(LacksRights, match='User "reader" cannot list resource "deviceclasses"'):
        device_classes.require_rights(Api.of(cluster.kubeconfig({"token": "reader-token"}), dry_run=True), DRIVER)
