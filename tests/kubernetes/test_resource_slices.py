"""The publisher of ResourceSlices with a kubelet's credentials, against a real API server with the Node authorizer."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
import types
import urllib.parse
import urllib.request

import pytest
import stand_in

from node_device_plugin.cluster.api import Api, ApiError
from node_device_plugin.declaration import parse_resources
from node_device_plugin.declaration.model import Attributes, DraDriver, Version
from node_device_plugin.kubelet.dra import publisher as module
from node_device_plugin.kubelet.dra.publisher import Publisher, connect
from node_device_plugin.kubelet.dra.slices import Pool, SliceDevice, pool_of

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

NODE = stand_in.KUBELETS_NODE
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
OF_NODE = f"{SLICES}?fieldSelector={urllib.parse.quote(f'spec.nodeName={NODE}')}"


class Counted:
    """A client that counts its writes."""

    def __init__(self, driver: DraDriver, counts: collections.Counter[str]) -> None:
        self._api, self._counts = connect(driver), counts

    def impatient(self) -> Counted:
        self._api = self._api.impatient()
        return self

    def dry(self) -> Api:
        self._counts["dry run"] += 1
        return self._api.dry()

    def __getattr__(self, name: str):
        if name in ("create", "replace", "delete"):
            self._counts[name] += 1
        return getattr(self._api, name)


class Node:
    """A node with a driver. writes: the number of the publisher's requests, by kind."""

    def __init__(self, cluster, node) -> None:
        self.cluster, self.uid = cluster, node.read()["metadata"]["uid"]
        self.driver = DraDriver("dra.example.com", NODE, cluster.kubeconfig({"token": "kubelet-token"}))
        self.writes: collections.Counter[str] = collections.Counter()

    def connect(self) -> Api:
        return Counted(self.driver, self.writes)  # type: ignore[return-value]

    def slices(self) -> list[dict]:
        return self.cluster.ask("GET", OF_NODE)["items"]

    def devices(self) -> int:
        return sum(len(each["spec"].get("devices") or ()) for each in self.slices())

    def kubelet_starts(self) -> None:
        """It deletes all slices of its node (pkg/kubelet/cm/dra/plugin)."""
        headers = {"Authorization": "Bearer kubelet-token"}
        request = urllib.request.Request(f"{self.cluster.server}{OF_NODE}", headers=headers, method="DELETE")
        self.cluster.opener.open(request, timeout=10).close()

    def pool(self, number: int, name: str = f"{NODE}/camera.example.com") -> Pool:
        devices = (
            SliceDevice(f"d{each}", {"resource": "example.com/camera", "id": str(each)}) for each in range(number)
        )
        return Pool(name, tuple(devices))

    @contextlib.asynccontextmanager
    async def running(self, *pools: Pool):
        publisher = Publisher(self.driver, self.connect)
        publisher.publish(pools)
        publisher.set_registered(True)
        task = asyncio.create_task(publisher.run())
        try:
            yield publisher
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def has(self, number: int, seconds: float = 20.0) -> float:
        """Wait for so many devices; returns the seconds that it took."""
        began = time.monotonic()
        while await asyncio.to_thread(self.devices) != number:
            assert time.monotonic() - began < seconds, self.slices()
            await asyncio.sleep(0.02)
        return time.monotonic() - began


@pytest.fixture
def node(cluster):
    node = cluster.node({"cpu": "2"}, NODE)
    yield Node(cluster, node)
    cluster.ask("DELETE", SLICES)
    node.delete()


async def test_exact_content_and_owner(node):
    (resource,) = parse_resources(
        [{"name": "example.com/camera", "devices": [{"id": "Cam_0", "nodes": [{"path": "/dev/video0"}]}]}]
    )
    values = {"focus": True, "lenses": 2, "firmware": Version("1.2.3-rc.1+b")}
    device = resource.devices[0]._replace(
        numa_node=0,
        attributes=Attributes("0000:3b:00.0", "pci0000:3a", driver="uvcvideo"),
        dra_attributes=types.MappingProxyType(values),
    )
    async with node.running(pool_of(node.driver, resource, [(device, None)])) as publisher:
        await node.has(1)
        assert publisher.problem is None
    (found,) = node.slices()
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node.uid, "controller": True}
    ]
    assert found["spec"] == {
        "driver": "dra.example.com",
        "nodeName": NODE,
        "pool": {"name": f"{NODE}/camera.example.com", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": found["spec"]["devices"][0]["name"],
                "attributes": {
                    "resource": {"string": "example.com/camera"},
                    "id": {"string": "Cam_0"},
                    "focus": {"bool": True},
                    "lenses": {"int": 2},
                    "firmware": {"version": "1.2.3-rc.1+b"},
                    "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"},
                    "resource.kubernetes.io/pcieRoot": {"string": "pci0000:3a"},
                    "resource.kubernetes.io/numaNode": {"int": 0},
                    "driver": {"string": "uvcvideo"},
                    "path": {"string": "/dev/video0"},
                },
            }
        ],
    }
    assert found["spec"]["devices"][0]["name"].startswith("cam-0--")


