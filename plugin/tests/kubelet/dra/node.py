"""A node with a driver: its API server is a stand-in, and a client of its socket acts as the kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Callable

from node_device_plugin.daemon.resource_manager import ResourceManager
from node_device_plugin.declaration import Configuration, parse_configuration
from node_device_plugin.declaration.model import DRA
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.devices.scanner import DeviceScanner
from node_device_plugin.kubelet.dra.frontend import DraFrontend
from node_device_plugin.kubelet.dra.slices import device_name, pool_name
from node_device_plugin.kubelet.frontend import Frontend
from node_device_plugin.kubelet.plugin_watcher import socket_path
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import dra_health_v1_pb2_grpc as health_grpc
from node_device_plugin.wire import dra_v1_pb2 as api
from node_device_plugin.wire import dra_v1_pb2_grpc as api_grpc
from node_device_plugin.wire import plugin_registration_v1_pb2 as registry
from node_device_plugin.wire import plugin_registration_v1_pb2_grpc as registry_grpc

from .fake_api import FakeApi

DRIVER, NODE = "dra.example.com", "w1"
CAMERA = "example.com/camera"


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait for a condition."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "not in time"
        await asyncio.sleep(0.005)


def resource(*devices: str, name: str = CAMERA, **keys: Any) -> dict[str, Any]:
    """A resource, each of whose devices has a node of its own: /dev/null for ``null``."""
    made = [{"id": device, "nodes": [{"path": f"/dev/{device}"}]} for device in devices]
    return {"name": name, "devices": made, **keys}


def result(device: str, request: str = "cam", name: str = CAMERA, driver: str = DRIVER, **keys: Any) -> dict[str, Any]:
    """A device in the allocation of a claim."""
    pool = pool_name(NODE, name)
    return {"request": request, "driver": driver, "pool": pool, "device": device_name(device), **keys}


def claim(uid: str, *results: dict[str, Any], name: str = "", config: Any = None) -> dict[str, Any]:
    """A ResourceClaim. Without results, it is not allocated."""
    devices = {"results": list(results), **({"config": config} if config else {})}
    status = {"allocation": {"devices": devices}} if results else {}
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": name or f"claim-{uid}", "namespace": "default", "uid": uid},
        "status": status,
    }


def asked(uid: str, name: str = "") -> api.Claim:
    return api.Claim(uid=uid, namespace="default", name=name or f"claim-{uid}")


class Node:
    """The node; ``restart`` starts the plugin again."""

    def __init__(self, folder: Path, cluster: FakeApi) -> None:
        self.folder, self.cluster = folder, cluster
        self.overlaps = False
        #: Whether the next instance leads.
        self.leads = True
        #: Frontends of other APIs.
        self.others: dict[str, Frontend] = {}
        self.write_kubeconfig(cluster.address)

    def write_kubeconfig(self, address: str) -> None:
        (self.folder / "kubeconfig").write_text(
            '{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k"}}], '
            '"clusters": [{"name": "k", "cluster": {"server": "%s"}}]}' % address
        )

    @property
    def specs(self) -> list[str]:
        """The names of all files below the directory of CDI specs."""
        found = (os.path.join(where, name) for where, _, names in os.walk(self.folder / "cdi") for name in names)
        return sorted(os.path.relpath(path, self.folder / "cdi") for path in found)

    @property
    def socket(self) -> str:
        return socket_path(str(self.folder), DRIVER)

    def settings(self, *resources: dict[str, Any], api_of: dict[str, str] | None = None) -> dict[str, Any]:
        """The content of the configuration file. api_of: the API of each resource that DRA does not serve."""
        return {
            "kubelet_device_plugin_dir": str(self.folder / "dp"),
            "kubelet_root_dir": str(self.folder),
            "dynamic_cdi_dir": str(self.folder / "cdi"),
            "cdi_spec_dirs": [],
            "resources": [{**each, "api": (api_of or {}).get(each["name"], DRA)} for each in resources],
            "dra": {"driver": DRIVER, "node": NODE, "kubeconfig": str(self.folder / "kubeconfig")},
        }

    def configuration(self, *resources: dict[str, Any], api_of: dict[str, str] | None = None) -> Configuration:
        """The same, parsed."""
        return parse_configuration(self.settings(*resources, api_of=api_of))

    @contextlib.asynccontextmanager
    async def running(self, *resources: dict[str, Any]) -> AsyncIterator[Plugin]:
        """A plugin with these resources, whose socket is there."""
        plugin = Plugin(self)
        try:
            await plugin.resources.apply(self.configuration(*resources))
            await plugin.resources.all_served()
            yield plugin
        finally:
            await plugin.stop()


class Plugin:
    """The parts of the plugin that serve claims."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._watch = Watch()
        self.scanner = DeviceScanner(self._watch)
        self.scanner.writes = node.leads
        self.frontend = DraFrontend(self.scanner, node.overlaps)
        self.resources = ResourceManager(self.scanner, {**node.others, DRA: self.frontend})
        self.task = asyncio.create_task(self.frontend.run())

    async def apply(self, *resources: dict[str, Any], api_of: dict[str, str] | None = None) -> None:
        await self.resources.apply(self._node.configuration(*resources, api_of=api_of))

    def set_reasons(self, **reasons: str | None) -> None:
        """What a check says about devices of the first resource."""
        self.resources.tables[0].update(reasons)

    async def end(self) -> None:
        """End the driver."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self) -> None:
        await self.end()
        await self.scanner.close()
        self._watch.close()


class Kubelet:
    """The kubelet's side of a driver's socket, with one connection for all calls."""

    def __init__(self, socket: str) -> None:
        self._channel = grpc.aio.insecure_channel("unix:" + socket, options=(("grpc.default_authority", "localhost"),))
        self.registry = registry_grpc.RegistrationStub(self._channel)
        self.driver = api_grpc.DRAPluginStub(self._channel)
        self.health = health_grpc.DRAResourceHealthStub(self._channel)
        self.channel = self._channel

    async def __aenter__(self) -> Kubelet:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._channel.close()

    async def register(self) -> registry.PluginInfo:
        info = await self.registry.GetInfo(registry.InfoRequest())
        await self.registry.NotifyRegistrationStatus(registry.RegistrationStatus(plugin_registered=True))
        return info

    async def prepare(self, *claims: api.Claim) -> dict[str, api.NodePrepareResourceResponse]:
        answer = await self.driver.NodePrepareResources(api.NodePrepareResourcesRequest(claims=claims))
        return dict(answer.claims)

    async def prepared(self, uid: str) -> list[list[str]]:
        """Prepare one claim: the CDI names of each device."""
        answer = (await self.prepare(asked(uid)))[uid]
        assert answer.error == ""
        return [list(device.cdi_device_ids) for device in answer.devices]

    async def refused(self, uid: str) -> str:
        """Prepare one claim: the error."""
        answer = (await self.prepare(asked(uid)))[uid]
        assert answer.error
        assert not answer.devices
        return answer.error

    async def unprepare(self, *claims: api.Claim) -> dict[str, str]:
        """Release claims: the error of each."""
        answer = await self.driver.NodeUnprepareResources(api.NodeUnprepareResourcesRequest(claims=claims))
        return {uid: each.error for uid, each in answer.claims.items()}
