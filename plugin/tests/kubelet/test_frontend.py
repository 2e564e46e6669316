"""The v1beta1 frontend: what it offers, what it says of it, and how it ends."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.declaration import Configuration, Resource, parse_configuration, parse_resources
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.devices.scanner import DeviceScanner
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.kubelet import queries
from node_device_plugin.kubelet.device_plugin import frontend as frontend_module
from node_device_plugin.kubelet.device_plugin.allocation import allocate
from node_device_plugin.kubelet.device_plugin.connection import KubeletConnection
from node_device_plugin.kubelet.device_plugin.device_list import NotAllocatable
from node_device_plugin.kubelet.device_plugin.frontend import DevicePluginFrontend
from node_device_plugin.kubelet.device_plugin.ids import ListedId
from node_device_plugin.kubelet.frontend import HoldersUnknown, ResourceStatus
from node_device_plugin.support.sockets import SOCKET_DIRECTORY

NAME = "example.com/dev"


def resource(**more: Any) -> Resource:
    (only,) = parse_resources([{"name": NAME, "devices": [{"id": "d0"}], "env": {"DEV": "x"}, **more}])
    return only


def healthy(declared: Resource) -> DeviceTable:
    table = DeviceTable(declared)
    table.update({device.id: None for device in declared.devices})
    return table


def configured(folder: Path, **settings: str) -> Configuration:
    places = {"kubelet_device_plugin_dir": str(folder / "dp"), "kubelet_root_dir": str(folder)}
    return parse_configuration({**places, "resources": [], **settings})


async def settled(folder: Path, **settings: str) -> DevicePluginFrontend:
    made = DevicePluginFrontend(DeviceScanner(Watch()))
    await made.settle(configured(folder, **settings))
    return made


@pytest.fixture
async def frontend(short_path: Path) -> AsyncIterator[DevicePluginFrontend]:
    made = await settled(short_path)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_socket_that_cannot_be_served_has_its_reason_in_the_status(
    frontend: DevicePluginFrontend, short_path: Path
) -> None:
    (short_path / "dp").mkdir()
    blocked = short_path / "dp" / SOCKET_DIRECTORY
    blocked.write_text("")
    await frontend.offer(healthy(resource()))
    while frontend.status(NAME).problem is None:
        await asyncio.sleep(0.01)
    assert frontend.status(NAME) == ResourceStatus(False, None, f"cannot serve in {blocked}: File exists")
    blocked.unlink()
    await asyncio.wait_for(frontend.all_served(), 30)
    assert frontend.status(NAME) == ResourceStatus(False, None)


async def test_a_resource_is_offered_changed_and_withdrawn(frontend: DevicePluginFrontend, short_path: Path) -> None:
    async with StandInKubelet(str(short_path / "dp")) as kubelet:
        assert frontend.status(NAME) == ResourceStatus(False, None)
        assert not await frontend.offer(healthy(resource()))
        await asyncio.wait_for(frontend.all_served(), 10)
        assert await kubelet.registered(NAME) == {"d0": "Healthy"}
        status = frontend.status(NAME)
        assert status.is_registered
        assert status.registered_seconds is not None
        # Another table goes on with the connection, other options do not.
        assert await frontend.offer(healthy(resource(replicas=2)))
        await kubelet.until(lambda: set(kubelet.devices(NAME)) == {"d0::0", "d0::1"})
        assert not await frontend.offer(healthy(resource(preference="packed")))
        await kubelet.until(lambda: kubelet.devices(NAME) == {"d0": "Healthy"})
        assert await frontend.withdraw(NAME, {})
        await kubelet.disconnected(NAME)
        assert frontend.status(NAME) == ResourceStatus(False, None)
        assert await frontend.withdraw(NAME, {})


async def test_a_connection_that_fails_ends_the_frontend_and_all_others(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends with it: systemd or the kubelet starts it again."""
    running: dict[str, int] = {"connections": 0}
    fails = asyncio.Event()

    async def run(connection: KubeletConnection) -> None:
        running["connections"] += 1
        try:
            await (fails.wait() if connection.resource == NAME else asyncio.sleep(60))
        finally:
            running["connections"] -= 1
        raise FileNotFoundError("the directory is lost")

    monkeypatch.setattr(KubeletConnection, "run", run)
    frontend = await settled(short_path, registration="plugins_registry")
    task = asyncio.create_task(frontend.run())
    (other,) = parse_resources([{"name": "example.com/other"}])
    await asyncio.gather(frontend.offer(healthy(resource())), frontend.offer(healthy(other)))
    await asyncio.sleep(0)
    assert running["connections"] == 2
    fails.set()
    with pytest.raises(FileNotFoundError, match="the directory is lost"):
        await asyncio.wait_for(task, 10)
    assert running["connections"] == 0


