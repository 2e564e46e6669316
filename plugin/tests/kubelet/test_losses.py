"""Which expected devices are lost: those of pods, those that a number requires, and requests that got nothing."""

import json
from pathlib import Path
from typing import Any, Optional

import pytest

from node_device_plugin.kubelet.losses import REQUESTS_FILE, Loss, Offer, losses, offers_of, requested, unserved
from node_device_plugin.kubelet.queries import HeldDevice, Holders
from node_device_plugin.runtime.errors import CriError
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import cri_v1_pb2 as cri

GPU = "example.com/gpu"
NAME = "nvidia.com/gpu=GPU-1"


def holding(device: str, **others: Any) -> Holders:
    held = HeldDevice(GPU, device, "default", "app", "main", **others)
    return Holders("kubelet", (held,))


async def lost(reasons: dict[str, Optional[str]], holders: Holders, *dirs: str, minimum: int = 0) -> list[str]:
    found = await losses([Offer(GPU, minimum, reasons)], holders, (), dirs)
    assert all(loss.fails and loss.resource == GPU for loss in found)
    return [loss.text for loss in found]


@pytest.mark.parametrize("share", ["GPU-1", "GPU-1::3"])
async def test_a_held_device_that_is_offered_is_lost_if_it_has_a_reason(share: str) -> None:
    assert await lost({"GPU-1": None}, holding(share)) == []
    says = f"{share}: default/app holds it, but it is lost: its link now leads to /dev/sdb"
    assert await lost({"GPU-1": "its link now leads to /dev/sdb"}, holding(share)) == [says]


async def test_a_held_device_that_nobody_finds_is_lost_if_its_name_or_path_is_gone(tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.touch()
    edits = {"deviceNodes": [{"path": "/dev/zero"}]}
    spec = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": "GPU-1", "containerEdits": edits}]}
    (tmp_path / "nvidia.json").write_text(json.dumps(spec))
    dirs = str(tmp_path)
    # Its declaration is gone, or excludes it now; the pod's device is what it was.
    assert await lost({}, holding("GPU-1", cdi_names=(NAME,), all_host_paths=(str(node),)), dirs) == []
    begins = "GPU-1: default/app holds it, but it is lost: the plugin no longer finds the device, and "
    gone = holding("GPU-1", cdi_names=(NAME,), all_host_paths=(str(node / "x"),))
    assert await lost({}, gone, dirs) == [f"{begins}{node / 'x'} does not exist"]
    (tmp_path / "nvidia.json").unlink()
    held = holding("GPU-1", cdi_names=(NAME,), all_host_paths=(str(node),))
    assert await lost({}, held, dirs) == [f"{begins}the CDI name {NAME} is in no valid spec of {tmp_path}"]
    # Without directories, nobody knows what the runtime reads.
    assert await lost({}, held) == []


async def test_of_a_containers_names_only_those_of_the_device_count(tmp_path: Path) -> None:
    edits = {"deviceNodes": [{"path": "/dev/zero"}]}
    spec = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": [{"name": "GPU-1", "containerEdits": edits}]}
    (tmp_path / "nvidia.json").write_text(json.dumps(spec))
    both = (NAME, "nvidia.com/gpu=GPU-2")
    assert await lost({}, holding("GPU-1", cdi_names=both), str(tmp_path)) == []
    assert len(await lost({}, holding("GPU-2", cdi_names=both), str(tmp_path))) == 1


async def test_other_resources_and_ended_pods_of_a_checkpoint_are_nobodys_loss() -> None:
    other = Holders("kubelet", (HeldDevice("other.com/x", "x", "default", "app", "main"),))
    assert await lost({"GPU-1": "gone"}, other) == []
    ended = Holders("kubelet", (HeldDevice(GPU, "GPU-1", "", "2f1c-uid", "main"),))
    assert await lost({"GPU-1": "gone"}, ended) == []
    assert await lost({"GPU-1": "gone"}, holding("GPU-1")._replace(source="checkpoint")) == []


async def test_a_number_that_is_missed_names_what_is_there_and_cannot_be_used() -> None:
    nobody = Holders("kubelet")
    assert await lost({"a": None, "b": None}, nobody, minimum=2) == []
    says = "expected at least 2 devices (min_devices), found 1; b: gone"
    assert await lost({"a": None, "b": "gone"}, nobody, minimum=2) == [says]
    offer = Offer(GPU, 1, {}, {"d%d" % number: "in use by the host" for number in range(7)})
    (loss,) = await losses([offer], nobody, (), ())
    assert loss.text.startswith("expected at least 1 device (min_devices), found 0; d0: in use by the host; d1:")
    assert loss.text.endswith("; d4: in use by the host; and 2 more")


async def test_a_device_that_is_missed_is_a_warning_unless_a_pod_holds_it() -> None:
    offer = Offer(GPU, 0, {"GPU-1": "gone"}, missed={"GPU-1": "gone", "GPU-2": "gone"})
    found = await losses([offer], holding("GPU-1::0"), (), ())
    assert [(each.device, each.fails, each.level) for each in found] == [
        ("GPU-1::0", True, "problem"),
        ("GPU-2", False, "warning"),
    ]
    assert found[1].text == (
        "GPU-2 was offered since the node's boot, and is lost: gone: attach it again, or accept its loss with "
        "node-device-plugin reload --forget-lost"
    )


def test_the_offers_of_an_older_plugin() -> None:
    device = {"id": "a", "state": "unhealthy", "reason": "gone"}
    state = {"resources": [{"name": GPU, "devices": [device], "refused": {"b": "no room"}}]}
    assert offers_of(state) == [Offer(GPU, 0, {"a": "gone"}, {"b": "no room"})]
    device["withheld"] = "yes"
    assert offers_of(state)[0].reasons == {"a": None}


# Requests of pods.


def kept(folder: Path, entries: Any) -> None:
    """As kubelet 1.37.2 writes it: JSON in JSON, beside a checksum."""
    data = json.dumps({"entries": entries})
    (folder / REQUESTS_FILE).write_text(json.dumps({"data": data, "checksum": 1}))


def wants(**limits: str) -> dict[str, Any]:
    both = {name.replace("_", "/").replace("example", "example.com"): value for name, value in limits.items()}
    return {"limits": both, "requests": {"cpu": "1", **both}}


ENTRIES = {
    "uid-1": {"ContainerResources": {"main": wants(example_gpu="2"), "beside": {}, "none": wants(example_gpu="0")}},
    "uid-2": {"ContainerResources": {"main": {"limits": {GPU: "1"}}}, "PodLevelResources": None},
    "uid-3": {"ContainerResources": None},
}


def test_what_the_kubelet_keeps_of_requests(tmp_path: Path) -> None:
    kept(tmp_path, ENTRIES)
    found = {("uid-1", "main"): {GPU: "2"}, ("uid-2", "main"): {GPU: "1"}}
    assert requested(str(tmp_path), [GPU]) == found
    assert requested(str(tmp_path), ["example.com/other"]) == {}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"data": 1}',
        '{"data": "["}',
        '{"data": "[]"}',
        '{"data": "{}"}',
        "[" * 100_000,
        '{"data": "{\\"entries\\": {\\"u\\": 1}}"}',
        '{"data": "{\\"entries\\": {\\"u\\": {\\"ContainerResources\\": 1}}}"}',
    ],
)
def test_another_form_says_nothing(tmp_path: Path, content: str) -> None:
    assert requested(str(tmp_path), [GPU]) == {}
    (tmp_path / REQUESTS_FILE).write_text(content)
    assert requested(str(tmp_path), [GPU]) == {}


