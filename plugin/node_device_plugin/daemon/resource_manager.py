"""Manages the served resources; a new configuration affects only the resources that it changes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ..declaration import Configuration
from ..devices.events.watch import SWEEP
from ..devices.flap_damping import UNSTEADY
from ..devices.given import IN_DOUBT, ServedKey, Shares
from ..devices.reason import MOST_TOLD
from ..devices.scanner import DeviceScanner
from ..devices.table import FORGOTTEN_AFTER, GONE, DeviceTable
from ..kubelet.frontend import Frontend, HoldersUnknown, ResourceStatus
from ..telemetry.logs import Log, Tries
from .holders import Answer, Holders

log = Log(__name__)

#: Maximum seconds for the registration of removed resources that pods hold, and seconds between two looks.
_RETIRING, _LOOK = 5.0, 0.05


class ServedResource(NamedTuple):
    """One resource: its devices, and the frontend that serves it."""

    name: str
    table: DeviceTable
    frontend: Frontend

    @property
    def status(self) -> ResourceStatus:
        """The resource's status with the kubelet."""
        return self.frontend.status(self.name)


class ResourceManager:
    """Offers the resources of a configuration to the kubelet.

    scanner: scans the devices. frontends: run by the caller; ``Resource.api`` says which one serves a resource.
    """

    def __init__(self, scanner: DeviceScanner, frontends: Mapping[str, Frontend]) -> None:
        #: When the last full scan ended (time.monotonic); None before the first scan.
        self.checked_at: float | None = None
        #: The tables by resource name, in the order of the configuration.
        self._served: dict[str, DeviceTable] = {}
        self._scanner = scanner
        self._frontends = frontends
        self._holders = Holders(scanner, frontends)
        self._one_at_a_time = asyncio.Lock()
        #: Resources that their frontend refuses to withdraw, because containers hold their devices.
        self._refused: set[ServedKey] = set()
        #: Failures are logged once a change.
        self._pruning = Tries(log)
        #: When the kubelet was last asked for the holders of devices.
        self._asked_at = 0.0
        #: The names of all resources that this process has ever served.
        self._own: set[str] = set()

    @property
    def tables(self) -> list[DeviceTable]:
        """The device table of each resource."""
        return list(self._served.values())

    def served(self) -> list[ServedResource]:
        """Every resource with its table and its frontend."""
        return [ServedResource(name, table, self._frontend_of(table)) for name, table in self._served.items()]

    def _frontend_of(self, table: DeviceTable) -> Frontend:
        return self._frontends[table.declared.api]

    async def all_served(self) -> None:
        """Return once the kubelet can reach every resource."""
        for frontend in self._frontends.values():
            await frontend.all_served()

    def missed(self, name: str) -> dict[str, str]:
        """The devices of a resource that were offered since the boot and are gone, each with the reason."""
        table = self._served[name]
        shown = {device.id: reason for device, reason in table.shown()}
        missed = sorted(self._scanner.given.missed.items())
        return {
            device_id: shown.get(device_id) or GONE
            for (resource, device_id), accepted in missed
            if resource == name and not accepted
        }

    async def forget_lost(self) -> None:
        """Expect the devices no longer that are gone. Their ids stay until they may be forgotten."""
        async with self._one_at_a_time:
            self._scanner.given.accept_losses(self._served)
            await self._look(self._served)

    async def all_retired(self) -> None:
        """Wait until the kubelet knows that every removed resource needs no plugin to start a container again."""
        deadline = time.monotonic() + _RETIRING
        while time.monotonic() < deadline:
            if all(self._frontends[api].status(name).is_registered for api, name in self._refused):
                return
            await asyncio.sleep(_LOOK)

    @property
    def are_steady(self) -> bool:
        """Whether no flapping device waits to become stable. Only another scan ends this wait."""
        return not any(table.reason(device) == UNSTEADY for table in self.tables for device in table.resource.devices)

    async def apply(self, configuration: Configuration) -> str:
        """Serve the resources of this configuration, and return what changed, for the log.

        A changed resource stays registered, unless its plugin options or the way to the kubelet change.
        """
        self._own.update(resource.name for resource in configuration.resources)
        async with self._one_at_a_time:
            return await self._apply(configuration)

    async def _apply(self, configuration: Configuration) -> str:
        """Scan, withdraw, ask, offer: the scan withholds each device whose meaning changes, until the kubelet says who
        holds the device."""
        before, after = self._served, self._tables(configuration)
        await self._scan_for(configuration, after)
        await self._withdraw_removed(before, after)
        self._served = after
        await self._judge(await self._ask())
        # Until the new table is offered, a container may get a device with its former meaning.
        await self._scanner.judge_again(self.tables)
        former = set(map(_key, before.values()))
        stayed = await self._offer([table for table in self.tables if _key(table) in former])
        # What another selector does not find any more is not lost.
        selects = {name: table.declared.discover for name, table in after.items()}
        other = [name for name, table in before.items() if table.declared.discover != selects.get(name)]
        self._scanner.given.accept_losses(other)
        # Devices that the offers above have freed may belong to the new resources.
        await self._scanner.judge_again(self.tables)
        await self._offer([table for table in self.tables if _key(table) not in former])
        if self.checked_at is None:
            self.checked_at = time.monotonic()
        return _change(before, after, stayed)

    async def _scan_for(self, configuration: Configuration, tables: Mapping[str, DeviceTable]) -> None:
        """Scan with a new configuration, also unchanged resources, because a device belongs to only one resource."""
        self._scanner.configuration = configuration
        await self._scanner.load_record()
        await self._look(tables)
        for frontend in self._frontends.values():
            await frontend.settle(configuration)

    async def _withdraw_removed(self, before: Mapping[str, DeviceTable], after: Mapping[str, DeviceTable]) -> None:
        """Withdraw the resources that are no longer served, as far as no container may hold their devices."""
        now = set(map(_key, after.values()))
        self._refused -= now
        for table in before.values():
            if _key(table) not in now:
                await self._withdraw(_key(table), self._in_doubt(table))

    def _tables(self, configuration: Configuration) -> dict[str, DeviceTable]:
        """The table of each resource: a new one, which takes over the states of devices, if the resource changed."""
        tables, delay = {}, configuration.recovery_delay
        for resource in configuration.resources:
            table = self._served.get(resource.name)
            if table is None or (table.declared, table.recovery_delay) != (resource, delay):
                room = self._frontends[resource.api].without_room
                table = DeviceTable(resource, delay, former=table, without_room=room)
            tables[resource.name] = table
        return tables

    async def _offer(self, tables: Iterable[DeviceTable]) -> list[str]:
        """Offer resources, one after the other. Returns the names of those that stay registered."""
        stayed = []
        for table in tables:
            if await self._frontend_of(table).offer(table):
                stayed.append(table.declared.name)
        return stayed

    def _in_doubt(self, table: DeviceTable) -> dict[Shares, str]:
        """What containers may hold of a removed resource, until the kubelet has answered."""
        # The leader keeps what is held. Its own list must not be replaced by one without a free device.
        shown = table.shown() if self._scanner.writes else ()
        return {(share,): IN_DOUBT for device, _reason in shown for share in table.resource.shares(device)}

    async def _withdraw(self, key: ServedKey, held: Mapping[Shares, str]) -> None:
        if await self._frontends[key.api].withdraw(key.name, held):
            self._refused.discard(key)
        else:
            self._refused.add(key)

    async def is_news(self) -> bool:
        """Whether the last events of the watch require a ``check``."""
        return await self._scanner.is_news()

    async def check(self) -> None:
        """Scan every device; if a device means something else now, ask the kubelet who holds it."""
        # Wait while a new configuration is applied. Otherwise, former tables would get devices of other resources.
        async with self._one_at_a_time:
            await self._look(self._served)
            self.checked_at = time.monotonic()
        if self._scanner.given.is_any_open:
            await self.ask_for_holders()

    async def _look(self, served: Mapping[str, DeviceTable]) -> None:
        await self._scanner.scan(list(served.values()))

    async def ask_for_holders(self) -> None:
        """Ask for the holders if a device is or may be held under another name, or if the last answer is old."""
        is_held = bool(self._refused) or any(table.is_any_held for table in self.tables)
        is_due = self._scanner.given.is_any_open or time.monotonic() - self._asked_at > SWEEP
        if not (is_due or is_held):
            return
        served = self._served
        # Ask outside the lock, because the kubelet may be slow. If a new configuration was applied
        # meanwhile, ignore the answer.
        answer = await self._ask()
        async with self._one_at_a_time:
            if served is self._served:
                await self._judge(answer)

    async def _ask(self) -> Answer | None:
        self._asked_at = time.monotonic()
        return await self._holders.ask(self._own)

    async def _judge(self, answer: Answer | None) -> None:
        """Judge the devices by the holders. Without an answer, the known holders stay, and so does every doubt."""
        if answer is None:
            return
        if await self._scanner.answer(self.tables, answer.question, answer.holdings):
            # Write a released name's new meaning to the specs before its device is offered.
            await self._look(self._served)
        if self._scanner.writes:
            await self._keep_held(answer)

    async def _keep_held(self, answer: Answer) -> None:
        """Withdraw each removed resource as far as no container holds its devices.

        If another plugin offers such a resource, its registration stays. Only the kubelet tells whether one does.
        """
        held = self._scanner.given.held_of_others(set(map(_key, self.tables)))
        for key in {*self._refused, *held}:
            said = answer.held[key.api]
            if key.name not in said.offered and (key in self._refused or said.is_by_kubelet):
                await self._withdraw(key, held.get(key, {}))

    async def take_over(self) -> None:
        """Write the CDI specs from now on, and send the kubelet every device list again."""
        async with self._one_at_a_time:
            # During a scan, the record of the ended instance must neither change nor be written over.
            await self._scanner.load_record(again=True)
            self._scanner.writes = True
            await self._look(self._served)
            await self._judge(await self._ask())
        for frontend in self._frontends.values():
            frontend.repeat()

    async def prune(self) -> None:
        """Forget long-gone devices and remove orphans from our dynamic CDI specs, unless a pod holds them.

        Does nothing while another instance writes the specs, because that instance prunes them.
        """
        if not self._scanner.writes:
            return
        before = [table.resource for table in self.tables]
        before_asking = self._scanner.configuration
        # The kubelet's answer is valid only for devices that were long gone before the question.
        gone = frozenset().union(*(table.long_gone() for table in self.tables))
        held: frozenset[str] = frozenset()
        try:
            # Ask outside the lock: a slow kubelet must delay neither a scan nor a reload.
            if gone or await self._scanner.our_specs.has_orphans(before, before_asking.dynamic_cdi_dir):
                by_api = await self._holders.held(self._own)
                held = held.union(*(of_api.device_ids for of_api in by_api.values()))
            async with self._one_at_a_time:
                if self._scanner.configuration._replace(resources=before_asking.resources) == before_asking:
                    self._forget(gone - held)
                    # Keep the devices of both configurations: a pod may have received a device since the answer.
                    await self._scanner.prune([*before, *(table.resource for table in self.tables)], held)
        except (HoldersUnknown, OSError) as error:
            message = "cannot check the CDI specs for orphans; all specs stay"
            self._pruning.failed(logging.WARNING, message, directory=before_asking.dynamic_cdi_dir, error=error)
        else:
            self._pruning.went_well()

    def _forget(self, device_ids: frozenset[str]) -> None:
        for table in self.tables:
            # A device may have come back since the question.
            forgotten = sorted(table.long_gone() & device_ids)
            if forgotten:
                table.forget(forgotten)
                log.info(
                    "removed devices that have been gone for too long",
                    resource=table.resource.name,
                    seconds=FORGOTTEN_AFTER,
                    count=len(forgotten),
                    devices=forgotten[:MOST_TOLD],
                )


def _change(before: Mapping[str, DeviceTable], after: Mapping[str, DeviceTable], stayed: Collection[str]) -> str:
    """The resources by the effect of a new configuration. stayed: those that stayed registered."""
    effects = {
        "added": [name for name in after if name not in before],
        "changed": [name for name in stayed if after[name] is not before[name]],
        "registered again": [name for name in after if name in before and name not in stayed],
        "removed": [name for name in before if name not in after],
        "kept": [name for name in stayed if after[name] is before[name]],
    }
    return "; ".join(" ".join([effect, *names]) for effect, names in effects.items() if names) or "no resources"


def _key(table: DeviceTable) -> ServedKey:
    return ServedKey(table.declared.api, table.declared.name)
