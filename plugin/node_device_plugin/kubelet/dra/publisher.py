"""Keeps this node's ResourceSlices in the API server as they are wanted, while the kubelet has the driver registered.

The kubelet deletes all slices of its node when it starts, and those of a driver that it cannot reach for 30 s
(pkg/kubelet/cm/dra/plugin in Kubernetes). A watch shows these and all other changes by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Callable, TypeVar

from ...cluster import in_pod, kubeconfig
from ...cluster.api import Api, ApiError, Event, Expired, LacksRights, Listed, NotFound, Place, Unavailable
from ...declaration.dra_api import API_VERSION
from ...declaration.model import DraDriver
from ...support.bounded_calls import in_thread
from ...support.cancel_safe import done_within
from ...support.task_group import TaskGroup
from ...telemetry import metrics
from ...telemetry.logs import Log, Tries
from .slices import Object, Pool, Write, changes, content

log = Log(__name__)
T = TypeVar("T")

_SLICES = Place("resourceslices", group=API_VERSION)
#: Seconds in which several changes become one write.
_TOGETHER = 0.05
#: Most seconds between two attempts, and between two repairs of what others change.
_LONGEST_PAUSE = 10.0
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
        #: Up to which version of the API the watch has told all changes.
        self._version = ""
        self._due, self._new = asyncio.Event(), asyncio.Event()
        #: What was sent for a slice, and what the API server made of it, where the two differ.
        self._altered: dict[str, tuple[Any, Any]] = {}
        self._read_problem: str | None = None
        self._write_problem: str | None = None
        self._read_tries, self._write_tries = Tries(log), Tries(log)
        self._selectors = {"fieldSelector": f"spec.nodeName={driver.node},spec.driver={driver.name}"}

    def publish(self, pools: Iterable[Pool]) -> None:
        """Set the pools that the driver shall have; all others are removed. Returns at once."""
        wanted = tuple(pools)
        if wanted != self._wanted:
            told = {reason for pool in self._wanted or () for reason in pool.left_out}
            for pool in wanted:
                for reason in pool.left_out:
                    if reason not in told:
                        log.warning("the API does not accept an attribute", pool=pool.name, reason=reason)
            self._wanted = wanted
            self._changed()

    def set_registered(self, is_registered: bool) -> None:
        """Say whether the kubelet has the driver registered. Only then are slices written.

        A kubelet that starts registers the driver again, and may have deleted slices.
        """
        if is_registered or self._is_registered:
            self._is_registered = is_registered
            self._must_list = True
            self._changed()

    @property
    def problem(self) -> str | None:
        """Why the slices are not as wanted, or None."""
        return self._write_problem or self._read_problem or next(map(self._loss, self._altered), None)

    async def run(self) -> None:
        """Read and write until cancelled."""
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
            began = time.monotonic()
            try:
                await self._follow()
            except ApiError as error:
                self._version = ""
                if not isinstance(error, Expired):
                    self._read_problem = str(error)
                    self._read_tries.failed(logging.WARNING, "cannot read the ResourceSlices of this node", error=error)
            failures = failures + 1 if time.monotonic() - began < _SHORT else 0
            if failures:
                await asyncio.sleep(_pause(failures))

    async def _follow(self) -> None:
        """Take each change until the watch ends. Before, list all slices unless the last watch ended well."""
        api = await in_thread(self._connect)
        if not self._version:
            self._take(await in_thread(api.listed, _SLICES, **self._selectors))
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
            # Nobody waits for this thread at the end, so the loop may be closed.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._hear, event)

    def _take(self, listed: Listed) -> None:
        self._slices, self._must_list = _by_name(listed), False
        self._version = listed.version
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
        while True:
            await self._due.wait()
            if tries and not self._new.is_set():
                await done_within(self._new.wait(), _pause(tries))
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
            else:
                self._write_problem = None
                self._write_tries.went_well()
                tries += has_written and not is_new
            last = time.monotonic()

    async def _bring(self) -> bool:
        """Write where the slices differ from what is wanted. Returns whether they did. Raises ApiError."""
        if not self._is_registered or self._slices is None or not (self._must_list or self._changes()):
            return False
        api = await in_thread(self._connect)
        if self._must_list:
            self._slices = _by_name(await in_thread(api.listed, _SLICES, **self._selectors))
            self._must_list = False
        # A node that joined again has another uid, and the slices of the former one are deleted.
        self._uid = (await in_thread(api.node, self._driver.node))["metadata"]["uid"]
        writes, problem = self._changes(), None
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
        return changes(self._driver, self._uid, self._wanted, list(self._slices.values()), self._is_same)

    async def _do(self, api: Api, write: Write) -> None:
        old, new = write
        if old is None:
            if new is not None:
                self._keep(new, await in_thread(api.create, _SLICES, new))
            return
        name, uid = old["metadata"]["name"], old["metadata"]["uid"]
        place = _SLICES._replace(name=name)
        try:
            if new is None:
                await self._permitted(old, api.delete, place, uid)
                self._forget(name)
            else:
                self._keep(new, await self._permitted(old, api.replace, place, new))
        except NotFound:
            self._forget(name)
            self._due.set()

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

    def _keep(self, sent: Object, answer: Object) -> None:
        name = answer["metadata"]["name"]
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


def _pause(number: int) -> float:
    """The seconds before another attempt. number: of attempts that had no lasting success."""
    longest: float = min(_LONGEST_PAUSE, _TOGETHER * 2 ** min(number, 16))
    return longest * random.uniform(0.8, 1.0)  # noqa: S311 (no secret)


def _by_name(listed: Listed) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in listed.objects}


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