class Runtime:
    """A runtime's containers. fails: whether it does not answer."""

    def __init__(self, *names: tuple[str, str, str], fails: bool = False) -> None:
        self.fails = fails
        self.running = [
            cri.Container(
                state=cri.CONTAINER_RUNNING,
                labels={
                    "io.kubernetes.pod.uid": uid,
                    "io.kubernetes.pod.namespace": "default",
                    "io.kubernetes.pod.name": pod,
                    "io.kubernetes.container.name": container,
                },
            )
            for uid, pod, container in names
        ]

    async def __aenter__(self) -> "Runtime":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def containers(self) -> list[cri.Container]:
        if self.fails:
            raise CriError("/none.sock", "list its containers", grpc.StatusCode.UNAVAILABLE, "gone")
        return self.running


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runtime:
    kept(tmp_path, ENTRIES)
    made = Runtime(("uid-1", "hold", "main"), ("uid-1", "hold", "beside"), ("uid-2", "other", "main"))
    monkeypatch.setattr("node_device_plugin.kubelet.losses.CriClient", lambda _socket: made)
    return made


OFFERED = [Offer(GPU, 0, {})]
LISTED = frozenset({("default", "hold", "main"), ("default", "hold", "beside"), ("default", "other", "main")})


async def test_a_running_container_that_requests_and_holds_nothing_is_named(tmp_path: Path, runtime: Runtime) -> None:
    held = HeldDevice(GPU, "GPU-1", "default", "other", "main")
    holders = Holders("kubelet", (held,), containers=LISTED)
    found = await unserved(str(tmp_path), "/none.sock", holders, OFFERED)
    (loss,) = found
    assert await losses([Offer(GPU, 0, {"GPU-1": None})], holders, found, ()) == found
    assert loss == Loss(
        GPU,
        "",
        "default/hold runs without a device: its container main requests 2, but the kubelet gave it none (for example, "
        "its checkpoint was deleted): create the pod again",
    )


async def test_a_pod_that_no_scheduler_placed_has_no_claim(tmp_path: Path, runtime: Runtime) -> None:
    held = HeldDevice(GPU, "GPU-1", "default", "other", "main", claim="default/other-extended-resources-x")
    holders = Holders("kubelet", (held,), containers=LISTED)
    (loss,) = await unserved(str(tmp_path), "/none.sock", holders, [OFFERED[0]._replace(api="dra")])
    assert loss == Loss(
        GPU,
        "",
        "default/hold runs without a device: its container main requests 2, but the resource (api: dra) needs a claim, "
        "which only the scheduler makes: create the pod again without spec.nodeName, and not as a static pod",
        fails=False,
    )


async def test_what_the_kubelet_does_not_list_or_what_has_ended_lacks_nothing(tmp_path: Path, runtime: Runtime) -> None:
    root, socket = str(tmp_path), "/none.sock"
    # An init container, whose devices the next container gets, and a pod that has ended.
    assert await unserved(root, socket, Holders("kubelet", containers=frozenset()), OFFERED) == []
    holders = Holders("kubelet", containers=LISTED)
    assert len(await unserved(root, socket, holders, OFFERED)) == 2
    for each in runtime.running:
        each.state = cri.CONTAINER_EXITED
    assert await unserved(root, socket, holders, OFFERED) == []


async def test_without_answers_nobody_is_accused(tmp_path: Path, runtime: Runtime) -> None:
    holders = Holders("kubelet", containers=LISTED)
    assert await unserved(str(tmp_path), "/none.sock", holders._replace(source="checkpoint"), OFFERED) == []
    assert await unserved(str(tmp_path), "/none.sock", holders, []) == []
    runtime.fails = True
    assert await unserved(str(tmp_path), "/none.sock", holders, OFFERED) == []
