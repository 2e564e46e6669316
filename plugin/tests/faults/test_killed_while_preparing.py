"""The plugin is killed at each step of preparing a claim, and starts again: the kubelet's next try succeeds."""

from pathlib import Path
from typing import Any

from node_device_plugin.kubelet.plugin_watcher import remove_stale_sockets
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import dra_v1_pb2 as api

from ..kubelet.dra.fake_api import serving
from ..kubelet.dra.node import Kubelet, Node, asked, claim, resource, result
from .process import plugin_process

_READY = "waiting for the kubelet to find the socket"


async def test_a_claim_is_prepared_after_a_kill_at_any_step(short_path: Path) -> None:
    with serving() as cluster:
        cluster.claims["default/claim-u1"] = claim("u1", result("null"))
        node = Node(short_path, cluster)
        cameras = resource("null", env={"CAMERA_{index}": "{path}"})
        answers: list[Any] = []
        step, is_killed = 0, True
        while is_killed:
            environment = {"KILLED_AT": str(step)}
            async with plugin_process(
                short_path, node.settings(cameras), f"killed-{step}", "tests.faults.killed_while_preparing", environment
            ) as plugin:
                await plugin.until_said(_READY)
                async with Kubelet(node.socket) as kubelet:
                    try:
                        await kubelet.prepare(asked("u1"))
                        is_killed = False
                    except grpc.aio.AioRpcError:
                        assert await plugin.process.wait() == -9
            remove_stale_sockets(str(short_path))
            async with node.running(cameras), Kubelet(node.socket) as kubelet:
                answers.append((await kubelet.prepare(asked("u1")))["u1"])
                prepared = node.specs
                assert await kubelet.unprepare(asked("u1")) == {"u1": ""}
            assert {name for name in prepared if not Path(name).name.startswith(".")} == {
                "node-device-plugin-claim_u1.json",
                "node-device-plugin-claims/u1.json",
            }
            assert node.specs == []
            step += 1
        # The request, the changes of directories, and the answer.
        assert step > 6
        names = ["example.com/camera=null", "nodedevices.kubernetes/claim=u1-cam"]
        device = api.Device(
            request_names=["cam"], pool_name="w1/camera.example.com", device_name="null", cdi_device_ids=names
        )
        assert answers == [api.NodePrepareResourceResponse(devices=[device])] * step
