"""Limits, preferences, resets and device nodes as pods meet them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubelet_stand_in import PodRejected, StandInKubelet
from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.kubelet.device_plugin.kubelet_socket import KubeletSocket
from node_device_plugin.kubelet.device_plugin.registration import Registration
from node_device_plugin.kubelet.device_plugin.server import DevicePluginServer

NAME = "example.com/dev"


@contextlib.asynccontextmanager
async def serving(folder: Path, **keys: Any) -> AsyncIterator[StandInKubelet]:
    """A kubelet with one resource of three devices, registered."""
    devices = [{"id": name, "nodes": [{"path": "/dev/" + name}]} for name in ("d0", "d1", "d2")]
    (resource,) = parse_resources([{"name": NAME, "devices": devices, **keys}])
    table = DeviceTable(resource)
    table.update({device.id: None for device in resource.devices})
    async with StandInKubelet(str(folder / "dp")) as kubelet:
        task = asyncio.create_task(Registration(DevicePluginServer(table), KubeletSocket(kubelet.directory)).run())
        try:
            await kubelet.registered(NAME)
            yield kubelet
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_pod_that_asks_for_more_than_the_limit_is_rejected_and_told_why(short_path: Path) -> None:
    async with serving(short_path, replicas=4, container_limit=2) as kubelet:
        await kubelet.allocate_pod("two", {"main": {NAME: 2}})
        with pytest.raises(
            PodRejected, match=r"a container may have at most 2 of example\.com/dev \(container_limit\), not 3"
        ):
            await kubelet.allocate_pod("three", {"main": {NAME: 3}})


@pytest.mark.parametrize(("preference", "held"), [("packed", {"d0"}), ("distributed", {"d0", "d1", "d2"})])
async def test_the_kubelet_takes_what_is_preferred(short_path: Path, preference: str, held: "set[str]") -> None:
    async with serving(short_path, replicas=3, preference=preference) as kubelet:
        given = set()
        for number in range(3):
            pod = await kubelet.allocate_pod("pod%d" % number, {"main": {NAME: 1}})
            given |= {device.name.partition("=")[2] for device in pod.containers["main"].CDI_devices}
        assert given == held


async def test_device_nodes_reach_the_runtime_without_cdi(short_path: Path) -> None:
    mounts = [{"host_path": "/etc/dev", "container_path": "/etc/d", "options": ["ro"]}]
    edits = {"env": ["A=B"], "mounts": mounts}
    annotations = {"example.com/dev-{index}": "{id}"}
    keys = {"injection": "device_nodes", "container_edits": edits, "annotations": annotations, "preference": "packed"}
    async with serving(short_path, **keys) as kubelet:
        pod = await kubelet.allocate_pod("test", {"main": {NAME: 1}})
        container = pod.containers["main"]
        assert [(d.container_path, d.host_path, d.permissions) for d in container.devices] == [
            ("/dev/d0", "/dev/d0", "rw")
        ]
        assert ("/etc/d", "/etc/dev", True) in [(m.container_path, m.host_path, m.readonly) for m in container.mounts]
        assert {env.key: env.value for env in container.envs}["A"] == b"B"
        assert container.annotations["example.com/dev-0"] == "d0"
        assert not container.CDI_devices


async def test_a_reset_comes_before_the_container(short_path: Path) -> None:
    mark = short_path / "mark"
    command = ["/bin/sh", "-c", 'echo "$DEVICE_ID" >> %s' % mark]
    async with serving(short_path, pre_start={"command": command}, preference="packed") as kubelet:
        await kubelet.allocate_pod("test", {"main": {NAME: 2}})
        assert sorted(mark.read_text().split()) == ["d0", "d1"]