async def test_what_is_held_stays_registered_without_a_free_device(
    frontend: DevicePluginFrontend, short_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The kubelet's ids come back, whichever meaning of them is right."""
    caplog.set_level("INFO")
    async with StandInKubelet(str(short_path / "dp")) as kubelet:
        await frontend.offer(healthy(resource(replicas=2)))
        assert await kubelet.registered(NAME) == {"d0::0": "Healthy", "d0::1": "Healthy"}
        endpoint = kubelet.manager.endpoints[NAME]
        assert not await frontend.withdraw(NAME, {ListedId("d0::1"): "held", ListedId("gone"): "held"})
        await kubelet.until(lambda: kubelet.devices(NAME) == {"d0::1": "Unhealthy", "gone": "Unhealthy"})
        assert not await frontend.withdraw(NAME, {ListedId("gone"): "held"})
        await kubelet.until(lambda: kubelet.devices(NAME) == {"gone": "Unhealthy"})
        # The same again sends nothing, but another reason is what a container reads.
        assert not await frontend.withdraw(NAME, {ListedId("gone"): "held by another pod"})
        assert frontend.status(NAME).is_registered
        assert len([each for each in caplog.messages if each.startswith("a removed resource stays registered")]) == 2
        service = frontend._offers[NAME].connection.service
        with pytest.raises(NotAllocatable, match="device gone: held by another pod"):
            allocate(service.offered, ["gone"])
        assert kubelet.manager.endpoints[NAME] is endpoint
        # It comes back as if it had stayed, and can be withdrawn again.
        assert await frontend.offer(healthy(resource(replicas=2)))
        await kubelet.until(lambda: kubelet.devices(NAME) == {"d0::0": "Healthy", "d0::1": "Healthy"})
        assert not await frontend.withdraw(NAME, {ListedId("gone"): "held"})
        await kubelet.until(lambda: kubelet.devices(NAME) == {"gone": "Unhealthy"})
        assert await frontend.withdraw(NAME, {})
        await kubelet.disconnected(NAME)
        # An answer that came later: a container holds it after all.
        assert not await frontend.withdraw(NAME, {ListedId("gone"): "held"})
        assert await kubelet.registered(NAME) == {"gone": "Unhealthy"}


async def test_another_way_to_the_kubelet_ends_every_offer(frontend: DevicePluginFrontend, short_path: Path) -> None:
    async with StandInKubelet(str(short_path / "dp")) as kubelet:
        await frontend.offer(healthy(resource()))
        await kubelet.registered(NAME)
        await frontend.settle(configured(short_path))
        assert frontend.status(NAME).is_registered
        await frontend.settle(configured(short_path, registration="plugins_registry"))
        assert frontend.status(NAME) == ResourceStatus(False, None)
        await kubelet.disconnected(NAME)
        assert not await frontend.offer(healthy(resource()))
        await asyncio.wait_for(frontend.all_served(), 10)
        assert len(list((short_path / "plugins_registry").iterdir())) == 1
        assert await kubelet.registered(NAME) == {"d0": "Healthy"}


async def listing(*_: object) -> queries.Holders:
    return queries.Holders("kubelet", allocatable={NAME: (), "example.com/free": ("a",)})


async def test_what_is_held_through_this_api(
    frontend: DevicePluginFrontend, short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with StandInKubelet(str(short_path / "dp")) as kubelet:
        await frontend.offer(healthy(resource(replicas=2)))
        await kubelet.registered(NAME)
        pod = await kubelet.allocate_pod("own", {"main": {NAME: 1}})
        found = await frontend.held([NAME], [])
        (holding,) = found.holdings
        assert (holding.resource, holding.api, holding.is_ours, holding.is_share) == (NAME, "device_plugin", True, True)
        assert holding.held_id in ("d0::0", "d0::1")
        assert found.device_ids == {"d0", "d0::0"} or found.device_ids == {"d0", "d0::1"}
        assert (found.offered, found.is_by_kubelet) == ({NAME}, True)
        # Another plugin's resource without a free device is offered by nobody.
        with monkeypatch.context() as patched:
            patched.setattr(queries, "holders", listing)
            assert (await frontend.held([NAME], [])).offered == {"example.com/free"}
        # Without an answer the checkpoint tells, and it does not tell which resources another plugin offers.
        monkeypatch.setattr(frontend_module, "_ANSWER", 0.05)
        monkeypatch.setattr(queries, "holders", lambda *_: asyncio.sleep(60))
        found = await frontend.held([NAME], [])
        assert [each.held_id for each in found.holdings] == [holding.held_id]
        assert (found.offered, found.is_by_kubelet) == (frozenset(), False)
        await kubelet.remove_pod(pod.uid)
    (short_path / "dp" / "kubelet_internal_checkpoint").write_text("{")
    with pytest.raises(HoldersUnknown, match="kubelet_internal_checkpoint is not a device checkpoint"):
        await frontend.held([NAME], [])
