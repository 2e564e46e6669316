"""Keeps the plugin's CDI specs as its devices need them, and tells which names a container cannot use yet."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Collection, Sequence
from typing import Any, Callable

from ..cdi import writer
from ..cdi.links import Links
from ..declaration import Resource
from ..support.bounded_calls import Call, Key, NoAnswer
from ..telemetry.logs import Log, Tries
from .given import SpecNames

log = Log(__name__)

#: First and longest pause, in seconds, before a failed write is repeated.
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 15.0
_AWAITED = "the CDI spec is written after the other plugin instance on this node ends"


class OurSpecs:
    """Writes one spec for each resource. wake: called when a failed write may be repeated.

    links: its ``calls`` run every read and write. If a write hangs, its resource waits, and other resources go on.
    """

    def __init__(self, links: Links, wake: Callable[[], None]) -> None:
        self._links, self._calls = links, links.calls
        #: By resource, the spec as last written; None if the resource needs none.
        self._written: dict[str, writer.Written | None] = {}
        self._wake = wake
        self._failed: dict[str, FailedWrite] = {}
        self._omitting = Tries(log)

    async def write(self, resources: Sequence[Resource], directory: str, names: SpecNames) -> dict[str | None, str]:
        """Write the specs. Returns the fully qualified names that are not written, each with the reason."""
        wanted = {resource.name: (resource, directory, *names) for resource in resources}
        self._failed = {name: self._failed.get(name) or FailedWrite(self._wake) for name in wanted}
        waiting = {name: self._failed[name].waiting(each) for name, each in wanted.items()}
        due: list[Call[writer.Written | None]] = [
            (
                Key(each.name, "its CDI spec"),
                functools.partial(writer.write, each, self._links, directory, self._written.get(each.name), *names),
            )
            for each in resources
            if waiting[each.name] is None
        ]
        answers = {key.group: answer for key, answer in (await self._calls.run(due)).items()}
        former, self._written = self._written, {}
        unwritten: dict[str | None, str] = {}
        for resource in resources:
            name = resource.name
            answer = waiting[name] or answers[name]
            if not isinstance(answer, Exception):
                self._written[name] = answer
                del self._failed[name]
                continue
            if isinstance(answer, NoAnswer):
                self._written[name] = former.get(name)
            why, lacking = _lacking(answer, former.get(name), resource, self._links)
            unwritten.update(dict.fromkeys(lacking, why))
            if waiting[name] is None:
                self._failed[name].note(wanted[name], answer, resource=name, error=why)
        await self._omit(names.blocked and names.blocked - writer.cdi_names(resources), directory)
        return unwritten

    async def _omit(self, names: Collection[str], directory: str) -> None:
        """Omit removed devices from the specs if other devices have their paths now."""
        try:
            omitted = await self._calls.ask(writer.omit, names, directory) if names else []
        except OSError as error:
            message = "cannot remove a device from the CDI specs"
            self._omitting.failed(logging.ERROR, message, directory=directory, error=error)
            return
        self._omitting.went_well()
        if omitted:
            log.warning("removed devices from the CDI specs, because others have their paths now", devices=omitted)

    async def awaited(self, resources: Sequence[Resource], directory: str) -> dict[str | None, str]:
        """The names missing from the specs until another instance, which writes the specs, has ended."""
        try:
            missing = await self._calls.ask(writer.missing, resources, self._links, directory)
        except OSError:
            missing = writer.cdi_names(resources)
        return dict.fromkeys(missing, _AWAITED)

    async def has_orphans(self, resources: Sequence[Resource], directory: str) -> bool:
        """Whether the specs have devices that none of the resources has. Raises OSError."""
        return bool(await self._calls.ask(writer.prune, resources, self._links, (), directory, True))

    async def prune(self, resources: Sequence[Resource], held: Collection[str], directory: str) -> bool:
        """Remove devices that no resource has and no pod holds, as ``writer.prune``. Returns whether there were any."""
        gone = await self._calls.ask(writer.prune, resources, self._links, held, directory)
        if gone:
            log.info("removed orphaned devices from the CDI specs", directory=directory, devices=gone)
        return bool(gone)


class FailedWrite:
    """The failures of a resource's write, which is repeated after a growing pause and logged once a change.

    wake: called when the write may be repeated. A failed write leaves and removes a file, which wakes a watch of its
    directory. Without a pause, a full disk would keep the plugin busy.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._tries = Tries(log)
        #: What the write should write, why it failed, and when it may be repeated (monotonic seconds).
        self._wanted: Any = None
        self._error: Exception | None = None
        self._pause = self._due = 0.0

    def waiting(self, wanted: Any) -> Exception | None:
        """The error of the last write, if the same write must not be repeated yet."""
        return self._error if self._wanted == wanted and time.monotonic() < self._due else None

    def note(self, wanted: Any, failure: Exception, **values: Any) -> None:
        """Note that the write failed now. values: for the log."""
        self._tries.failed(logging.ERROR, "cannot write a CDI spec", **values)
        if isinstance(failure, NoAnswer):
            # A write that hangs is not begun a second time.
            return
        self._pause = min(2 * self._pause, _LAST_PAUSE) if self._wanted == wanted else _FIRST_PAUSE
        self._wanted, self._error, self._due = wanted, failure, time.monotonic() + self._pause
        # Without a file's event, no scan may be due before the next sweep.
        asyncio.get_running_loop().call_later(self._pause, self._wake)


def _lacking(
    error: Exception, before: writer.Written | None, declared: Resource, links: Links
) -> tuple[str, frozenset[str]]:
    """Why a spec is not written, and the names that it lacks. before: the spec as last written. Raises other errors."""
    if isinstance(error, writer.NotWritten):
        return str(error), error.names
    if not isinstance(error, NoAnswer):
        raise error
    why, names, now = f"writing the CDI spec {error}", writer.cdi_names([declared]), links.followed(declared)
    if before is None or now._replace(devices=()) != before.resource._replace(devices=()):
        return why, names
    # In the spec, the kept names do not have the edits of the resource.
    written = {device.id: device for device in before.resource.devices if now.cdi_name(device) not in before.kept}
    same = tuple(device for device in now.devices if written.get(device.id) == device)
    return why, names - writer.cdi_names([now._replace(devices=same)])
