"""What the plugin's pod may do as the DRA driver of its node, and nothing else; against a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time

import plugin_pods
import pytest

from node_device_plugin.cluster.api import Place
from node_device_plugin.declaration.model import DraDriver
from node_device_plugin.declaration.names import pool_name
from node_device_plugin.kubelet.dra.publisher import Publisher
from node_device_plugin.kubelet.dra.slices import Pool, SliceDevice

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

DRIVER, CAMERA = "dra.example.com", "example.com/camera"
API = "/apis/resource.k8s.io/v1"
SLICES, CLAIMS = f"{API}/resourceslices", f"{API}/namespaces/default/resourceclaims"
NO_NODE = "the token names no node: the plugin needs the token of a pod on a node"
OTHER_NODE = "the slice is not of the node of the token's pod"
NO_SELECTION = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
OTHER_DRIVER = "the slice is not of the plugin's DRA driver"
OTHER_POOL = "the slice's pool is not of the token's node"
_numbers = itertools.count()


@pytest.fixture
def pod(cluster, tmp_path):
    """Creates pods with rights, which the API server enforces: pod(node)."""
    namespace = f"slices-{next(_numbers)}"
    with plugin_pods.rights(cluster, namespace, [DRIVER]):
        made = []

        def make(node, **bound):
            plugin = plugin_pods.Pod(cluster, namespace, node, tmp_path, **bound)
            if not made:
                _await_policy(plugin)
            made.append(plugin)
            return plugin

        yield make
    cluster.ask("DELETE", SLICES)


@pytest.fixture
def node(cluster):
    return cluster.node({"cpu": "2"}, f"slices-{next(_numbers)}")


def _await_policy(plugin):
    """Wait until the API server enforces role and policy, which takes a moment after their creation."""
    since, path = time.monotonic(), f"{SLICES}?dryRun=All"
    while plugin.ask("POST", path, slice_of(plugin.node, driver="other.example.com"))[0] != 422:
        assert time.monotonic() < since + 20
        time.sleep(0.1)
    print(f"the policy is enforced after {time.monotonic() - since:.1f} s")


def slice_of(node, name="", driver=DRIVER, pool=CAMERA, **spec):
    """A slice. pool: of this resource, or a pool's name with a slash in front."""
    pool = pool[1:] if pool.startswith("/") else pool_name(node.name, pool)
    spec = spec or {"nodeName": node.name}
    return {
        "metadata": {"name": name or f"slice-{next(_numbers)}"},
        "spec": {"driver": driver, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}, **spec},
    }


def changed(cluster, name):
    """A slice with another generation, which a driver may set."""
    found = cluster.ask("GET", f"{SLICES}/{name}")
    found["spec"]["pool"]["generation"] += 1
    return found


async def test_the_driver_keeps_the_slices_of_its_node(cluster, node, pod):
    other = cluster.ask("POST", SLICES, slice_of(cluster.node({"cpu": "2"})))
    plugin = pod(node)
    publisher = Publisher(DraDriver(DRIVER, node.name, ""), plugin.connect)
    publisher.set_registered(True)

    def published():
        found = cluster.ask("GET", f"{SLICES}?fieldSelector=spec.nodeName%3D{node.name}")["items"]
        assert all(each["metadata"]["ownerReferences"][0]["name"] == node.name for each in found)
        return sum(len(each["spec"].get("devices", ())) for each in found)

    task = asyncio.create_task(publisher.run())
    try:
        # 65 devices need two slices, and one device only one: this creates, replaces and deletes.
        for number in (1, 65, 1, 0):
            devices = tuple(SliceDevice(f"d{each}", {"resource": CAMERA}) for each in range(number))
            publisher.publish([Pool(pool_name(node.name, CAMERA), devices)] if number else [])
            since = time.monotonic()
            while await asyncio.to_thread(published) != number:
                assert time.monotonic() < since + 10, publisher.problem
                await asyncio.sleep(0.02)
        assert publisher.problem is None
        # Whoever deletes a slice, the watch shows it.
        publisher.publish([Pool(pool_name(node.name, CAMERA), (SliceDevice("d", {"resource": CAMERA}),))])
        for _time in range(2):
            while await asyncio.to_thread(published) != 1:
                await asyncio.sleep(0.02)
            cluster.ask("DELETE", f"{SLICES}?fieldSelector=spec.nodeName%3D{node.name}")
        while await asyncio.to_thread(published) != 1:
            await asyncio.sleep(0.02)
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert cluster.ask("GET", f"{SLICES}/{other['metadata']['name']}") == other


