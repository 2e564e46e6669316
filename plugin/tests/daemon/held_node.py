"""A node whose plugin starts and stops in this process, with what tests of held devices need."""

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any, Optional

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.daemon import reconcile
from node_device_plugin.daemon.resource_manager import ResourceManager
from node_device_plugin.declaration import parse_configuration
from node_device_plugin.declaration.device_plugin_api import devices_of
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.kubelet.device_plugin.frontend import DevicePluginFrontend
from node_device_plugin.support.task_group import TaskGroup

from ..serving import managed

OLD, NEW = "example.com/old", "example.com/new"


def device(name: str, path: Optional[str] = None) -> dict[str, Any]:
    return {"id": name, **({"nodes": [{"path": path}]} if path else {})}


def resource(name: str, *devices: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {"name": name, "devices": list(devices), **others}


NULL, ZERO = device("null0", "/dev/null"), device("zero0", "/dev/zero")


class Node:
    """A node's folders, and the plugin that runs there now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.resources: Optional[ResourceManager] = None
        self.ask = asyncio.Event()

    async def start(self, *resources: dict[str, Any]) -> None:
        """Start a plugin that knows nothing of those before it."""
        self.tasks, self.watch = TaskGroup(), Watch()
        self.resources = managed(self.tasks, self.watch)
        await self.apply(*resources)
        self.tasks.start(reconcile.watch_holders(self.resources))

    async def stop(self) -> None:
        if self.resources is not None:
            await self.tasks.stop()
            self.watch.close()
            self.resources = None

    async def apply(self, *resources: dict[str, Any]) -> None:
        assert self.resources is not None
        await self.resources.apply(
            parse_configuration(
                {
                    "kubelet_device_plugin_dir": str(self.folder / "dp"),
                    "kubelet_root_dir": str(self.folder),
                    "dynamic_cdi_dir": str(self.folder / "cdi"),
                    "cdi_spec_dirs": [str(self.folder / "cdi")],
                    "cdi_owner": "plugin",
                    "resources": list(resources),
                }
            )
        )

    def reasons(self) -> dict[str, Optional[str]]:
        assert self.resources is not None
        return {d.id: table.reason(d) for table in self.resources.tables for d in table.resource.devices}


def frontend_of(node: Node) -> DevicePluginFrontend:
    assert node.resources is not None
    (frontend,) = node.resources._frontends.values()
    assert isinstance(frontend, DevicePluginFrontend)
    return frontend


async def hold(kubelet: StandInKubelet, name: str, count: int = 1, pod: str = "own") -> str:
    await kubelet.registered(name)
    return (await kubelet.allocate_pod(pod, {"main": {name: count}})).uid


async def has(kubelet: StandInKubelet, name: str, devices: dict[str, str]) -> None:
    await kubelet.registered(name)
    await kubelet.until(lambda: kubelet.devices(name) == devices, 10, "%s is not %s" % (name, devices))


def recorded(kubelet: StandInKubelet, of: str) -> list[dict[str, str]]:
    """Every list of a resource's devices that the kubelet gets from now on."""
    lists: list[dict[str, str]] = []
    update = kubelet.manager.state.update

    def heard(name: str, devices: Any) -> None:
        if name == of:
            lists.append({each.ID: each.health for each in devices})
        update(name, devices)

    kubelet.manager.state.update = heard  # type: ignore[method-assign]
    return lists


HELD = "held by default/own-node as %s"


def given(folder: Path) -> dict[str, str]:
    """The host's node of each name, by the spec as a runtime reads it."""
    (file,) = (folder / "cdi").glob("*.json")
    return {
        device["name"]: node.get("hostPath", node["path"])
        for device in json.loads(file.read_text())["devices"]
        for node in device["containerEdits"]["deviceNodes"]
    }


MOVED = HELD + " with %s: its link now leads to %s"


class Links:
    """Links of a test, as udev makes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "by-id"
        self.folder.mkdir()

    def lead(self, **targets: str) -> None:
        for name, target in targets.items():
            (self.folder / name).unlink(missing_ok=True)
            (self.folder / name).symlink_to(target)

    @property
    def discovered(self) -> dict[str, Any]:
        return {"name": OLD, "discover": {"paths": [str(self.folder / "*")]}}

    def id_of(self, name: str) -> str:
        return str(self.folder / name)[1:].replace("/", "-")


async def check(node: Node) -> None:
    assert node.resources is not None
    await node.resources.check()


async def why_changed(node: Node, ids: list[str]) -> Optional[str]:
    """What the server of the only resource asks before a container starts."""
    assert node.resources is not None
    (table,) = node.resources.tables
    return await frontend_of(node).why_changed(table.resource, devices_of(table.resource, ids), ids)


async def restart(node: Node, kubelet: StandInKubelet, *resources: dict[str, Any]) -> None:
    await node.stop()
    await kubelet.disconnected(OLD)
    await node.start(*resources)


def made(path: Path, major: int, minor: int) -> str:
    """A device node at this path."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(major, minor))
    except PermissionError:
        pytest.skip("mknod needs root")
    return str(path)