async def test_an_unhealthy_device_is_tainted_or_leaves_without_taints(node):
    """Kubernetes 1.34 has the taints of devices off, and drops them. Then a scheduler never sees the device."""
    pool = node.pool(64)
    sick = pool._replace(devices=(pool.devices[0]._replace(is_healthy=False), *pool.devices[1:]))
    minor = int(node.cluster.ask("GET", "/version")["minor"].rstrip("+"))
    async with node.running(pool) as publisher:
        await node.has(64)
        for _turn in range(2):
            publisher.publish([sick])
            while not (sees := slices_with_taints(node)) and node.devices() == 64:
                await asyncio.sleep(0.05)
            if minor < 36:
                assert (sees, node.devices()) == ([], 63)
            else:
                ((name, (taint,)),) = sees
                assert name == "d0"
                assert taint.pop("timeAdded")
                assert taint == {"key": "nodedevices.kubernetes/unhealthy", "effect": "NoSchedule"}
            publisher.publish([pool])
            while slices_with_taints(node) or node.devices() != 64:
                await asyncio.sleep(0.05)
        assert node.writes == {"create": 1, "replace": 4, "dry run": 1}
        assert publisher.problem is None
        assert {each["spec"]["pool"]["generation"] for each in node.slices()} == {1}


def slices_with_taints(node):
    devices = (device for each in node.slices() for device in each["spec"].get("devices", ()))
    return [(device["name"], device["taints"]) for device in devices if "taints" in device]


async def test_what_is_at_the_limits_is_accepted(node):
    """The longest names, 32 attributes of 64 bytes, and more than that, which is left out."""
    name = "d" * 60 + "." + "d" * 60 + "." + "d" * 60 + "." + "d" * 60 + "/" + "N" * 63
    ids = ["x" * 63, "X" * 63, "a_b:c.d"]
    resource, empty = parse_resources(
        [
            {"name": name, "env": {"A_{index}": "b"}, "devices": [{"id": each} for each in ids]},
            {"name": "example.com/none"},
        ]
    )
    values = {"a" * 31 + letter: "ä" * 32 for letter in "abcdefghijklmnopqrstuvwxyzABCDEF"}
    values |= {"tooLong": "x" * 65, "largest": (1 << 63) - 1, "tooLarge": 1 << 63}
    resource = resource._replace(dra_attributes=types.MappingProxyType(values))
    pools = [pool_of(node.driver, each, [(device, None) for device in each.devices]) for each in (resource, empty)]
    async with node.running(*pools) as publisher:
        await node.has(3)
        while len(node.slices()) < 2:
            await asyncio.sleep(0.1)
        assert publisher.problem is None
    found = (device for each in node.slices() for device in each["spec"].get("devices") or ())
    assert {len(device["attributes"]) for device in found} == {32}


async def test_a_change_right_after_the_creation(node):
    """The Node authorizer refuses the second write until it knows the slice."""
    async with node.running() as publisher:
        took = []
        for _round in range(20):
            publisher.publish([node.pool(1)])
            await node.has(1)
            publisher.publish([node.pool(2)])
            took.append(await node.has(2))
            publisher.publish([])
            await node.has(0)
        print("after a change: %.2f to %.2f s; %s" % (min(took), max(took), dict(node.writes)))
        assert max(took) < 1
        assert publisher.problem is None


