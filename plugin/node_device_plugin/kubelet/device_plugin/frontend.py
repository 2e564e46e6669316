"""The frontend for the device plugin API v1beta1: a socket and a registration for each resource."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...declaration import Device, Resource
from ...devices.table import DeviceTable
from ...support.task_group import TaskGroup
from ..frontend import NO_CUSTODY, Custody, ResourceStatus
from ..plugin_watcher import PluginWatcherRegistration
from .connection import KubeletConnection
from .device_list import without_room
from .kubelet_socket import KubeletSocket
from .registration import Registration
from .server import DevicePluginServer, options


class Place(NamedTuple):
    """How to reach the kubelet.

    registration: ``device_plugins`` (the kubelet's registration socket) or ``plugins_registry``
    (the kubelet finds our sockets). device_plugin_dir, kubelet_root: the kubelet's directories.
    overlaps: whether another instance may also serve there.
    """

    registration: str
    device_plugin_dir: str
    kubelet_root: str
    overlaps: bool = False


class _Offer(NamedTuple):
    connection: KubeletConnection
    task: asyncio.Task[Any]


class DevicePluginFrontend:
    """Implements kubelet.frontend.Frontend."""

    def __init__(self, place: Place, custody: Custody = NO_CUSTODY) -> None:
        self._place, self._custody = place, custody
        self._kubelet = KubeletSocket(place.device_plugin_dir)
        self._tasks = TaskGroup()
        self._offers: dict[str, _Offer] = {}

    async def run(self) -> None:
        """Serve until cancelled. Raises the error of a connection that fails."""
        try:
            await self._tasks.run()
        finally:
            self._kubelet.close()

    def without_room(self, resource: Resource, staying: Sequence[Device], found: Sequence[Device]) -> Mapping[str, str]:
        """The found devices that do not fit in one ListAndWatch answer: device id to the reason."""
        return without_room(resource, staying, found)

    async def offer(self, table: DeviceTable) -> bool:
        """Keep an open stream if the options stay, which the kubelet reads only at registration."""
        name = table.declared.name
        former = self._offers.get(name)
        if former is not None and options(former.connection.service.resource) == options(table.declared):
            former.connection.service.offered.follow(table)
            return True
        await self.withdraw(name)
        connection = self._connection(table)
        self._offers[name] = _Offer(connection, self._tasks.start(connection.run()))
        return False

    async def withdraw(self, resource: str) -> None:
        """Close the resource's socket."""
        former = self._offers.pop(resource, None)
        if former is not None:
            await self._tasks.stop(former.task)

    async def all_served(self) -> None:
        """Return once every offer has its socket."""
        for offer in list(self._offers.values()):
            await offer.connection.serving()

    def repeat(self) -> None:
        """Send each list again on its open stream."""
        for offer in self._offers.values():
            offer.connection.service.offered.repeat()

    def status(self, resource: str) -> ResourceStatus:
        """The status of a resource: registered if the kubelet has its ListAndWatch stream open."""
        offer = self._offers.get(resource)
        if offer is None:
            return ResourceStatus(False, None)
        stream = offer.connection.service.stream
        return ResourceStatus(stream.is_open, stream.age, offer.connection.problem)

    def _connection(self, table: DeviceTable) -> KubeletConnection:
        service = DevicePluginServer(table, custody=self._custody)
        if self._place.registration == "device_plugins":
            return Registration(service, self._kubelet)
        return PluginWatcherRegistration(service, self._place.kubelet_root, self._place.overlaps)