def test_the_driver_reads_claims(cluster, node, pod):
    exactly = {"deviceClassName": "camera.example.com"}
    spec = {"devices": {"requests": [{"name": "camera", "exactly": exactly}]}}
    cluster.ask("POST", CLAIMS, {"metadata": {"name": node.name}, "spec": spec})
    plugin = pod(node)
    api, place = plugin.connect(), Place("resourceclaims", node.name, "default", "resource.k8s.io/v1")
    assert api.get(place)["spec"] == cluster.ask("GET", f"{CLAIMS}/{node.name}")["spec"]
    # Neither may it change or delete a claim, nor read those whose names it does not know.
    of_claim = cluster.ask("GET", f"{CLAIMS}/{node.name}")
    for method, path, content in (
        ("DELETE", f"{CLAIMS}/{node.name}", None),
        ("PUT", f"{CLAIMS}/{node.name}", of_claim),
        ("PUT", f"{CLAIMS}/{node.name}/status", of_claim),
        ("GET", CLAIMS, None),
        ("GET", f"{API}/resourceclaims", None),
    ):
        assert plugin.ask(method, path, content)[0] == 403, (method, path)
    cluster.ask("DELETE", f"{CLAIMS}/{node.name}")


def test_slices_of_others_are_refused(cluster, node, pod):
    other, plugin = cluster.node({"cpu": "2"}), pod(node)
    path, minor = f"{API}/resourceslices", int(cluster.ask("GET", "/version")["minor"].rstrip("+"))
    of_all = {
        "every node": slice_of(node, allNodes=True),
        "selected nodes": slice_of(
            node,
            nodeSelector={
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}
                ]
            },
        ),
    }
    for what, content, said in (
        ("another node", slice_of(other), OTHER_NODE),
        ("another node in the name of its own", slice_of(other, pool="/" + pool_name(node.name, CAMERA)), OTHER_NODE),
        *((what, content, OTHER_NODE) for what, content in of_all.items()),
        # Before 1.36, a gate that is off drops the field, so that the server itself refuses a slice of no node.
        ("a device's node", slice_of(node, perDeviceNodeSelection=True), OTHER_NODE if minor >= 36 else NO_SELECTION),
        ("another driver", slice_of(node, driver="gpu.example.com"), OTHER_DRIVER),
        # A pool is all slices of a driver with one name, so it would hide the devices of the other node.
        ("another node's pool", slice_of(node, pool="/" + pool_name(other.name, CAMERA)), OTHER_POOL),
        ("a pool without a node", slice_of(node, pool="/pool"), OTHER_POOL),
        ("a longer name", slice_of(node, pool=f"/{node.name}x/camera.example.com"), OTHER_POOL),
    ):
        code, message = plugin.ask("POST", path, content)
        assert (code, message.endswith(said)) == (422, True), f"{what}: {code} {message}"
    for content, said in (
        (slice_of(other), OTHER_NODE),
        (slice_of(node, driver="gpu.example.com"), OTHER_DRIVER),
        (slice_of(node, pool="/pool"), OTHER_POOL),
        (of_all["every node"], OTHER_NODE),
    ):
        name = cluster.ask("POST", path, content)["metadata"]["name"]
        for method, new in (("PUT", changed(cluster, name)), ("DELETE", None)):
            code, message = plugin.ask(method, f"{path}/{name}", new)
            assert (code, message.endswith(said)) == (422, True), f"{method} {content}: {code} {message}"


