"""Runs every check that a device must pass to be healthy."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Callable

from ...declaration import Device, Resource
from ...support.bounded_calls import BoundedCalls, Call, Key, NoAnswer
from .cdi_names import CdiNames, source_problem
from .nodes import open_problem, unhealthy_reason
from .user_commands import UserCommands

#: Seconds that the checks of one device may take.
_LIMIT = 5.0
#: The same for a check that uses the CPU all the time, such as the read of a spec with 50,000 devices.
_BUSY = 30.0


class Health:
    """Checks devices. on_news: called when a health command changes its answer or its next run is due."""

    def __init__(self, on_news: Callable[[], None], limit: float = _LIMIT) -> None:
        self._calls, self._looks = (BoundedCalls(limit, busy=_BUSY) for _each in range(2))
        self._commands = UserCommands(on_news)
        self._names: dict[Sequence[str], CdiNames] = {}

    async def check(
        self,
        resources: Sequence[Resource],
        spec_dirs: Sequence[str],
        unwritten: Mapping[str | None, str] = MappingProxyType({}),
    ) -> dict[str, dict[str, str | None]]:
        """By resource, the id of every device with the reason why it cannot be used, or None.

        spec_dirs: where the runtime reads CDI specs; if empty, CDI names are not checked. unwritten: CDI names that our
        specs do not have as wanted, each with the reason, which counts instead of the check of the name.
        """
        names = self._names.setdefault(tuple(spec_dirs), CdiNames(spec_dirs)) if spec_dirs else None
        unread = None
        if names is not None:
            needed = dict.fromkeys(
                name for resource in resources for device in resource.devices for name in resource.cdi_names(device)
            )
            # The specs are read first, because the checks of devices need them.
            unread = await self._unread(names, needed)
            if unread is None:
                await names.look_at_mounts_and_hooks(self._calls, needed)
        due: list[Call[str | None]] = [
            (Key(resource.name, device.id), functools.partial(_reason, resource, device, names, unread, unwritten))
            for resource in resources
            for device in resource.devices
        ]
        result: dict[str, dict[str, str | None]] = {resource.name: {} for resource in resources}
        for key, answer in (await self._calls.run(due)).items():
            result[key.group][key.name] = reason_of(answer)
        commanded = [
            (resource, device)
            for resource in resources
            for device in resource.devices
            if resource.health.command and result[resource.name][device.id] is None
        ]
        self._commands.keep_only({(resource.name, device.id) for resource, device in commanded})
        for resource, device in commanded:
            result[resource.name][device.id] = self._commands.reason(resource, device)
        return result

    async def _unread(self, names: CdiNames, needed: Collection[str]) -> str | None:
        """Why the specs are unknown, or None. If reading hangs, the specs read last still count."""
        answer = (await self._calls.run([(names.key, functools.partial(names.read, needed))]))[names.key]
        return None if isinstance(answer, NoAnswer) and names.is_known else reason_of(answer)

    async def specs_are_as_read(self, spec_dirs: Sequence[str]) -> bool:
        """Whether the specs are unchanged since the last check; False if reading them hangs."""
        names = self._names.get(tuple(spec_dirs))
        if names is None:
            return False
        try:
            return await self._looks.call(names.key, names.is_as_read)
        except NoAnswer:
            return False

    async def close(self) -> None:
        """End the running commands."""
        await self._commands.close()


def reason_of(answer: str | Exception | None) -> str | None:
    """The reason from a bounded check: its result, or a text about its error or missing answer."""
    if isinstance(answer, NoAnswer):
        return f"the check {answer}"
    return f"the check failed: {answer!r}" if isinstance(answer, Exception) else answer


def host_problem(resource: Resource, device: Device) -> str | None:
    """Why the host has not what the device needs: its device nodes, and the sources of its mounts and hooks; or None.

    Needs no CDI spec, so it may run before a spec exists.
    """
    return unhealthy_reason(device) or source_problem(resource, device)


def problem_of(resource: Resource, device: Device, names: CdiNames) -> str | None:
    """As host_problem, and why a container cannot get what CDI specs give with the device; None if it can get all.

    If our own spec does not exist yet, it counts as right.
    """
    own = resource.cdi_name(device)
    written = [own] if own is not None and own in names.resolution.files else []
    found = filter(None, map(names.problem, (*device.cdi_devices, *written)))
    return host_problem(resource, device) or next(found, None)


def _reason(
    resource: Resource,
    device: Device,
    names: CdiNames | None,
    unread: str | None,
    unwritten: Mapping[str | None, str],
) -> str | None:
    """The first reason why a container cannot use the device, without its command; None if there is none.

    names: None if CDI names are not checked. unread: why the specs are unknown; None if they are known.
    """
    reason = unhealthy_reason(device)
    if reason is None and resource.health.open:
        reason = open_problem(device)
    if reason is None:
        reason = unwritten.get(resource.cdi_name(device))
    if reason is not None or names is None:
        return reason
    if unread is not None:
        return f"cannot read the CDI specs: {unread}" if resource.cdi_names(device) else None
    return next(filter(None, map(names.problem, resource.cdi_names(device))), None)
