"""Claims that the kubelet prepares and releases, over the driver's socket."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.declaration.model import DRA, DraDriver
from node_device_plugin.devices.given import ServedKey
from node_device_plugin.devices.holdings import HeldId
from node_device_plugin.kubelet.dra import RECORDS, is_needed, preparing
from node_device_plugin.kubelet.dra.claims import ClaimId, Held, Offered, PreparedClaim, PreparedDevice, plan
from node_device_plugin.kubelet.dra.frontend import DraFrontend
from node_device_plugin.kubelet.dra.records import RecordError, Records
from node_device_plugin.kubelet.frontend import HoldersUnknown
from node_device_plugin.support.bounded_calls import BoundedCalls
from node_device_plugin.wire import dra_v1_pb2 as api

from .fake_api import FakeApi, serving
from .node import CAMERA, Kubelet, Node, asked, claim, resource, result, until

FREE = "/dev/null"
#: Paths in a claim.
RESULTS = ("status", "allocation", "devices", "results")
CONFIG = ("status", "allocation", "devices", "config")
UNREAD = "claim default/claim-u1: cannot read it from the API server, the kubelet tries again; see the plugin's log"


def allocate(cluster: FakeApi, *claims: dict[str, Any]) -> None:
    for each in claims:
        cluster.claims["default/" + each["metadata"]["name"]] = each


def delay(monkeypatch: pytest.MonkeyPatch, method: str, before: float = 0.0, after: float = 0.0) -> list[str]:
    """Let a method of Records take longer, in seconds. Returns a list that has an entry for each call."""
    calls: list[str] = []
    original = getattr(Records, method)

    def late(*arguments: Any) -> Any:
        calls.append(method)
        time.sleep(before)
        result = original(*arguments)
        time.sleep(after)
        return result

    monkeypatch.setattr(Records, method, late)
    return calls


async def test_each_request_gets_its_devices_and_the_same_again(node: Node, cluster: FakeApi) -> None:
    numbered = resource("null", "zero", env={"CAMERA_{index}": "{path}"}, joined_env={"CAMERAS": "{id}"})
    other = resource("full", name="example.com/other")
    allocate(
        cluster,
        claim(
            "u1",
            result("zero", "cam"),
            result("null", "cam"),
            result("full", "any/second", "example.com/other"),
            result("gpu", "gpu", driver="vendor.example.com"),
        ),
    )
    async with node.running(numbered, other), Kubelet(node.socket) as kubelet:
        first = await kubelet.prepare(asked("u1"))
        assert first == {
            "u1": api.NodePrepareResourceResponse(
                devices=[
                    api.Device(
                        request_names=["cam"],
                        pool_name="w1/camera.example.com",
                        device_name="zero",
                        cdi_device_ids=[f"{CAMERA}=zero", "nodedevices.kubernetes/claim=u1-cam"],
                    ),
                    api.Device(
                        request_names=["cam"],
                        pool_name="w1/camera.example.com",
                        device_name="null",
                        cdi_device_ids=[f"{CAMERA}=null"],
                    ),
                    api.Device(
                        request_names=["any"],
                        pool_name="w1/other.example.com",
                        device_name="full",
                        cdi_device_ids=["example.com/other=full"],
                    ),
                ]
            )
        }
        assert node.specs == ["node-device-plugin-claim_u1.json", f"{RECORDS}/u1.json"]
        spec = json.loads((node.folder / "cdi" / "node-device-plugin-claim_u1.json").read_text())
        # The numbers follow the declaration.
        env = ["CAMERA_0=/dev/null", "CAMERA_1=/dev/zero", "CAMERAS=null,zero"]
        assert spec == {
            "cdiVersion": "0.3.0",
            "kind": "nodedevices.kubernetes/claim",
            "devices": [{"name": "u1-cam", "containerEdits": {"env": env}}],
        }
        assert await kubelet.prepare(asked("u1")) == first
        assert await kubelet.unprepare(asked("u1"), asked("never")) == {"u1": "", "never": ""}
        assert await kubelet.unprepare(asked("u1")) == {"u1": ""}
    assert os.listdir(node.folder / "cdi") == []


async def test_a_control_device_of_two_devices_is_named_once_for_a_request(node: Node, cluster: FakeApi) -> None:
    """Some runtimes do not start a container that gets a CDI name twice."""
    gpus = [{"id": each, "cdi_devices": ["vendor.com/gpu=ctl", f"vendor.com/gpu={each}"]} for each in ("g0", "g1")]
    of_gpu = {"name": "example.com/gpu"}
    allocate(cluster, claim("u1", result("g0", "a", **of_gpu), result("g1", "a", **of_gpu)))
    allocate(cluster, claim("u2", result("g0", "a", **of_gpu), result("g1", "b", **of_gpu)))
    async with node.running({**of_gpu, "devices": gpus}), Kubelet(node.socket) as kubelet:
        first = ["vendor.com/gpu=ctl", "vendor.com/gpu=g0"]
        assert await kubelet.prepared("u1") == [first, ["vendor.com/gpu=g1"]]
        assert await kubelet.prepared("u1") == [first, ["vendor.com/gpu=g1"]]
        await kubelet.unprepare(asked("u1"))
        # A container may use one request alone.
        assert await kubelet.prepared("u2") == [first, ["vendor.com/gpu=ctl", "vendor.com/gpu=g1"]]


async def test_the_numbers_of_variables_go_on_over_the_requests(node: Node, cluster: FakeApi) -> None:
    """A container may use one request or all. What has the request ALL reaches only those that use all."""
    keys = {"env": {"CAMERA_{index}": "{id}"}, "joined_env": {"CAMERAS": "{id}"}}
    devices = [{"id": each, "cdi_devices": [f"vendor.com/dev={each}"]} for each in "abc"]
    allocate(cluster, claim("u1", result("b", "one"), result("a", "one"), result("c", "two")))
    async with node.running({"name": CAMERA, "devices": devices, **keys}), Kubelet(node.socket) as kubelet:
        of_one, of_two = "nodedevices.kubernetes/claim=u1-one", "nodedevices.kubernetes/claim=u1-two"
        names = [["vendor.com/dev=b", of_one], ["vendor.com/dev=a"], ["vendor.com/dev=c", of_two]]
        assert await kubelet.prepared("u1") == [*names, ["nodedevices.kubernetes/claim=u1-ALL"]]
        whole = (await kubelet.prepare(asked("u1")))["u1"].devices[-1]
        assert (list(whole.request_names), whole.device_name) == (["ALL"], "c")
    spec = json.loads((node.folder / "cdi" / "node-device-plugin-claim_u1.json").read_text())
    assert {each["name"]: each["containerEdits"]["env"] for each in spec["devices"]} == {
        "u1-one": ["CAMERA_0=a", "CAMERA_1=b", "CAMERAS=a,b"],
        "u1-two": ["CAMERA_2=c", "CAMERAS=c"],
        "u1-ALL": ["CAMERAS=a,b,c"],
    }


async def test_the_requests_of_containers_limits_are_numbered_alone(node: Node, cluster: FakeApi) -> None:
    """As by the device plugin, which counts the devices of a container."""
    keys = {"env": {"CAMERA_{index}": "{id}"}, "joined_env": {"CAMERAS": "{id}"}}
    made = claim("u1", result("null", "container-0-request-0"), result("zero", "container-1-request-0"))
    made["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    allocate(cluster, made)
    async with node.running(resource("null", "zero", **keys)), Kubelet(node.socket) as kubelet:
        assert len(await kubelet.prepared("u1")) == 2
    spec = json.loads((node.folder / "cdi" / "node-device-plugin-claim_u1.json").read_text())
    assert [each["containerEdits"]["env"] for each in spec["devices"]] == [
        ["CAMERA_0=null", "CAMERAS=null"],
        ["CAMERA_0=zero", "CAMERAS=zero"],
    ]


async def test_two_shares_of_a_device_are_named_and_counted_once(node: Node, cluster: FakeApi) -> None:
    keys = {"env": {"CAMERA_{index}": "{id}"}, "joined_env": {"CAMERAS": "{id}"}, "replicas": 2}
    shares = result("null::0", "a"), result("null::1", "a"), result("zero::1", "a"), result("zero::0", "b")
    allocate(cluster, claim("u1", *shares))
    async with node.running(resource("null", "zero", **keys)), Kubelet(node.socket) as kubelet:
        assert await kubelet.prepared("u1") == [
            [f"{CAMERA}=null", "nodedevices.kubernetes/claim=u1-a"],
            [],
            [f"{CAMERA}=zero"],
            # A container may use one request alone.
            [f"{CAMERA}=zero", "nodedevices.kubernetes/claim=u1-b"],
            ["nodedevices.kubernetes/claim=u1-ALL"],
        ]
    spec = json.loads((node.folder / "cdi" / "node-device-plugin-claim_u1.json").read_text())
    assert {each["name"]: each["containerEdits"]["env"] for each in spec["devices"]} == {
        "u1-a": ["CAMERA_0=null", "CAMERA_1=zero", "CAMERAS=null,zero"],
        "u1-b": ["CAMERA_1=zero", "CAMERAS=zero"],
        "u1-ALL": ["CAMERAS=null,zero"],
    }


async def test_a_share_has_one_claim_and_a_change_of_shares_waits_for_it(node: Node, cluster: FakeApi) -> None:
    """A scheduler could allocate the device once more (kubernetes/kubernetes#140798)."""
    shared = {number: resource("null", replicas=number) for number in (1, 2, 3)}
    for uid, device in {"u0": "null::0", "u1": "null::1", "u2": "null::2", "v2": "null::2", "w": "null"}.items():
        allocate(cluster, claim(uid, result(device)))
    async with node.running(shared[3]) as plugin, Kubelet(node.socket) as kubelet:
        await kubelet.prepared("u0")
        await kubelet.prepared("u2")
        assert "(example.com/camera=null::2): is still prepared for claim default/claim-u2" in await kubelet.refused(
            "v2"
        )
        (holding,) = [each for each in (await plugin.frontend.held((), ())).holdings if each.held_id.endswith("2")]
        assert (holding.held_id.device_ids, holding.is_share) == (("null::2", "null"), True)
        await plugin.apply(shared[2])
        await plugin.resources.ask_for_holders()
        assert "held by another pod or claim" in await kubelet.refused("u1")
        await plugin.apply(shared[1])
        await plugin.resources.ask_for_holders()
        assert "held by another pod or claim as example.com/camera" in await kubelet.refused("w")
        # The claim keeps its share meanwhile.
        await kubelet.prepared("u2")
        await plugin.apply(shared[2])
        await kubelet.unprepare(asked("u2"))
        await plugin.resources.ask_for_holders()
        await kubelet.prepared("u1")
        await plugin.apply(shared[1])
        await kubelet.unprepare(asked("u0"))
        await plugin.resources.ask_for_holders()
        assert "held by another pod or claim" in await kubelet.refused("w")
        await kubelet.unprepare(asked("u1"))
        await plugin.resources.ask_for_holders()
        await kubelet.prepared("w")
        # A whole device leaves no share.
        await plugin.apply(shared[2])
        await plugin.resources.ask_for_holders()
        assert "held by another pod or claim" in await kubelet.refused("u0")


@pytest.mark.parametrize(
    ("held", "replicas", "is_free"),
    [("null", 2, False), ("null::2", 2, False), ("null::1", 2, True), ("null::0", 2, False), ("null::0", 1, False)],
)
def test_what_a_share_keeps_out_before_holders_are_asked(held: str, replicas: int, is_free: bool) -> None:
    (camera,) = parse_resources([resource("null", replicas=replicas, api="dra")])
    listed_id = "null" if replicas == 1 else "null::0"
    offered = Offered(camera, camera.devices[0], 0, listed_id, None)
    other = PreparedClaim(
        ClaimId("o", "default", "o"), "d", (PreparedDevice("r", "p", "n", CAMERA, held, (), (), False),), {}
    )
    given = claim("u1", result("null"))
    planning = functools.partial(
        plan, ClaimId("u1", "default", "claim-u1"), given, "dra.example.com", lambda _pool, _name: offered, [other], str
    )
    if is_free:
        assert planning().devices[0].device_id == "null::0"
    else:
        with pytest.raises(Held):
            planning()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (None, "claim default/claim-u1: does not exist in the API server"),
        (
            claim("u2", result("null"), name="claim-u1"),
            "claim default/claim-u1: has the uid u2 in the API server, but the kubelet asks for u1",
        ),
        (claim("u1"), "claim default/claim-u1: is not allocated"),
        (
            claim("u1", result("gone")),
            "claim default/claim-u1, request cam, device gone of pool w1/camera.example.com: this node offers no such "
            "device: delete the pod, so that it gets another device",
        ),
        (
            claim("u1", result("null"), result("zero", "second")),
            "claim default/claim-u1, request second, device zero of pool w1/camera.example.com "
            "(example.com/camera=zero): it fell off",
        ),
        (
            claim(
                "u1",
                result("null", "cam/first"),
                config=[{"source": "FromClass", "requests": ["cam"], "opaque": {"driver": "dra.example.com"}}],
            ),
            "claim default/claim-u1, request cam: the DeviceClass has opaque parameters for the driver "
            "dra.example.com, which knows none: remove them",
        ),
        (
            claim("u1", result("null"), config=[{"source": "FromClaim", "opaque": {"driver": "dra.example.com"}}]),
            "claim default/claim-u1, request cam: the claim has opaque parameters for the driver dra.example.com, "
            "which knows none: remove them",
        ),
    ],
)
async def test_what_cannot_be_prepared_is_refused_with_the_reason(
    node: Node, cluster: FakeApi, made: Any, reason: str
) -> None:
    if made:
        allocate(cluster, made)
    async with node.running(resource("null", "zero")) as plugin, Kubelet(node.socket) as kubelet:
        plugin.set_reasons(zero="it fell off")
        assert await kubelet.refused("u1") == reason
    assert node.specs == []


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (["metadata"], None, "metadata must be an object"),
        (["metadata", "uid"], 1, "metadata.uid must be text"),
        (["status"], [], "status must be an object"),
        (["status", "allocation"], "all", "status.allocation must be an object"),
        (["status", "allocation", "devices"], [], "status.allocation.devices must be an object"),
        ([*RESULTS], {}, "status.allocation.devices.results must be a list"),
        ([*RESULTS, 0], "null", "status.allocation.devices.results[0] must be an object"),
        ([*RESULTS, 1, "driver"], None, "status.allocation.devices.results[1].driver must be text"),
        ([*RESULTS, 0, "request"], None, "status.allocation.devices.results[0].request must be text"),
        ([*RESULTS, 0, "pool"], ["p"], "status.allocation.devices.results[0].pool must be text"),
        ([*RESULTS, 0, "device"], None, "status.allocation.devices.results[0].device must be text"),
        ([*RESULTS, 0, "adminAccess"], "no", "status.allocation.devices.results[0].adminAccess must be true or false"),
        ([*CONFIG], {}, "status.allocation.devices.config must be a list"),
        ([*CONFIG, 0], [], "status.allocation.devices.config[0] must be an object"),
        ([*CONFIG, 0, "opaque"], "x", "status.allocation.devices.config[0].opaque must be an object"),
        ([*CONFIG, 0, "requests"], "cam", "status.allocation.devices.config[0].requests must be a list"),
    ],
)
async def test_a_malformed_claim_is_refused_with_its_field(
    node: Node, cluster: FakeApi, path: list[Any], value: Any, reason: str
) -> None:
    made = claim("u1", result("null"), result("gpu", driver="vendor.example.com"))
    made["status"]["allocation"]["devices"]["config"] = [{"opaque": {"driver": "dra.example.com"}, "requests": ["x"]}]
    inner: Any = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    cluster.claims["default/claim-u1"] = made
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        assert (
            await kubelet.refused("u1") == f"claim default/claim-u1: is malformed in the API server's answer: {reason}"
        )
    assert node.specs == []


