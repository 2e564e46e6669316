"""Processes that are killed, doubled, or not let into their directory."""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from kubelet_stand_in import StandInKubelet

from .process import plugin_process

NAME = "example.com/dev"


def configuration(short_path: Path) -> dict[str, Any]:
    return {
        "kubelet_device_plugin_dir": str(short_path / "dp"),
        "kubelet_root_dir": str(short_path),
        "dynamic_cdi_dir": str(short_path / "cdi"),
        "cdi_spec_dirs": [],
        "resources": [{"name": NAME, "devices": [{"id": "d0", "nodes": [{"path": "/dev/null"}]}]}],
    }


async def test_twenty_sigkills(short_path: Path) -> None:
    """Complaint 1 and 3: whatever way a plugin ends, the next one registers, and leaves no socket of the last one."""
    async with StandInKubelet(str(short_path / "dp")) as kubelet:
        for _ in range(20):
            async with plugin_process(short_path, configuration(short_path)) as plugin:
                assert await kubelet.registered(NAME) == {"d0": "Healthy"}
                plugin.process.kill()
                await kubelet.disconnected(NAME)
            left = [name for name in os.listdir(short_path / "dp" / "node-device-plugin") if name.startswith("dev-")]
            assert len(left) == 1
        await kubelet.until(lambda: kubelet.capacity().allocatable.get(NAME) == 0)
        async with plugin_process(short_path, configuration(short_path)) as plugin:
            await kubelet.registered(NAME)
            pod = await kubelet.allocate_pod("pod", {"main": {NAME: 1}})
            assert [device.name for device in pod.containers["main"].CDI_devices] == [NAME + "=d0"]
            assert "Traceback" not in plugin.said()


async def test_a_second_instance_says_so_waits_and_takes_over(short_path: Path) -> None:
    """Complaint 2: the old instance's disconnect removes the new one during a rolling update."""
    async with contextlib.AsyncExitStack() as running:
        kubelet = await running.enter_async_context(StandInKubelet(str(short_path / "dp")))
        first = await running.enter_async_context(plugin_process(short_path, configuration(short_path)))
        await kubelet.registered(NAME)
        client = kubelet.manager.endpoints[NAME].client
        second = await running.enter_async_context(plugin_process(short_path, configuration(short_path), name="second"))
        await second.until_said(
            "another instance of the plugin serves in %s" % (short_path / "dp" / "node-device-plugin")
        )
        assert kubelet.manager.endpoints[NAME].client is client
        assert kubelet.devices(NAME) == {"d0": "Healthy"}
        first.process.terminate()
        assert await asyncio.wait_for(first.process.wait(), 20) == 0
        await kubelet.until(lambda: kubelet.manager.endpoints[NAME].client is not client, 20)
        await kubelet.registered(NAME)
        await kubelet.allocate_pod("pod", {"main": {NAME: 1}})


async def test_a_second_instance_that_waits_ends_when_it_is_told_to(short_path: Path) -> None:
    async with plugin_process(short_path, configuration(short_path)) as first:
        await first.until_said("waiting for the kubelet's socket")
        async with plugin_process(short_path, configuration(short_path), name="second") as second:
            await second.until_said("another instance")
            second.process.terminate()
            assert await asyncio.wait_for(second.process.wait(), 20) == 0
        assert first.process.returncode is None


async def test_a_directory_that_is_missing_is_made(short_path: Path) -> None:
    """Complaint 4: kubelet.sock is not there yet when the plugin starts, nor is its directory."""
    async with plugin_process(short_path, configuration(short_path)) as plugin:
        await plugin.until_said("waiting for the kubelet's socket")
        async with StandInKubelet(str(short_path / "dp")) as kubelet:
            await kubelet.registered(NAME)


@pytest.mark.parametrize("fault", ["a file", "not ours"])
async def test_a_directory_that_cannot_be_had_is_said_and_tried_again(short_path: Path, fault: str) -> None:
    folder = short_path / "dp" / "node-device-plugin"
    folder.parent.mkdir()
    if fault == "a file":
        folder.touch()
        says = "cannot serve in %s: File exists" % folder
    else:
        folder.parent.chmod(0o555)
        says = "cannot serve in %s: Permission denied" % folder
    async with plugin_process(short_path, configuration(short_path)) as plugin:
        await plugin.until_said(says)
        assert "Traceback" not in plugin.said()
        if fault == "a file":
            folder.unlink()
        else:
            folder.parent.chmod(0o755)
        await plugin.until_said("waiting for the kubelet's socket")