async def test_slices_come_back_after_each_start_of_the_kubelet(node):
    async with node.running(node.pool(130)) as publisher:
        await node.has(130)
        # The first list may still be read.
        await asyncio.sleep(0.5)
        took = []
        for _start in range(4):
            await asyncio.to_thread(node.kubelet_starts)
            took.append(await node.has(130))
        print("after a deletion: %.2f to %.2f s" % (min(took), max(took)))
        assert max(took) < 1.5
        assert publisher.problem is None


async def test_slices_come_back_if_the_deletion_follows_our_write(node):
    async with node.running(node.pool(1)) as publisher:
        await node.has(1)
        for number in range(2, 12):
            publisher.publish([node.pool(number)])
            await asyncio.sleep(0.01 * number)
            await asyncio.to_thread(node.kubelet_starts)
            await node.has(number, 5)
        assert publisher.problem is None


async def test_a_thousand_devices_and_nothing_written_at_rest(node, monkeypatch):
    monkeypatch.setattr(module, "_WATCH", 2)
    monkeypatch.setattr(module, "_SHORT", 0.5)
    async with node.running(node.pool(1000)) as publisher:
        first = await node.has(1000)
        publisher.publish([node.pool(1000)._replace(devices=node.pool(1000).devices[1:])])
        changed = await node.has(999)
        print(f"a thousand devices after {first:.2f} s, one change after {changed:.2f} s")
        assert node.writes == {"create": 16, "replace": 1}
        versions = {each["metadata"]["resourceVersion"] for each in node.slices()}
        # Several watches end meanwhile.
        await asyncio.sleep(10)
        assert node.writes == {"create": 16, "replace": 1}
        assert {each["metadata"]["resourceVersion"] for each in node.slices()} == versions
        assert {each["spec"]["pool"]["generation"] for each in node.slices()} == {1}
        devices = node.pool(1000).devices
        publisher.publish([node.pool(1000)._replace(devices=(*devices[:100], *devices[200:]))])
        await node.has(900)
        while len({each["spec"]["pool"]["generation"] for each in node.slices()}) > 1:
            await asyncio.sleep(0.1)
        assert {each["spec"]["pool"]["generation"] for each in node.slices()} == {2}
        assert publisher.problem is None


async def test_foreign_slices_of_our_driver_and_node_go(cluster, node):
    other_driver = {"driver": "gpu.example.com", "nodeName": NODE}
    other_node = {"driver": "dra.example.com", "nodeName": "another-node"}
    ours = {"driver": "dra.example.com", "nodeName": NODE}
    pool = {"name": "old", "generation": 3, "resourceSliceCount": 1}
    for name, spec in {"other-driver": other_driver, "other-node": other_node, "ours": ours}.items():
        cluster.ask("POST", SLICES, {"metadata": {"name": name}, "spec": {**spec, "pool": pool}})
    async with node.running(node.pool(1)) as publisher:
        await node.has(1)
        cluster.ask("POST", SLICES, {"metadata": {"name": "late"}, "spec": {**ours, "pool": pool}})
        while {"ours", "late"} & {each["metadata"]["name"] for each in node.slices()}:
            await asyncio.sleep(0.05)
        assert publisher.problem is None
    names = {each["metadata"]["name"] for each in cluster.ask("GET", SLICES)["items"]}
    assert names >= {"other-driver", "other-node"}
    assert len(names) == 3


async def test_content_that_the_server_refuses_is_told(node):
    wrong = Pool(f"{NODE}/wrong.example.com", (SliceDevice("Not_A_Label", {}),))
    async with node.running(wrong, node.pool(2)) as publisher:
        await node.has(2)
        while publisher.problem is None:
            await asyncio.sleep(0.05)
        assert "the API server refused to create resourceslices" in publisher.problem
        assert "spec.devices[0].name" in publisher.problem


async def test_another_node_s_slices_are_refused(cluster, node):
    """A node writes only its own."""
    publisher = Publisher(node.driver._replace(node="another-node"), lambda: connect(node.driver))
    publisher.publish([node.pool(1)])
    publisher.set_registered(True)
    task = asyncio.create_task(publisher.run())
    while publisher.problem is None:
        await asyncio.sleep(0.05)
    task.cancel()
    assert "cannot list resource" in publisher.problem
    assert node.slices() == []


def test_credentials_that_the_server_does_not_accept(cluster):
    api = connect(DraDriver("dra.example.com", NODE, cluster.kubeconfig({"token": "wrong"})))
    with pytest.raises(ApiError, match="does not accept the token"):
        api.node(NODE)