async def test_a_device_that_is_unplugged_between_allocation_and_preparation(node: Node, cluster: FakeApi) -> None:
    allocate(cluster, claim("u1", result("front")))
    path = node.folder / "camera"
    path.symlink_to("/dev/null")
    cameras = {"name": CAMERA, "devices": [{"id": "front", "nodes": [{"path": str(path)}]}]}
    async with node.running(cameras) as plugin, Kubelet(node.socket) as kubelet:
        path.unlink()
        await plugin.resources.check()
        assert await kubelet.refused("u1") == (
            "claim default/claim-u1, request cam, device front of pool w1/camera.example.com "
            f"(example.com/camera=front): {path}: No such file or directory"
        )
        path.symlink_to("/dev/null")
        await plugin.resources.check()
        await kubelet.prepared("u1")
        # The kubelet learns the state of a device that a claim has by the health stream.
        path.unlink()
        await plugin.resources.check()
        await kubelet.prepared("u1")


async def test_parameters_for_others_are_not_ours(node: Node, cluster: FakeApi) -> None:
    config = [
        {"source": "FromClaim", "requests": ["gpu"], "opaque": {"driver": "dra.example.com"}},
        {"source": "FromClaim", "requests": ["cam/second"], "opaque": {"driver": "dra.example.com"}},
        {"source": "FromClaim", "opaque": {"driver": "vendor.example.com"}},
        {"source": "FromClaim"},
    ]
    allocate(cluster, claim("u1", result("null", "cam/first"), config=config))
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        assert await kubelet.prepared("u1") == [[f"{CAMERA}=null"]]


