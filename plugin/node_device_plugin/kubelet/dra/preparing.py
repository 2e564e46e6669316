"""Prepares and releases the devices of claims, as the kubelet asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
import weakref
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

from ...cluster.api import Api, ApiError, Place
from ...declaration import Device, Resource
from ...declaration.dra_api import API_VERSION
from ...declaration.model import DraDriver
from ...devices.commands import pre_start
from ...support.bounded_calls import BoundedCalls, Key, in_thread
from ...support.cancel_safe import to_the_end
from ...telemetry.logs import Log, Tries
from . import record_path
from .claims import ClaimId, Find, Held, Offered, PreparedClaim, Refused, again, plan
from .records import RecordError, Records

log = Log(__name__)

#: Seconds for which a client is used again. Later, another client reads the credentials, which may have been renewed.
_FRESH = 60.0
#: Most calls of the API server at once. Each takes a thread.
_MOST_CALLS = 8
#: Maximum seconds of a call, which then no longer counts.
_LONGEST_CALL = 60.0
#: Names the calls for records.
_READ = Key("the record of prepared claims", "")


class _Seen(NamedTuple):
    """A claim in the API server, or None. prepared: the claims with a record; None if they could not be read.

    number: of changes to records before they were read.
    """

    claim: dict[str, Any] | None
    number: int
    prepared: dict[str, PreparedClaim] | None


class Preparing:
    """Prepares claims in any number at once, but does one thing at a time with each claim.

    find: the driver's devices. connect: a new client with the current credentials. calls: run reads and writes of
    files. real: resolves the links in a host path.
    """

    def __init__(
        self,
        driver: DraDriver,
        find: Find,
        connect: Callable[[], Api],
        calls: BoundedCalls,
        real: Callable[[str], str],
    ) -> None:
        #: The directory of our CDI specs, below which the records are.
        self.directory = ""
        #: The claims that have devices, as last known, by uid.
        self.known: dict[str, PreparedClaim] = {}
        self._driver, self._find, self._connect, self._calls, self._real = driver, find, connect, calls, real
        self._records = Records()
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._planning = asyncio.Lock()
        #: Claims that get their devices now, by uid: no other claim may get these devices.
        self._under_way: dict[str, PreparedClaim] = {}
        #: Is another number after each change of a record, and while one is under way.
        self._number = 0
        #: The client in use, with the time when it was made (monotonic seconds).
        self._client: tuple[Api, float] | None = None
        self._free, self._tries = asyncio.Semaphore(_MOST_CALLS), Tries(log)

    async def prepared(self) -> list[PreparedClaim]:
        """The claims that have devices, or get them now. Raises RecordError and OSError."""
        return list({**self._under_way, **await self._read()}.values())

    async def prepare(self, asked: ClaimId) -> PreparedClaim:
        """Give a claim its devices, the same at each call. Raises Refused.

        If the caller is cancelled, the claim is prepared completely or not at all.
        """
        if not asked.is_valid:
            raise Refused(f"{asked}: {asked.uid!r} is no uid")
        async with self._lock_of(asked.uid):
            seen = await self._look(asked)
            try:
                planned, is_known = await self._plan(asked, seen)
                commands = [] if is_known else self._commands(planned)
                if commands:
                    await self._change(asked, self._records.begin, self.directory, asked.uid)
                    await _run(planned.id, commands)
                # Also for a known claim, because its spec may be missing: an earlier release may have failed halfway.
                await self._change(asked, self._records.write, self.directory, planned, bool(commands))
            except Held as error:
                raise self._still_held(asked, error) from error
            except (RecordError, OSError) as error:
                raise Refused(f"{asked}: cannot record what it has: {error}") from error
            finally:
                self._under_way.pop(asked.uid, None)
        self.known[asked.uid] = planned
        return planned

    async def unprepare(self, asked: ClaimId) -> None:
        """Take what a claim has; without effect for a claim that has nothing. Raises Refused."""
        if not asked.is_valid:
            return
        async with self._lock_of(asked.uid):
            try:
                await self._change(asked, self._records.remove, self.directory, asked.uid)
            except OSError as error:
                raise Refused(f"{asked}: cannot release what it has: {error}") from error
        self.known.pop(asked.uid, None)

    async def _plan(self, asked: ClaimId, seen: _Seen) -> tuple[PreparedClaim, bool]:
        """What a claim gets, and whether it has that already. Raises Refused, also Held, RecordError and OSError."""
        async with self._planning:
            # Before the read, because a claim that is under way now may be recorded after it.
            under_way = tuple(self._under_way.values())
            if seen.prepared is not None and seen.number == self._number:
                prepared = self.known = seen.prepared
            else:
                prepared = await self._read()
            known = prepared.get(asked.uid)
            if known is not None:
                return again(seen.claim, known, self._driver.name), True
            others = [*prepared.values(), *under_way]
            planned = plan(asked, seen.claim, self._driver.name, self._find, others, self._real)
            self._under_way[asked.uid] = planned
            return planned, False

    def _still_held(self, asked: ClaimId, error: Held) -> Refused:
        path = record_path(self.directory, error.holder.id.uid)
        unreleased = "which the kubelet has not released yet"
        if error.holder.id.namespace == asked.namespace:
            return Refused(
                f"{error}, {unreleased}: end the pods of that claim. If none is left after some minutes, remove {path} "
                "on the node"
            )
        # Users see the answer in the events of their pods, and may not know what other namespaces have.
        log.warning("a claim of another namespace has the device", error=error, record=path)
        return Refused(
            f"{error.where}: is still prepared for a claim of another namespace, {unreleased}; see the plugin's log on "
            "the node"
        )

    def _lock_of(self, uid: str) -> asyncio.Lock:
        return self._locks.setdefault(uid, asyncio.Lock())

    async def _read(self) -> dict[str, PreparedClaim]:
        self.known = await self._calls.call(_READ, functools.partial(self._records.read, self.directory))
        return dict(self.known)

    async def _change(self, asked: ClaimId, change: Callable[..., None], *arguments: Any) -> None:
        """Write or remove a record to the end, even if the kubelet does not wait for it."""
        key = Key(_READ.group, asked.uid)
        self._number += 1
        try:
            await to_the_end(self._calls.call(key, functools.partial(change, *arguments)))
        finally:
            self._number += 1

    async def _look(self, asked: ClaimId) -> _Seen:
        """Read a claim from the API server, and then the records. Raises Refused if the claim cannot be read."""
        place = Place("resourceclaims", asked.name, asked.namespace, API_VERSION)
        await self._free.acquire()
        call = asyncio.ensure_future(in_thread(self._look_in_thread, place))
        # A caller that is cancelled leaves the thread of its call, which no longer counts after a while.
        end = asyncio.get_running_loop().call_later(_LONGEST_CALL, call.cancel)
        call.add_done_callback(functools.partial(self._has_ended, end))
        try:
            found = await asyncio.shield(call)
        except (ApiError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not call.cancelled():
                raise
            # The next call reads the credentials again.
            self._client = None
            # Users see the answer in the events of their pods, and must not see addresses and paths of the cluster.
            why = str(error) or f"the API server did not answer in {_LONGEST_CALL:g} s"
            self._tries.failed(logging.WARNING, "cannot read a claim", error=why)
            raise Refused(
                f"{asked}: cannot read it from the API server, the kubelet tries again; see the plugin's log"
            ) from error
        self._tries.went_well()
        return found

    def _look_in_thread(self, place: Place) -> _Seen:
        claim, number = self._api().get(place), self._number
        # A thread more would cost more than the read.
        with contextlib.suppress(RecordError, OSError):
            return _Seen(claim, number, self._records.read(self.directory))
        return _Seen(claim, number, None)

    def _has_ended(self, end: asyncio.TimerHandle, call: asyncio.Future[Any]) -> None:
        end.cancel()
        self._free.release()
        if not call.cancelled():
            # Without this, asyncio logs an error for which nobody waits.
            call.exception()

    def _api(self) -> Api:
        client = self._client
        if client is None or time.monotonic() - client[1] > _FRESH:
            client = self._client = self._connect().unlimited(), time.monotonic()
        return client[0]

    def _commands(self, planned: PreparedClaim) -> list[tuple[str, Resource, list[Device]]]:
        """The requests with a command to run, each with its resource and devices."""
        groups: dict[tuple[str, str], list[Offered]] = {}
        for each in planned.devices:
            # An administrator's claim only looks at devices that other claims use.
            offered = None if each.is_admin else self._find(each.pool, each.name)
            if offered is not None and offered.resource.pre_start.command:
                groups.setdefault((each.request, each.resource), []).append(offered)
        # Two shares of a device run its command once.
        return [
            (request, offered[0].resource, list({each.place: each.device for each in offered}.values()))
            for (request, _resource), offered in groups.items()
        ]


async def _run(claim: ClaimId, commands: Sequence[tuple[str, Resource, list[Device]]]) -> None:
    """Run the command for each device. Raises Refused."""
    problems = await asyncio.gather(*(pre_start(resource, devices) for _request, resource, devices in commands))
    for (request, resource, _devices), problem in zip(commands, problems):
        if problem is not None:
            raise Refused(f"{claim}, request {request}, {resource.name}: pre_start failed: {problem}")
