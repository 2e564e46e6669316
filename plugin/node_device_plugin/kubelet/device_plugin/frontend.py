"""The frontend for the device plugin API v1beta1: a socket and a registration for each resource."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ...declaration import Configuration, Device, Resource
from ...declaration.model import ContainerEdits
from ...devices.holdings import HeldId
from ...devices.scanner import DeviceScanner
from ...devices.table import DeviceTable
from ...support.bounded_calls import Key
from ...support.cancel_safe import result_within
from ...support.task_group import TaskGroup
from ...telemetry.logs import Log
from .. import queries
from ..checkpoint import CheckpointError
from ..frontend import Held, HoldersUnknown, ResourceStatus
from .connection import KubeletConnection
from .device_list import without_room
from .ids import ListedId, listed_ids
from .kubelet_socket import KubeletSocket
from .plugin_watcher_registration import PluginWatcherRegistration
from .registration import Registration
from .server import DevicePluginServer, options

log = Log(__name__)

#: Maximum seconds for the kubelet's answer.
_ANSWER = 2.0


class _Offer(NamedTuple):
    connection: KubeletConnection
    task: asyncio.Task[Any]


class DevicePluginFrontend:
    """Implements kubelet.frontend.Frontend.

    scanner: knows what containers were given. overlaps: whether another instance may also serve.
    """

    is_allocatable = True
    without_room = staticmethod(without_room)
    listed_ids = staticmethod(listed_ids)

    def __init__(self, scanner: DeviceScanner, overlaps: bool = False) -> None:
        self._scanner, self._overlaps = scanner, overlaps
        #: How to reach the kubelet: the registration, and the kubelet's directories of device plugins and of all.
        self._way = ("", "", "")
        self._kubelet = KubeletSocket("")
        self._tasks = TaskGroup()
        self._offers: dict[str, _Offer] = {}
        #: What stays registered although it was withdrawn.
        self._refused: dict[str, DeviceTable] = {}

    async def run(self) -> None:
        """Serve until cancelled. Raises the error of a connection that fails."""
        try:
            await self._tasks.run()
        finally:
            self._kubelet.close()

    async def settle(self, configuration: Configuration) -> None:
        """Close every socket if the registration or a directory of the kubelet is another one now."""
        directory = configuration.kubelet_device_plugin_dir
        way = configuration.registration, directory, configuration.kubelet_root_dir
        if way != self._way:
            for name in list(self._offers):
                await self._close(name)
            self._kubelet.close()
            self._way, self._kubelet = way, KubeletSocket(directory)

    async def offer(self, table: DeviceTable) -> bool:
        """Keep an open stream if the options stay, which the kubelet reads only at registration."""
        name = table.declared.name
        self._refused.pop(name, None)
        former = self._offers.get(name)
        if former is not None and options(former.connection.service.resource) == options(table.declared):
            former.connection.service.offered.follow(table)
            return True
        await self._close(name)
        connection = self._connection(table)
        self._offers[name] = _Offer(connection, self._tasks.start(connection.run()))
        return False

    async def withdraw(self, resource: str, held: Mapping[HeldId, str]) -> bool:
        """Close the resource's socket, but not while a container holds one of its devices.

        Without the resource, the kubelet starts no such container again after 5 minutes.
        """
        if not held:
            await self._close(resource)
            return True
        reasons = {str(each): reason for each, reason in held.items()}
        table = self._refused.get(resource)
        if table is None or [device.id for device in table.resource.devices] != sorted(reasons):
            devices = tuple(Device(each, (), ContainerEdits(), {}, required=True) for each in sorted(reasons))
            table = DeviceTable(Resource(resource, resource, devices, {}, ContainerEdits(), 1))
            table.update(reasons)
            log.info("a removed resource stays registered until its pods end", resource=resource, devices=len(devices))
            await self.offer(table)
            self._refused[resource] = table
        table.update(reasons)
        return False

    async def held(self, own: Collection[str], spec_dirs: Sequence[str]) -> Held:
        """What containers hold by the kubelet, or by its checkpoint, which lists every allocated device."""
        (_registration, directory, root), links = self._way, self._scanner.links
        try:
            try:
                state = await result_within(queries.holders(root, directory, spec_dirs, links), _ANSWER)
            except asyncio.TimeoutError:
                state = await queries.checkpointed_holders(directory, spec_dirs, links, f"no answer in {_ANSWER:g} s")
        except (CheckpointError, OSError) as error:
            raise HoldersUnknown(str(error)) from error
        is_by_kubelet = state.source == "kubelet"
        free = state.allocatable if is_by_kubelet else {}
        device_ids = frozenset(device_id for each in state.held for device_id in ListedId(each.device).device_ids)
        offered = frozenset(name for name, ids in free.items() if ids)
        return Held(queries.holdings(state, own), device_ids, offered, is_by_kubelet)

    async def all_served(self) -> None:
        """Return once every offer has its socket."""
        for offer in list(self._offers.values()):
            await offer.connection.serving.wait()

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

    def allocated(self, resource: Resource, kubelet_ids: Sequence[str]) -> None:
        """See server.Keeper."""
        self._scanner.given.allocated(resource, map(ListedId, kubelet_ids))

    async def why_changed(
        self, resource: Resource, devices: Sequence[Device], kubelet_ids: Sequence[str]
    ) -> str | None:
        """See server.Keeper."""
        given: Sequence[frozenset[str]] = ()
        read = functools.partial(queries.given_paths, self._kubelet.directory, resource.name, kubelet_ids)
        try:
            given = await self._scanner.links.calls.call(Key("", "what a starting container was given"), read)
        except (CheckpointError, OSError) as error:
            log.warning("cannot read what a starting container was given", resource=resource.name, error=error)
        return await self._scanner.why_changed(resource.name, [device.id for device in devices], given)

    def _connection(self, table: DeviceTable) -> KubeletConnection:
        (registration, _directory, root), service = self._way, DevicePluginServer(table, keeper=self)
        if registration == "device_plugins":
            return Registration(service, self._kubelet)
        return PluginWatcherRegistration(service, root, self._overlaps)

    async def _close(self, resource: str) -> None:
        self._refused.pop(resource, None)
        former = self._offers.pop(resource, None)
        if former is not None:
            await self._tasks.stop(former.task)
