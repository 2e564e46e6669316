"""Keeps this node's ResourceSlices in the API server as they are wanted, while the kubelet has the driver registered.

The kubelet deletes all slices of its node when it starts, and those of a driver that it cannot reach for 30 s
(pkg/kubelet/cm/dra/plugin in Kubernetes). A watch shows these and all other changes by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Callable, TypeVar

from ...cluster import in_pod, kubeconfig
from ...cluster.api import (
    AlreadyExists,
    Api,
    ApiError,
    Event,
    Expired,
    LacksRights,
    NotFound,
    Place,
    Unavailable,
)
from ...declaration.dra_api import API_VERSION
from ...declaration.model import DraDriver
from ...declaration.names import hashed_label
from ...support.bounded_calls import in_thread
from ...support.cancel_safe import done_within
from ...support.task_group import TaskGroup
from ...telemetry import metrics
from ...telemetry.logs import Log, Tries
from .slices import Object, Pool, Write, changes, content, tainted

log = Log(__name__)
T = TypeVar("T")

_SLICES = Place("resourceslices", group=API_VERSION)
#: Seconds in which several changes become one write.
_TOGETHER = 0.05
#: Most seconds between two attempts, and between two repairs of what others change.
_LONGEST_PAUSE = 10.0
#: The same while no API server answers or it is overloaded, because all nodes of the cluster ask it again.
_LONGEST_AWAY = 30.0
#: Maximum number of logged sentences to remember beside those that apply now.
_MOST_TOLD = 1000
#: Seconds without a repair after which the next one is at once again.
_PEACE = 60.0
#: Maximum seconds of a watch. Each watch reads the credentials again, which may have been renewed.
_WATCH = 300
#: A watch that ended sooner (seconds) counts as failed.
_SHORT = 5.0
#: Seconds for the API server to see that a slice is this node's. The Node authorizer follows the slices by a watch.
_UNTIL_PERMITTED = 1.0


def connect(driver: DraDriver) -> Api:
    """A client with the credentials of this node's driver, which are read again at each call. Raises ApiError.

    They come from a kubeconfig, such as the kubelet's, or from the pod's service account.
    """
    try:
        if driver.kubeconfig:
            return Api(kubeconfig.read(driver.kubeconfig, runs_programs=False))
        return Api(in_pod.access(os.environ))
    except (kubeconfig.KubeconfigError, OSError) as error:
        raise ApiError(str(error)) from error


class Publisher:
    """Publishes pools as ResourceSlices of one driver and node. Belongs to the running event loop.

    connect: a client with the current credentials; runs in a thread, and may raise ApiError.
    """

    def __init__(self, driver: DraDriver, connect: Callable[[], Api]) -> None:
        self._driver, self._connect = driver, connect
        self._wanted: tuple[Pool, ...] | None = None
        self._is_registered = False
        #: Of the Node object; empty before it is known.
        self._uid = ""
        #: The driver's slices of this node by name, as last seen; None before the first list.
        self._slices: dict[str, Object] | None = None
        #: Whether to list before the next write: the kubelet may have deleted slices, and the connection of the watch
        #: may be dead, which shows only after minutes.
        self._must_list = False
        #: When the current watch began (monotonic seconds); infinite before it does.
        self._watch_began = math.inf
        #: Up to which version of the API the watch has told all changes.
        self._version = ""
        self._due, self._new = asyncio.Event(), asyncio.Event()
        #: Whether the API server stores taints; None if it is not known.
        self._has_taints: bool | None = None
        self._told_of_taints = False
        #: What was sent for a slice, and what the API server made of it, where the two differ.
        self._altered: dict[str, tuple[Any, Any]] = {}
        #: Names that objects of others have, and the names that our slices get instead.
        self._instead: dict[str, str] = {}
        #: The pools and sentences about attributes that were logged.
        self._told: set[tuple[str, str]] = set()
        self._read_problem: str | None = None
        self._write_problem: str | None = None
        self._read_tries, self._write_tries = Tries(log), Tries(log)
        self._selectors = {"fieldSelector": f"spec.nodeName={driver.node},spec.driver={driver.name}"}

    def publish(self, pools: Iterable[Pool]) -> None:
        """Set the pools that the driver shall have; all others are removed. Returns at once."""
        wanted = tuple(pools)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed()
            self._tell(dict.fromkeys((pool.name, reason) for pool in wanted for reason in pool.left_out))

    def _tell(self, left_out: Collection[tuple[str, str]]) -> None:
        """Log why attributes are left out; once, also for a device that goes and returns."""
        for pool, reason in left_out:
            if (pool, reason) not in self._told:
                log.warning("the API does not accept an attribute", pool=pool, reason=reason)
        self._told.update(left_out)
        if len(self._told) > _MOST_TOLD:
            self._told = set(left_out)

    def set_registered(self, is_registered: bool) -> None:
        """Say whether the kubelet has the driver registered. Only then are slices written.

        A kubelet that starts registers the driver again, and may have deleted slices.
        """
        if is_registered or self._is_registered:
            self._is_registered = is_registered
            self._must_list = True
            # The cluster may have another version now.
            self._has_taints = None
            self._changed()

    @property
    def problem(self) -> str | None:
        """Why the slices are not as wanted, or None."""
        return self._write_problem or self._read_problem or next(map(self._loss, self._altered), None)

    async def run(self) -> None:
        """Read and write until cancelled. Without the node's name, nothing is published."""
        if not self._driver.node:
            await asyncio.Event().wait()
        tasks = TaskGroup()
        tasks.start(self._read())
        tasks.start(self._write())
        await tasks.run()

    def _changed(self) -> None:
        self._new.set()
        self._due.set()

    # Reading

    async def _read(self) -> None:
        failures = 0
        while True:
            problem: ApiError | None = None
            try:
                await self._follow()
            except ApiError as error:
                problem = error
                if not (isinstance(error, Unavailable) and error.pause):
                    # A server that asks for a pause still has the changes, and a list would cost it more.
                    self._version = ""
                if not isinstance(error, Expired):
                    self._read_problem = str(error)
                    self._read_tries.failed(logging.WARNING, "cannot read the ResourceSlices of this node", error=error)
            failures = failures + 1 if time.monotonic() - self._watch_began < _SHORT else 0
            if failures or problem:
                await asyncio.sleep(_pause(failures, problem))

    async def _follow(self) -> None:
        """Take each change until the watch ends. Before, list all slices unless the last watch ended well."""
        # A list that failed is never a success, however long the attempt took.
        self._watch_began = math.inf
        api = (await in_thread(self._connect)).impatient()
        if not self._version:
            self._take(*await self._list(api))
        self._watch_began = time.monotonic()
        is_over = threading.Event()
        try:
            await in_thread(self._watch, api, asyncio.get_running_loop(), is_over)
        finally:
            is_over.set()

    def _watch(self, api: Api, loop: asyncio.AbstractEventLoop, is_over: threading.Event) -> None:
        # Not all plugins of a cluster shall ask again at the same time.
        seconds = random.randint(_WATCH * 4 // 5, _WATCH)  # noqa: S311 (no secret)
        for event in api.watch(_SLICES, self._version, seconds, **self._selectors):
            if is_over.is_set():
                return
            with _understood(api, _SLICES):
                _version(event.object)
                if event.kind != "BOOKMARK":
                    _check(event.object)
            # Nobody waits for this thread at the end, so the loop may be closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._hear, event)

    async def _list(self, api: Api) -> tuple[dict[str, Object], str]:
        """The driver's slices of this node by name, and the version of the list. Raises ApiError."""
        listed = await in_thread(api.listed, _SLICES, **self._selectors)
        with _understood(api, _SLICES):
            for each in listed.objects:
                _check(each)
            _number(listed.version)
        return {each["metadata"]["name"]: each for each in listed.objects}, listed.version

    def _take(self, slices: dict[str, Object], version: str) -> None:
        self._slices, self._must_list = slices, False
        self._version = version
        self._altered = {name: each for name, each in self._altered.items() if name in self._slices}
        self._read_problem = None
        self._read_tries.went_well()
        self._changed()

    def _hear(self, event: Event) -> None:
        metadata = event.object["metadata"]
        self._version = metadata["resourceVersion"]
        if event.kind == "BOOKMARK" or self._slices is None:
            return
        name = metadata["name"]
        known = self._slices.get(name)
        if known is not None and _version(event.object) < _version(known):
            # The answer to our own write told a later version.
            return
        if event.kind == "DELETED":
            self._forget(name)
        else:
            self._slices[name] = event.object
        self._due.set()

    def _forget(self, name: str) -> None:
        self._altered.pop(name, None)
        if self._slices is not None:
            self._slices.pop(name, None)

    # Writing

    async def _write(self) -> None:
        # The attempts in a row that failed, or that repaired what others had changed.
        tries, last = 0, -_PEACE
        pause = 0.0
        while True:
            await self._due.wait()
            if tries and not self._new.is_set():
                await done_within(self._new.wait(), pause)
            await asyncio.sleep(_TOGETHER)
            is_new = self._new.is_set()
            self._new.clear()
            self._due.clear()
            if is_new or time.monotonic() - last > _PEACE:
                tries = 0
            try:
                has_written = await self._bring()
            except ApiError as error:
                self._write_problem = str(error)
                self._write_tries.failed(logging.WARNING, "cannot write the ResourceSlices of this node", error=error)
                self._due.set()
                tries += 1
                pause = _pause(tries, error)
            else:
                self._write_problem = None
                self._write_tries.went_well()
                tries += has_written and not is_new
                pause = _pause(tries)
            last = time.monotonic()

    async def _bring(self) -> bool:
        """Write where the slices differ from what is wanted. Returns whether they did. Raises ApiError."""
        if not self._is_registered or self._slices is None:
            return False
        writes = [] if self._must_list else self._changes()
        if not (self._must_list or writes):
            return False
        api = (await in_thread(self._connect)).impatient()
        is_old = self._must_list
        if self._must_list:
            self._slices, self._must_list = (await self._list(api))[0], False
            # The other instance created the slice.
            self._instead = {name: other for name, other in self._instead.items() if name not in self._slices}
        node = await in_thread(api.node, self._driver.node)
        with _understood(api, Place("nodes", self._driver.node)):
            # A node that joined again has another uid, and the slices of the former one are deleted.
            uid = _text(node["metadata"]["uid"])
        # What was wanted or seen meanwhile has made an attempt due.
        if is_old or uid != self._uid or self._due.is_set():
            self._uid = uid
            writes = self._changes()
        if self._has_taints is None and await self._learn_taints(api, writes):
            writes = self._changes()
        problem = None
        for write in writes:
            if not self._is_registered:
                return True
            try:
                await self._do(api, write)
                metrics.SLICE_WRITES.increment("deleted" if write.new is None else "written")
            except Unavailable:
                raise
            except ApiError as error:
                metrics.SLICE_WRITES.increment("failed")
                # One slice that the server refuses keeps no other away.
                problem = problem or error
        if problem:
            raise problem
        if writes:
            log.info("wrote ResourceSlices of this node", number=len(writes))
        return bool(writes)

    def _changes(self) -> list[Write]:
        if self._wanted is None or self._slices is None:
            return []
        pools = [pool.healthy() for pool in self._wanted] if self._has_taints is False else self._wanted
        return changes(self._driver, self._uid, pools, list(self._slices.values()), self._is_same, self._instead)

    async def _learn_taints(self, api: Api, writes: Iterable[Write]) -> bool:
        """Learn whether the API server stores taints, if a write has one. Returns whether that is known now.

        Without the feature gate DRADeviceTaints, which Kubernetes 1.34 and 1.35 have off, it drops taints. A dry run
        shows that before a scheduler sees the device. Raises ApiError.
        """
        for new in (write.new for write in writes):
            if new is not None and tainted(new):
                # A name that no slice has.
                metadata = {**new["metadata"], "name": hashed_label(os.urandom(16).hex())}
                for key in ("uid", "resourceVersion"):
                    metadata.pop(key, None)
                answer = await in_thread(api.dry().create, _SLICES, {**new, "metadata": metadata})
                with _understood(api, _SLICES):
                    has_taints = tainted(answer) == tainted(new)
                if has_taints:
                    self._has_taints = True
                else:
                    self._do_without_taints()
                return True
        return False

    def _do_without_taints(self) -> None:
        self._has_taints = False
        if not self._told_of_taints:
            log.info("the API server stores no taints: an unhealthy device leaves its ResourceSlice")
            self._told_of_taints = True

    async def _do(self, api: Api, write: Write) -> None:
        old, new = write
        if old is None:
            if new is not None:
                await self._create(api, new)
            return
        name, uid = old["metadata"]["name"], old["metadata"]["uid"]
        place = _SLICES._replace(name=name)
        try:
            if new is None:
                await self._permitted(old, api.delete, place, uid)
                self._forget(name)
            else:
                self._keep(api, new, await self._permitted(old, api.replace, place, new))
        except NotFound:
            self._forget(name)
            self._due.set()

    async def _create(self, api: Api, new: Object) -> None:
        try:
            self._keep(api, new, await in_thread(api.create, _SLICES, new))
        except AlreadyExists:
            # Either the other instance created it, which the next list shows, or another node took the name, which
            # any node can.
            name = new["metadata"]["name"]
            self._instead[name] = hashed_label(f"{name}/{os.urandom(16).hex()}")
            self._must_list = True
            raise

    async def _permitted(self, old: Object, request: Callable[..., T], *arguments: Any) -> T:
        """The answer to a request about an object that exists; where the server lacks it, raises NotFound.

        The Node authorizer refuses a node's request about a slice that it does not know yet, or no longer.
        """
        name, until, pause = old["metadata"]["name"], time.monotonic() + _UNTIL_PERMITTED, 0.02
        while True:
            try:
                return await in_thread(request, *arguments)
            except LacksRights as error:
                known = (self._slices or {}).get(name)
                if known is None or known["metadata"]["uid"] != old["metadata"]["uid"]:
                    raise NotFound(str(error)) from error
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(pause)
            pause *= 2

    def _keep(self, api: Api, sent: Object, answer: Object) -> None:
        with _understood(api, _SLICES):
            _check(answer)
        name = answer["metadata"]["name"]
        if tainted(sent) - tainted(answer):
            # Another API server of the cluster, which drops taints.
            self._do_without_taints()
            self._changed()
        if content(answer) == content(sent):
            self._altered.pop(name, None)
        else:
            self._altered[name] = content(sent), content(answer)
        # The watch may already have told this version, and that somebody deleted the slice after that.
        if self._slices is not None and _version(answer) > _number(self._version):
            self._slices[name] = answer

    def _is_same(self, old: Object, new: Object) -> bool:
        sent, got = content(new), content(old)
        return sent == got or self._altered.get(old["metadata"]["name"]) == (sent, got)

    def _loss(self, name: str) -> str:
        sent, got = self._altered[name]
        return (
            f"the API server changed ResourceSlice {name} while it stored it: {_difference(sent[0], got[0], 'spec')} "
            "differs from what was sent: check its feature gates and its mutating admission policies"
        )


def _pause(number: int, problem: ApiError | None = None) -> float:
    """The seconds before another attempt. number: of attempts that had no lasting success. problem: of the last one."""
    is_away = isinstance(problem, Unavailable)
    longest: float = min(_LONGEST_AWAY if is_away else _LONGEST_PAUSE, _TOGETHER * 2 ** min(number, 16))
    pause = longest * random.uniform(0.8, 1.0)  # noqa: S311 (no secret)
    return max(pause, problem.pause) if isinstance(problem, Unavailable) else pause


@contextlib.contextmanager
def _understood(api: Api, place: Place) -> Iterator[None]:
    """Raise ApiError if the parts of an answer are not those of an API server."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise api.no_api_server(place, repr(error)) from error


def _check(each: Object) -> None:
    """Read what is ever read of a ResourceSlice here and by ``changes``. Raises the errors of ``_understood``."""
    spec, pool = each["spec"], each["spec"]["pool"]
    for part in (each["metadata"]["name"], each["metadata"]["uid"], pool["name"]):
        _text(part)
    for device in spec.get("devices") or ():
        _text(device["name"])
    tainted(each)
    content(each)
    if not isinstance(pool["generation"], int):
        raise TypeError("the generation of a pool is no number")
    _version(each)


def _text(part: Any) -> str:
    if not isinstance(part, str):
        raise TypeError(f"{part!r} is no text")
    return part


def _version(each: Object) -> int:
    return _number(each["metadata"]["resourceVersion"])


def _number(version: str) -> int:
    """A resourceVersion as the number that it is (KEP-5504); 0 for none."""
    return int(version) if version.isdecimal() else 0


def _difference(sent: Any, got: Any, path: str) -> str:
    """The path of the first part that differs."""
    if isinstance(sent, Mapping) and isinstance(got, Mapping):
        for key in [*sent, *got]:
            if sent.get(key) != got.get(key):
                return _difference(sent.get(key), got.get(key), f"{path}.{key}")
    if isinstance(sent, list) and isinstance(got, list) and len(sent) == len(got):
        for index, (one, other) in enumerate(zip(sent, got)):
            if one != other:
                return _difference(one, other, f"{path}[{index}]")
    return path