def test_a_slice_of_its_own_does_not_become_anothers(cluster, node, pod):
    plugin, other = pod(node), cluster.node({"cpu": "2"})
    own = slice_of(node)
    assert plugin.ask("POST", SLICES, own) == (201, "")
    path = f"{SLICES}/{own['metadata']['name']}"
    # All pass the API server's own checks of what never changes, except for the policy.
    for part, value in (("nodeName", other.name), ("driver", "gpu.example.com")):
        found = changed(cluster, own["metadata"]["name"])
        found["spec"][part] = value
        assert plugin.ask("PUT", path, found)[0] == 422
    assert plugin.ask("PUT", path, changed(cluster, own["metadata"]["name"])) == (200, "")
    assert plugin.ask("DELETE", path) == (200, "")
    # The other node's pod may do the same there, at the same time.
    of_other = pod(other)
    assert of_other.ask("POST", SLICES, slice_of(other)) == (201, "")
    assert of_other.ask("POST", SLICES, slice_of(node))[0] == 422


def test_a_slice_gets_no_finalizer(cluster, node, pod):
    """It would stay after its pod and its node, and hide the node's devices by a higher generation."""
    plugin, own, message = pod(node), slice_of(node), "the slice has a new finalizer"
    path, mine = f"{SLICES}/{own['metadata']['name']}", {"finalizers": ["example.com/stay"]}
    code, said = plugin.ask("POST", SLICES, {**own, "metadata": {**own["metadata"], **mine}})
    assert (code, said.endswith(message)) == (422, True), said
    assert plugin.ask("POST", SLICES, own) == (201, "")
    found = changed(cluster, own["metadata"]["name"])
    code, said = plugin.ask("PUT", path, {**found, "metadata": {**found["metadata"], **mine}})
    assert (code, said.endswith(message)) == (422, True), said
    # A finalizer of somebody else hinders no change.
    cluster.ask("PATCH", path, {"metadata": mine}, "application/merge-patch+json")
    assert plugin.ask("PUT", path, changed(cluster, own["metadata"]["name"])) == (200, "")
    cluster.ask("PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    assert plugin.ask("DELETE", path) == (200, "")


def test_a_token_that_names_no_node_is_refused(cluster, node, pod):
    plugin = pod(node)
    own = slice_of(node)
    assert plugin.ask("POST", SLICES, own) == (201, "")
    nameless, path = pod(node, expirationSeconds=600), f"{SLICES}/{own['metadata']['name']}"
    for method, where, content in (
        ("POST", SLICES, slice_of(node)),
        ("PUT", path, changed(cluster, own["metadata"]["name"])),
        ("DELETE", path, None),
    ):
        code, message = nameless.ask(method, where, content)
        assert (code, NO_NODE in message) == (422, True), f"{method}: {code} {message}"


def test_the_token_is_good_for_nothing_else(cluster, node, pod):
    plugin = pod(node)
    own = slice_of(node)
    assert plugin.ask("POST", SLICES, own) == (201, "")
    name, merge = own["metadata"]["name"], {"metadata": {"labels": {"a": "b"}}}
    for method, path, content in (
        ("DELETE", SLICES, None),
        ("PATCH", f"{SLICES}/{name}", merge),
        ("GET", f"{SLICES}/{name}", None),
        ("GET", "/api/v1/nodes", None),
        ("PATCH", f"/api/v1/nodes/{node.name}", merge),
        ("PATCH", f"/api/v1/nodes/{node.name}/status", merge),
        ("GET", f"{API}/deviceclasses", None),
        ("GET", "/api/v1/pods", None),
        ("GET", "/api/v1/namespaces/default/secrets", None),
    ):
        code, _message = plugin.ask(method, path, content, plugin_pods.MERGE if method == "PATCH" else "")
        assert code == 403, f"{method} {path}: {code}"
