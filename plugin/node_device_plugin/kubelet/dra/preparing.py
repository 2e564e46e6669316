"""Prepares and releases the devices of claims, as the kubelet asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Callable

from ...cluster.api import Api, ApiError, Place
from ...declaration import Device, Resource
from ...declaration.dra_api import API_VERSION
from ...declaration.model import DraDriver
from ...devices.commands import pre_start
from ...support.bounded_calls import BoundedCalls, Call, Key, NoAnswer
from ...support.cancel_safe import result_within, to_the_end
from ...telemetry.logs import Log, Tries
from . import record_path
from .claims import ClaimId, Find, Held, Offered, PreparedClaim, Refused, again, plan
from .records import RecordError, Records

log = Log(__name__)

#: Seconds for which a client is used again. Later, another client reads the credentials, which may have been renewed.
_FRESH = 60.0
#: Most claims that are read from the API server and given devices at once. Each takes a thread.
_MOST_CALLS = 8
#: Maximum seconds for which a caller waits for the API server, and for which a thread counts after its caller has left.
_LONGEST_CALL = 60.0
#: Names the calls for records.
_READ = Key("the record of prepared claims", "")
#: Names the calls of the API server.
_CLAIMS = "claims in the API server"

#: A request, its resource with a command, and the devices.
_Commands = tuple[str, Resource, list[Device]]


class _Giving:
    """A claim that gets its devices, by calls in threads. commands: to run before the claim is recorded.

    is_over: whether nobody waits any longer. at_work: the threads that work for the claim. A thread leaves ``at_work``
    before it reads ``is_over``, and the caller sets ``is_over`` before it reads ``at_work``. So one of them sees that
    both have left.
    """

    def __init__(self, asked: ClaimId) -> None:
        self.asked = asked
        self.commands: Sequence[_Commands] = ()
        self.is_over = self.has_slot = False
        self.at_work: set[int] = set()


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
        #: Taken by threads, one of which plans at a time.
        self._planning = threading.Lock()
        #: Planned claims that get their devices now: no other claim may get these devices.
        self._under_way: dict[_Giving, PreparedClaim] = {}
        #: The client in use, with the time when it was made (monotonic seconds).
        self._client: tuple[Api, float] | None = None
        self._free, self._tries = asyncio.Semaphore(_MOST_CALLS), Tries(log)

    async def prepared(self) -> list[PreparedClaim]:
        """The claims that have devices, or get them now. Raises RecordError and OSError."""
        under_way, self.known = await self._calls.call(_READ, self._read_in_thread)
        return list({**{each.id.uid: each for each in under_way}, **self.known}.values())

    def _read_in_thread(self) -> tuple[list[PreparedClaim], dict[str, PreparedClaim]]:
        with self._alone():
            return list(self._under_way.values()), dict(self._records.read(self.directory))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Let no other thread plan. Raises RecordError if one hangs, so that this thread is free for a release."""
        if not self._planning.acquire(timeout=self._calls.limit):
            raise RecordError(f"another call reads the records in {self.directory}, and hangs")
        try:
            yield
        finally:
            self._planning.release()

    async def prepare(self, asked: ClaimId) -> PreparedClaim:
        """Give a claim its devices, the same at each call. Raises Refused.

        If the caller is cancelled, the claim is prepared completely or not at all.
        """
        if not asked.is_valid:
            raise Refused(f"{asked}: {asked.uid!r} is no uid")
        async with self._lock_of(asked.uid):
            giving = _Giving(asked)
            try:
                planned = await self._give(giving)
                if giving.commands:
                    await _run(asked, giving.commands)
                    await self._change(asked, self._records.write, self.directory, planned, True)
            except Held as error:
                raise self._still_held(asked, error) from error
            except (RecordError, OSError) as error:
                raise Refused(f"{asked}: cannot record what it has: {error}") from error
            finally:
                giving.is_over = True
                if giving.at_work:
                    asyncio.get_running_loop().call_later(_LONGEST_CALL, self._free_slot, giving)
                else:
                    self._end(giving)
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

    async def _change(self, asked: ClaimId, change: Callable[..., None], *arguments: Any) -> None:
        """Write or remove a record to the end, even if the kubelet does not wait for it."""
        await to_the_end(self._calls.call(_record(asked), functools.partial(change, *arguments)))

    async def _give(self, giving: _Giving) -> PreparedClaim:
        """Read a claim from the API server, plan what it gets, and record that unless commands must run before.

        All in one thread, because a busy node wakes each thread late. Raises Refused, also Held, RecordError and
        OSError.
        """
        asked, found = giving.asked, []
        place = Place("resourceclaims", asked.name, asked.namespace, API_VERSION)
        # A call for which nobody waits any longer does not hold up the next one.
        of_claim, of_record = Key(_CLAIMS, f"{asked.uid}/{id(giving)}"), _record(asked)
        working = functools.partial(self._working, giving, asyncio.get_running_loop())

        def look() -> None:
            with working():
                found.append(self._api().get(place))

        def give() -> PreparedClaim:
            with working():
                return self._give_in_thread(giving, found[0])

        def give_if_found() -> PreparedClaim | None:
            return give() if found else None

        await self._free.acquire()
        giving.has_slot = True
        calls: list[Call[PreparedClaim | None]] = [(of_claim, look), (of_record, give_if_found)]
        answers = await self._calls.run(calls)
        looked, given = answers[of_claim], answers[of_record]
        if isinstance(looked, NoAnswer) and looked.later is not None:
            looked = await _later(looked.later)
        if isinstance(looked, (ApiError, NoAnswer)):
            # The next call reads the credentials again.
            self._client = None
            # Users see the answer in the events of their pods, and must not see addresses and paths of the cluster.
            why = f"the call of the API server {looked}" if isinstance(looked, NoAnswer) else looked
            self._tries.failed(logging.WARNING, "cannot read a claim", error=why)
            raise Refused(
                f"{asked}: cannot read it from the API server, the kubelet tries again; see the plugin's log"
            ) from looked
        if isinstance(looked, Exception):
            raise looked
        self._tries.went_well()
        if given is None:
            # The API server was slow, so another thread gives the claim its devices.
            given = await self._calls.call(of_record, give)
        if isinstance(given, Exception):
            raise given
        # Commands may take long.
        self._free_slot(giving)
        return given

    @contextlib.contextmanager
    def _working(self, giving: _Giving, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Note that this thread works for a claim. Raises Refused if nobody waits any longer."""
        thread = threading.get_ident()
        giving.at_work.add(thread)
        try:
            if giving.is_over:
                raise _is_over(giving)
            yield
        finally:
            giving.at_work.discard(thread)
            if giving.is_over:
                # At the end of the process, the loop may be closed.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._end, giving)

    def _end(self, giving: _Giving) -> None:
        """Nobody works for the claim any more, or waits."""
        self._under_way.pop(giving, None)
        self._free_slot(giving)

    def _free_slot(self, giving: _Giving) -> None:
        if giving.has_slot:
            giving.has_slot = False
            self._free.release()

    def _give_in_thread(self, giving: _Giving, claim: dict[str, Any] | None) -> PreparedClaim:
        """Plan and record what a claim gets. claim: from the API server; None if it does not exist there."""
        asked, directory = giving.asked, self.directory
        with self._alone():
            # Before the read, because a claim that is under way now may be recorded after it.
            under_way = list(self._under_way.values())
            prepared = self._records.read(directory)
            known = prepared.get(asked.uid)
            if known is not None:
                planned = again(claim, known, self._driver.name)
            else:
                others = [*prepared.values(), *under_way]
                planned = plan(asked, claim, self._driver.name, self._find, others, self._real)
                giving.commands = self._commands(planned)
            self._under_way[giving] = planned
        if giving.is_over:
            raise _is_over(giving)
        if giving.commands:
            self._records.begin(directory, asked.uid)
        else:
            # Also for a known claim, because its spec may be missing: an earlier release may have failed halfway.
            self._records.write(directory, planned)
        return planned

    def _api(self) -> Api:
        client = self._client
        if client is None or time.monotonic() - client[1] > _FRESH:
            client = self._client = self._connect().unlimited(), time.monotonic()
        return client[0]

    def _commands(self, planned: PreparedClaim) -> list[_Commands]:
        """The requests with a command to run, each with its resource and devices."""
        groups: dict[tuple[str, str], list[Offered]] = {}
        for each in planned.devices:
            # An administrator's claim only looks at devices that other claims use.
            if each.is_admin:
                continue
            offered = self._find(each.pool, each.name)
            if offered is None:
                # Without this, the claim would get the device without its command.
                raise Refused(f"{planned.id}: {each.name} of {each.pool} changes now, the kubelet tries again")
            if offered.resource.pre_start.command:
                groups.setdefault((each.request, each.resource), []).append(offered)
        # Two shares of a device run its command once.
        return [
            (request, offered[0].resource, list({each.place: each.device for each in offered}.values()))
            for (request, _resource), offered in groups.items()
        ]


def _is_over(giving: _Giving) -> Refused:
    return Refused(f"{giving.asked}: the kubelet no longer waits for it")


def _record(asked: ClaimId) -> Key:
    return Key(_READ.group, asked.uid)


async def _later(call: asyncio.Future[Any]) -> Any:
    """The result of a call for which an API server takes longer than a file system may, or NoAnswer."""
    try:
        return await result_within(asyncio.shield(call), _LONGEST_CALL)
    except asyncio.TimeoutError:
        return NoAnswer(f"did not answer in {_LONGEST_CALL:g} s")


async def _run(claim: ClaimId, commands: Sequence[_Commands]) -> None:
    """Run the command for each device. Raises Refused."""
    problems = await asyncio.gather(*(pre_start(resource, devices) for _request, resource, devices in commands))
    for (request, resource, _devices), problem in zip(commands, problems):
        if problem is not None:
            raise Refused(f"{claim}, request {request}, {resource.name}: pre_start failed: {problem}")