async def test_a_claim_that_fails_spoils_no_other(node: Node, cluster: FakeApi) -> None:
    allocate(cluster, claim("u1", result("null")))
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        answers = await kubelet.prepare(asked("missing"), asked("u1"), api.Claim(uid="../u2", name="n", namespace="d"))
        assert {uid: each.error for uid, each in answers.items()} == {
            "u1": "",
            "missing": "claim default/claim-missing: does not exist in the API server",
            "../u2": "claim d/n: '../u2' is no uid",
        }
        assert await kubelet.unprepare(api.Claim(uid="../u2")) == {"../u2": ""}


async def test_a_device_has_one_claim_until_it_is_released(
    node: Node, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler may allocate a device again while its node has not released it (kubernetes/kubernetes#141471)."""
    delay(monkeypatch, "read", after=0.02)
    allocate(cluster, *(claim(f"u{number}", result("null")) for number in range(10)))
    allocate(cluster, *(claim(uid, result("null", adminAccess=True)) for uid in ("admin", "other-admin")))
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        # An administrator's claim neither needs a free device nor takes it.
        assert await kubelet.prepared("admin") == [[f"{CAMERA}=null"]]
        answers = await kubelet.prepare(*(asked(f"u{number}") for number in range(10)))
        (winner,) = (uid for uid, answer in answers.items() if not answer.error)
        assert {answer.error for uid, answer in answers.items() if uid != winner} == {
            f"claim default/claim-{uid}, request cam, device null of pool w1/camera.example.com "
            f"(example.com/camera=null): is still prepared for claim default/claim-{winner}, which the kubelet has not "
            "released yet: end the pods of that claim. If none is left after some minutes, remove "
            f"{node.folder}/cdi/{RECORDS}/{winner}.json on the node"
            for uid in answers
            if uid != winner
        }
        assert await kubelet.prepared("other-admin") == [[f"{CAMERA}=null"]]
        await kubelet.unprepare(asked(winner))
        (loser,) = list(answers.keys() - {winner})[:1]
        assert await kubelet.prepared(loser) == [[f"{CAMERA}=null"]]


async def test_ten_claims_at_once(node: Node, cluster: FakeApi) -> None:
    async with node.running(allocated(cluster, range(10))), Kubelet(node.socket) as kubelet:
        answers = await asyncio.gather(*(kubelet.prepared(f"u{number}") for number in range(10)))
        assert answers == [[[f"{CAMERA}=d{number}"]] for number in range(10)]
        errors = await kubelet.unprepare(*(asked(f"u{number}") for number in range(10)))
        assert set(errors.values()) == {""}
    assert os.listdir(node.folder / "cdi") == []


async def test_without_an_api_server_the_kubelet_tries_again(
    short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving() as away:
        node = Node(short_path, away)
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        # The event of a pod shows this to its user, who must not learn the cluster's addresses and paths.
        assert await kubelet.refused("u1") == UNREAD
        assert f"the API server {away.address} does not answer" in caplog.text
        # The kubeconfig is read again after a failure.
        with serving() as cluster:
            node.write_kubeconfig(cluster.address)
            allocate(cluster, claim("u1", result("null")))
            assert await kubelet.prepared("u1") == [[f"{CAMERA}=null"]]


async def test_credentials_are_read_again_after_a_minute(
    node: Node, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate(cluster, claim("u1", result("null")))
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        await kubelet.prepared("u1")
        node.write_kubeconfig("ftp://nowhere")
        await kubelet.prepared("u1")
        monkeypatch.setattr(preparing, "_FRESH", 0.0)
        assert await kubelet.refused("u1") == UNREAD


def allocated(cluster: FakeApi, numbers: Iterable[int]) -> dict[str, Any]:
    """Allocate a device to each of many claims; returns the resource of these devices."""
    allocate(cluster, *(claim(f"u{number}", result(f"d{number}")) for number in numbers))
    devices = [{"id": f"d{number}", "nodes": [{"path": f"/dev/d{number}", "host_path": FREE}]} for number in numbers]
    return {"name": CAMERA, "devices": devices}


def hanging(cluster: FakeApi) -> tuple[threading.Event, list[str]]:
    """Let the server answer for claims only after the event. The list gets the path of each request."""
    goes_on = threading.Event()
    asking: list[str] = []

    def slow(_method: str, path: str) -> None:
        if "/resourceclaims/" in path:
            asking.append(path)
            assert goes_on.wait(30)

    cluster.refuse = slow
    return goes_on, asking


async def test_a_slow_api_server_keeps_few_threads(node: Node, cluster: FakeApi) -> None:
    """Also if the kubelet no longer waits: the thread of a call goes on."""
    numbers = range(40)
    cameras, (goes_on, asking) = allocated(cluster, numbers), hanging(cluster)
    try:
        async with node.running(cameras), Kubelet(node.socket) as kubelet:
            for _ in range(2):
                waiting = asyncio.ensure_future(kubelet.prepare(*(asked(f"u{number}") for number in numbers)))
                await until(lambda: len(asking) >= preparing._MOST_CALLS)
                await asyncio.sleep(0.3)
                waiting.cancel()
                await asyncio.wait([waiting])
            assert len(asking) == preparing._MOST_CALLS
            goes_on.set()
            answers = await kubelet.prepare(*(asked(f"u{number}") for number in numbers))
            assert {answer.error for answer in answers.values()} == {""}
    finally:
        goes_on.set()


async def test_many_claims_at_once_wait_for_a_slow_api_server_and_slow_files(
    node: Node, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call hangs, so none is refused because others do."""
    numbers = range(24)
    cameras = allocated(cluster, numbers)
    write, one_at_a_time = Records.write, threading.Lock()

    def slow_write(*given: Any) -> None:
        with one_at_a_time:
            time.sleep(0.1)
        write(*given)

    def slow(_method: str, path: str) -> None:
        if "/resourceclaims/" in path:
            time.sleep(0.15)

    monkeypatch.setattr(Records, "write", slow_write)
    cluster.refuse = slow
    async with node.running(cameras), Kubelet(node.socket) as kubelet:
        answers = await kubelet.prepare(*(asked(f"u{number}") for number in numbers))
        assert {answer.error for answer in answers.values()} == {""}


async def test_a_claim_waits_while_calls_go_on_for_which_nobody_waits(node: Node, cluster: FakeApi) -> None:
    numbers = range(preparing._MOST_CALLS + 1)
    cameras, (goes_on, asking) = allocated(cluster, numbers), hanging(cluster)
    try:
        async with node.running(cameras), Kubelet(node.socket) as kubelet:
            *left, last = (asked(f"u{number}") for number in numbers)
            leaving = asyncio.ensure_future(kubelet.prepare(*left))
            await until(lambda: len(asking) == preparing._MOST_CALLS)
            leaving.cancel()
            await asyncio.wait([leaving])
            waiting = asyncio.ensure_future(kubelet.prepare(last))
            await asyncio.sleep(0.5)
            assert not waiting.done()
            goes_on.set()
            assert (await waiting)[last.uid].error == ""
    finally:
        goes_on.set()


async def test_an_api_server_that_answers_too_late_counts_as_away(
    node: Node, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(preparing, "_LONGEST_CALL", 0.1)
    allocate(cluster, claim("u1", result("null")))
    goes_on = threading.Event()

    def slow(_method: str, path: str) -> None:
        if "/resourceclaims/" in path:
            goes_on.wait(20)

    cluster.refuse = slow
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        # More calls than may be under way at once.
        for _ in range(preparing._MOST_CALLS + 1):
            assert await kubelet.refused("u1") == UNREAD
        assert "the call of the API server did not answer in 0.1 s" in caplog.text
        goes_on.set()
        monkeypatch.undo()
        # The threads of the calls end one after the other.
        while (await kubelet.prepare(asked("u1")))["u1"].error:
            await asyncio.sleep(0.01)
        await kubelet.prepared("u1")


async def test_a_call_that_ends_before_the_api_server_answers_leaves_nothing(node: Node, cluster: FakeApi) -> None:
    """Nobody would release the claim: its thread goes on after the release."""
    allocate(cluster, claim("u1", result("null")), claim("u2", result("null")))
    is_asked, goes_on = threading.Event(), threading.Event()

    def slow(_method: str, path: str) -> None:
        if "/resourceclaims/" in path:
            is_asked.set()
            goes_on.wait(20)

    cluster.refuse = slow
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        ending = asyncio.ensure_future(kubelet.prepare(asked("u1")))
        await until(is_asked.is_set)
        await asyncio.sleep(0.3)
        ending.cancel()
        await asyncio.wait([ending])
        assert await kubelet.unprepare(asked("u1")) == {"u1": ""}
        goes_on.set()
        await asyncio.sleep(0.3)
        assert not [each for each in node.specs if each.endswith(".json")]
        assert await kubelet.prepared("u2") == [[f"{CAMERA}=null"]]


async def test_an_api_server_that_is_slower_than_a_file_system_may_be(node: Node, cluster: FakeApi) -> None:
    """A file system hangs after the 2 s of these tests, an API server does not."""
    allocate(cluster, claim("u1", result("null")))

    def slow(_method: str, path: str) -> None:
        if "/resourceclaims/" in path:
            time.sleep(2.5)

    cluster.refuse = slow
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        assert await kubelet.prepared("u1") == [[f"{CAMERA}=null"]]


async def test_a_claim_that_the_kubelet_has_not_released_keeps_its_device(node: Node, cluster: FakeApi) -> None:
    """After a forced deletion, neither the cluster nor the kubelet tells of a container that still runs."""
    allocate(cluster, claim("u1", result("null")), claim("u2", result("null")))
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        await kubelet.prepared("u1")
        del cluster.claims["default/claim-u1"]
        assert (await kubelet.refused("u2")).endswith(
            "is still prepared for claim default/claim-u1, which the kubelet has not released yet: end the pods of "
            f"that claim. If none is left after some minutes, remove {node.folder}/cdi/{RECORDS}/u1.json on the node"
        )
        os.unlink(node.folder / "cdi" / RECORDS / "u1.json")
        assert await kubelet.prepared("u2") == [[f"{CAMERA}=null"]]


async def test_an_answer_names_no_claim_of_another_namespace(
    node: Node, cluster: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    """Users see the answer in the events of their pods."""
    allocate(cluster, claim("u1", result("null")))
    cluster.claims["secret/name"] = claim("u2", result("null"), name="name")
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        await kubelet.prepare(api.Claim(uid="u2", namespace="secret", name="name"))
        assert (await kubelet.refused("u1")) == (
            "claim default/claim-u1, request cam, device null of pool w1/camera.example.com (example.com/camera=null): "
            "is still prepared for a claim of another namespace, which the kubelet has not released yet; see the "
            "plugin's log on the node"
        )
    (message,) = (each for each in caplog.messages if each.startswith("a claim of another namespace has the device"))
    assert "is still prepared for claim secret/name" in message
    assert f"{node.folder}/cdi/{RECORDS}/u2.json" in message


async def test_the_command_does_not_run_for_an_administrator(node: Node, cluster: FakeApi) -> None:
    allocate(cluster, claim("u1", result("null", adminAccess=True), result("zero")))
    cameras = resource("null", "zero", pre_start=counting(node.folder))
    async with node.running(cameras), Kubelet(node.socket) as kubelet:
        await kubelet.prepared("u1")
    assert (node.folder / "ran").read_text() == "zero\n"


def counting(folder: Path, then: str = "") -> dict[str, Any]:
    """A command that notes each device; then: what else it does."""
    return {"command": ["/bin/sh", "-c", f'echo "$DEVICE_ID" >> {folder}/ran; {then}'], "timeout": 20}


async def test_the_command_runs_once_before_the_claim_is_prepared(node: Node, cluster: FakeApi) -> None:
    allocate(cluster, claim("u1", result("null"), result("zero")))
    ran = node.folder / "ran"
    cameras = resource("null", "zero", pre_start=counting(node.folder, f"sleep 0.1; test ! -e {node.folder}/bad"))
    (node.folder / "bad").touch()
    async with node.running(cameras), Kubelet(node.socket) as kubelet:
        error = await kubelet.refused("u1")
        said = (
            "claim default/claim-u1, request cam, example.com/camera: pre_start failed: device {}: /bin/sh ended with 1"
        )
        assert error.startswith(said.format("null"))
        assert "; device zero: /bin/sh ended with 1" in error
        assert node.specs == [f"{RECORDS}/u1.begun"]
        (node.folder / "bad").unlink()
        ran.unlink()
        # Calls for one claim wait for each other.
        await asyncio.gather(*(kubelet.prepared("u1") for _ in range(10)))
        assert sorted(ran.read_text().split()) == ["null", "zero"]
        await kubelet.unprepare(asked("u1"))
        await kubelet.prepared("u1")
        assert sorted(ran.read_text().split()) == ["null", "null", "zero", "zero"]


async def test_a_device_that_is_offered_anew_does_not_come_without_its_command(
    node: Node, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate(cluster, claim("u1", result("null")))
    find, looks = DraFrontend._find, []

    def once(self: DraFrontend, pool: str, name: str) -> Any:
        looks.append(name)
        return find(self, pool, name) if len(looks) != 2 else None

    monkeypatch.setattr(DraFrontend, "_find", once)
    async with node.running(resource("null", pre_start=counting(node.folder))), Kubelet(node.socket) as kubelet:
        assert "null of w1/camera.example.com changes now" in await kubelet.refused("u1")
        assert node.specs == []
        await kubelet.prepared("u1")
        assert (node.folder / "ran").read_text() == "null\n"


def test_a_plan_that_hangs_keeps_no_other_thread() -> None:
    """Releases need these threads."""
    calls = BoundedCalls(limit=0.05)
    hangs = preparing.Preparing(
        DraDriver(), lambda *_names: None, lambda: pytest.fail("asked"), calls, os.path.realpath
    )
    with hangs._planning, pytest.raises(RecordError, match="another call reads the records"), hangs._alone():
        pass
    with hangs._alone():
        pass


async def test_a_device_is_taken_while_its_command_runs_and_a_call_that_ends_leaves_nothing(
    node: Node, cluster: FakeApi
) -> None:
    allocate(cluster, claim("u1", result("null")), claim("u2", result("null")))
    cameras = resource("null", pre_start=counting(node.folder, f"test -e {node.folder}/quick || exec sleep 60"))
    async with node.running(cameras), Kubelet(node.socket) as kubelet:
        waiting = asyncio.ensure_future(kubelet.prepare(asked("u1")))
        await until((node.folder / "ran").exists)
        assert "is still prepared for claim default/claim-u1" in await kubelet.refused("u2")
        # As after the kubelet's 45 s.
        waiting.cancel()
        (node.folder / "quick").touch()
        await asyncio.wait([waiting])
        assert await asyncio.wait_for(kubelet.prepared("u1"), 10) == [[f"{CAMERA}=null"]]
        assert node.specs == [f"{RECORDS}/u1.json"]


async def test_a_release_by_another_instance_while_the_command_runs(node: Node, cluster: FakeApi) -> None:
    node.overlaps = True
    allocate(cluster, claim("u1", result("null")))
    cameras = resource(
        "null", pre_start=counting(node.folder, f"while ! test -e {node.folder}/end; do sleep 0.1; done")
    )
    async with contextlib.AsyncExitStack() as stack:
        sockets: list[str] = []
        for _instance in range(2):
            await stack.enter_async_context(node.running(cameras))
            found = (str(each) for each in (node.folder / "plugins_registry").iterdir())
            sockets += set(found).difference(sockets)
        old, new = [await stack.enter_async_context(Kubelet(each)) for each in sockets]
        waiting = asyncio.ensure_future(old.refused("u1"))
        await until((node.folder / "ran").exists)
        assert await new.unprepare(asked("u1")) == {"u1": ""}
        (node.folder / "end").touch()
        assert "claim default/claim-u1: was released while it was prepared" in await waiting
        assert not [each for each in node.specs if each.endswith(".json")]
        await new.prepared("u1")


async def test_a_call_that_ends_while_it_is_recorded_has_its_devices(
    node: Node, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate(cluster, claim("u1", result("null")), claim("u2", result("null")))
    writes = delay(monkeypatch, "write", before=0.3)
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        ending = asyncio.ensure_future(kubelet.prepare(asked("u1")))
        await until(lambda: writes)
        ending.cancel()
        await asyncio.wait([ending])
        assert "is still prepared for claim default/claim-u1" in await kubelet.refused("u2")
        assert await kubelet.prepared("u1") == [[f"{CAMERA}=null"]]


async def test_a_restart_keeps_what_claims_have(node: Node, cluster: FakeApi) -> None:
    allocate(cluster, claim("u1", result("null")), claim("u2", result("null")))
    before = resource("null", cdi_kind="example.com/before", env={"CAMERA": "{path}"})
    names = [["example.com/before=null", "nodedevices.kubernetes/claim=u1-cam"]]
    async with node.running(before), Kubelet(node.socket) as kubelet:
        assert await kubelet.prepared("u1") == names
    spec = node.folder / "cdi" / "node-device-plugin-claim_u1.json"
    text = spec.read_text()
    spec.unlink()
    async with node.running(resource("null")) as plugin, Kubelet(node.socket) as kubelet:
        # The names of a claim never change, and its spec is there again.
        assert await kubelet.prepared("u1") == names
        assert spec.read_text() == text
        assert "is still prepared for claim default/claim-u1" in await kubelet.refused("u2")
        held = await plugin.frontend.held([], [])
        (holding,) = held.holdings
        assert holding == ("claim default/claim-u1", CAMERA, "null", frozenset({"/dev/null"}), False, True, DRA)
        assert (held.device_ids, held.is_by_kubelet) == (frozenset({"null"}), True)
        # The allocation changed without a release.
        allocate(cluster, claim("u1", result("zero")))
        assert await kubelet.refused("u1") == (
            "claim default/claim-u1: is prepared with other devices than are allocated now: delete its pods, so that "
            "the kubelet releases the devices"
        )


async def test_a_removed_resource_can_be_released_and_its_pods_go_on(node: Node, cluster: FakeApi) -> None:
    allocate(cluster, claim("u1", result("null")), claim("u2", result("null")))
    async with node.running(resource("null")) as plugin, Kubelet(node.socket) as kubelet:
        await kubelet.register()
        names = await kubelet.prepared("u1")
        await plugin.apply()
        assert await kubelet.prepared("u1") == names
        assert "this node offers no such device" in await kubelet.refused("u2")
        assert plugin.frontend.status(CAMERA).is_registered
        assert is_needed(node.configuration())
        await kubelet.unprepare(asked("u1"))
        await plugin.resources.ask_for_holders()
        assert not plugin.frontend.status(CAMERA).is_registered
        assert not is_needed(node.configuration())


async def test_a_record_that_nobody_can_read_keeps_its_devices(node: Node, cluster: FakeApi) -> None:
    allocate(cluster, claim("u1", result("null")), claim("u2", result("zero")))
    async with node.running(resource("null", "zero")) as plugin, Kubelet(node.socket) as kubelet:
        await kubelet.prepared("u1")
        record = node.folder / "cdi" / RECORDS / "u1.json"
        for text, why in (
            ('{"version": 2}', "has version 2, and this plugin knows version 1"),
            ("{}", "has no 'version'"),
            ("[", "Expecting value"),
        ):
            record.write_text(text)
            said = f"cannot read which devices a claim has: {record}: {why}"
            error = await kubelet.refused("u2")
            assert error.startswith(f"claim default/claim-u2: cannot record what it has: {said}")
            assert error.endswith(": end the pods with claims on this node, then remove this file")
            with pytest.raises(HoldersUnknown, match="cannot read which devices a claim has"):
                await plugin.frontend.held([], [])
            assert not await plugin.frontend.withdraw(CAMERA, {})
        assert await kubelet.unprepare(asked("u1")) == {"u1": ""}
        assert await plugin.frontend.withdraw(CAMERA, {})


async def test_the_kubelet_is_told_if_a_record_cannot_be_written(
    node: Node, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocate(cluster, claim("u1", result("null")))
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        await kubelet.prepared("u1")
        (node.folder / "cdi").rename(node.folder / "other")
        (node.folder / "cdi").touch()
        assert "claim default/claim-u1: cannot record what it has: " in await kubelet.refused("u1")
        assert "claim default/claim-u1: cannot release what it has: " in (await kubelet.unprepare(asked("u1")))["u1"]


async def test_the_scanner_learns_at_once_what_a_claim_got(node: Node, cluster: FakeApi) -> None:
    allocate(cluster, claim("u1", result("null")))
    async with node.running(resource("null")) as plugin, Kubelet(node.socket) as kubelet:
        await kubelet.prepared("u1")
        assert not plugin.scanner.given.is_judged
        assert (ServedKey(DRA, CAMERA), HeldId("null")) in plugin.scanner.given._allocated
