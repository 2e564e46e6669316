"""The frontend for DRA: one driver for all resources, with a pool for each resource."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ...declaration import Configuration, Device, Resource
from ...declaration.device_plugin_api import kubelet_ids
from ...declaration.model import DRA, DraDriver
from ...declaration.names import pool_name
from ...devices.holdings import HeldId, Holding
from ...devices.scanner import DeviceScanner
from ...devices.table import DeviceTable
from ...support.task_group import TaskGroup
from ...telemetry.logs import Log
from ..device_plugin.ids import ListedId, listed_ids
from ..frontend import Held, HoldersUnknown, ResourceStatus
from . import of_this_node
from .claims import Offered, PreparedClaim, PreparedDevice
from .connection import DriverConnection
from .health import DeviceHealth, HealthServer
from .preparing import Preparing
from .publisher import Publisher, connect
from .records import RecordError
from .server import DraPluginServer
from .slices import Pool, device_name, pool_of

log = Log(__name__)


class _Offer:
    """A resource that is offered. pool: the name of its pool. task: watches the table."""

    def __init__(self, table: DeviceTable, pool: str, task: asyncio.Task[Any]) -> None:
        self.table, self.pool, self.task = table, pool, task
        #: The place and listed id of each device by its name in the pool: built once for each list of devices.
        self._places: tuple[Resource, dict[str, tuple[int, str]]] | None = None
        self._shown: tuple[asyncio.Event, Pool] | None = None

    def shown(self, driver: DraDriver) -> Pool:
        """The pool with the devices: built once for each change of the table."""
        change = self.table.change
        if self._shown is None or self._shown[0] is not change:
            self._shown = change, pool_of(driver, self.table.resource, self.table.shown())
        return self._shown[1]

    def find(self, name: str) -> Offered | None:
        """The device with this name in the pool. Threads call this, too."""
        resource, found = self.table.resource, self._places
        if found is None or found[0] is not resource:
            ids = (
                (place, each) for place, device in enumerate(resource.devices) for each in kubelet_ids(resource, device)
            )
            found = self._places = resource, {device_name(listed_id): (place, listed_id) for place, listed_id in ids}
        if name not in found[1]:
            return None
        place, listed_id = found[1][name]
        device = resource.devices[place]
        return Offered(resource, device, place, listed_id, self.table.reason(device))


class _Driver(NamedTuple):
    """The parts that serve one driver. tasks: of the publisher and the connection; empty until they start."""

    preparing: Preparing
    health: HealthServer
    publisher: Publisher
    connection: DriverConnection
    tasks: list[asyncio.Task[Any]]


class DraFrontend:
    """Implements kubelet.frontend.Frontend.

    scanner: knows what containers were given. overlaps: whether another instance may also serve.
    """

    #: ResourceSlices show the devices instead.
    is_allocatable = False
    #: A share of a device is a device of its own in ResourceSlices, as in the lists of the other API.
    listed_ids = staticmethod(listed_ids)

    def __init__(self, scanner: DeviceScanner, overlaps: bool = False) -> None:
        self._scanner, self._overlaps = scanner, overlaps
        self._tasks = TaskGroup()
        #: The driver as configured, and the kubelet's root directory.
        self._way = DraDriver(), ""
        self._driver: _Driver | None = None
        self._offers: dict[str, _Offer] = {}
        #: Resources that are no longer offered, and of which claims have devices.
        self._refused: set[str] = set()
        #: The resources that the configuration has for this API.
        self._expected: frozenset[str] = frozenset()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled. Raises the error of the connection or the publisher."""
        self._tasks.start(self._publish())
        await self._tasks.run()

    async def settle(self, configuration: Configuration) -> None:
        """Start the driver, or replace it if its configuration or the kubelet's directory is another one now."""
        way = of_this_node(configuration.dra), configuration.kubelet_root_dir
        if self._driver is None or way != self._way:
            await self._stop()
            self._way, self._driver = way, self._make(*way)
        self._driver.preparing.directory = configuration.dynamic_cdi_dir
        self._expected = frozenset(resource.name for resource in configuration.resources if resource.api == DRA)
        self._start()

    def without_room(self, resource: Resource, staying: Sequence[Device], found: Sequence[Device]) -> Mapping[str, str]:
        """No device: a pool has as many slices as it needs."""
        return {}

    async def offer(self, table: DeviceTable) -> bool:
        """Publish the resource's devices from now on. The driver stays registered."""
        name = table.declared.name
        stays = name in self._offers
        await self._drop(name)
        pool = pool_name(self._way[0].node, name)
        self._offers[name] = _Offer(table, pool, self._tasks.start(self._watch(table)))
        self._start()
        return stays

    async def withdraw(self, resource: str, held: Mapping[HeldId, str]) -> bool:
        """Publish no device of a resource. Only our own record decides whether claims still have devices."""
        await self._drop(resource)
        self._news.set()
        try:
            claims = await self._prepared()
        except HoldersUnknown as error:
            log.warning("a removed resource stays, because nothing tells which devices claims have", error=error)
            is_held = True
        else:
            is_held = any(device.resource == resource for claim in claims for device in claim.devices)
        if is_held:
            self._refused.add(resource)
        else:
            self._refused.discard(resource)
        return not is_held

    async def held(self, own: Collection[str], spec_dirs: Sequence[str]) -> Held:
        """What claims have by our own record, which only a release by the kubelet ends."""
        claims = await self._prepared()
        holdings = [_holding(claim, device) for claim in claims for device in claim.devices]
        return Held(holdings, frozenset(str(each.held_id) for each in holdings), frozenset(), is_by_kubelet=True)

    async def all_served(self) -> None:
        """Return once the driver has its socket."""
        if self._driver is not None:
            await self._driver.connection.serving.wait()

    def repeat(self) -> None:
        """Publish now, because only the leading instance publishes."""
        self._news.set()

    def status(self, resource: str) -> ResourceStatus:
        """The status of the driver, for a resource that it offers, or whose devices claims have."""
        if self._driver is None or not (resource in self._offers or resource in self._refused):
            return ResourceStatus(False, None)
        connection, publisher = self._driver.connection, self._driver.publisher
        seconds = connection.registered_seconds
        claims = self._driver.preparing.known.values()
        prepared = sum(any(device.resource == resource for device in claim.devices) for claim in claims)
        return ResourceStatus(seconds is not None, seconds, connection.problem or publisher.problem, prepared)

    def _make(self, driver: DraDriver, root: str) -> _Driver:
        client = functools.partial(connect, driver)
        publisher = Publisher(driver, client)
        links = self._scanner.links
        preparing = Preparing(driver, self._find, client, links.calls, links.real)
        health = HealthServer(self._device_health)
        connection = DriverConnection(
            driver.name,
            root,
            os.urandom(3).hex() if self._overlaps else "",
            DraPluginServer(preparing, self._given),
            health,
            publisher.set_registered,
        )
        return _Driver(preparing, health, publisher, connection, [])

    def _start(self) -> None:
        """Start the driver once every resource is offered.

        Before that, it would refuse claims without need, and remove the slices of resources that it offers later.
        """
        if self._driver is not None and not self._driver.tasks and self._expected <= self._offers.keys():
            self._driver.tasks.extend(
                map(self._tasks.start, (self._driver.publisher.run(), self._driver.connection.run()))
            )
            self._news.set()

    async def _stop(self) -> None:
        """End the driver. The kubelet deletes the slices of a driver that stays away for 30 s."""
        if self._driver is not None:
            await self._tasks.stop(*self._driver.tasks)
            for name in list(self._offers):
                await self._drop(name)

    async def _drop(self, resource: str) -> None:
        former = self._offers.pop(resource, None)
        if former is not None:
            await self._tasks.stop(former.task)

    async def _watch(self, table: DeviceTable) -> None:
        while True:
            change = table.change
            self._news.set()
            await change.wait()

    async def _publish(self) -> None:
        """Tell the health of devices, and publish them unless another instance leads, which publishes its own."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._driver is None or not self._driver.tasks:
                continue
            self._driver.health.changed()
            if self._scanner.writes:
                self._driver.publisher.publish([offer.shown(self._way[0]) for offer in self._offers.values()])

    async def _prepared(self) -> list[PreparedClaim]:
        """The claims that have devices. Raises HoldersUnknown."""
        if self._driver is None:
            return []
        try:
            return await self._driver.preparing.prepared()
        except (RecordError, OSError) as error:
            raise HoldersUnknown(str(error)) from error

    def _find(self, pool: str, name: str) -> Offered | None:
        # A thread asks, meanwhile others may be offered.
        offer = next((each for each in tuple(self._offers.values()) if each.pool == pool), None)
        return None if offer is None else offer.find(name)

    def _given(self, claim: PreparedClaim) -> None:
        """Note what a claim got, until the next question for holders."""
        for device in claim.devices:
            offer = self._offers.get(device.resource)
            if offer is not None:
                self._scanner.given.allocated(offer.table.declared, [ListedId(device.device_id)])

    def _device_health(self) -> list[DeviceHealth]:
        return [
            DeviceHealth(offer.pool, device_name(listed_id), reason)
            for offer in self._offers.values()
            for device, reason in offer.table.shown()
            for listed_id in kubelet_ids(offer.table.resource, device)
        ]


def _holding(claim: PreparedClaim, device: PreparedDevice) -> Holding:
    held_id, paths = ListedId(device.device_id), frozenset(device.paths)
    return Holding(str(claim.id), device.resource, held_id, paths, device.is_share, api=DRA)
