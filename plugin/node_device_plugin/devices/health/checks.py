"""All that is asked of a device before it is called healthy."""

from __future__ import annotations

import functools
from typing import Callable, Dict, Optional, Sequence

from ...declaration import Device, Resource
from .bounded import BoundedChecks
from .cdi_names import CdiNames
from .nodes import open_problem, unhealthy_reason
from .user_commands import UserCommands

#: Seconds that the checks of one device may take.
_LIMIT = 5.0
_SPECS = "CDI specs"


class Health:
    """Checks devices. on_news: called when something that takes longer has come to another answer."""

    def __init__(self, on_news: Callable[[], None], limit: float = _LIMIT) -> None:
        self._bounded = BoundedChecks(limit)
        self._commands = UserCommands(on_news)
        self._names: Dict[Sequence[str], CdiNames] = {}

    async def check(self, resource: Resource, spec_dirs: Sequence[str]) -> Dict[str, Optional[str]]:
        """Every device of a resource: its id to the reason why it cannot be used, or None.

        spec_dirs: where the runtime reads CDI specs; empty to leave names unresolved.
        """
        names = self._names.setdefault(tuple(spec_dirs), CdiNames(spec_dirs)) if spec_dirs else None
        checks = [
            (resource.name + "/" + device.id, functools.partial(_reason, resource, device, names))
            for device in resource.devices
        ]
        if names is not None:
            checks.insert(0, (_SPECS, functools.partial(_read, names)))
        reasons = await self._bounded.run(checks)
        unread = reasons.pop(_SPECS, None)
        result: Dict[str, Optional[str]] = {}
        for device in resource.devices:
            reason = reasons[resource.name + "/" + device.id]
            if reason is None and unread is not None and resource.cdi_name(device) is not None:
                reason = "%s: %s" % (_SPECS, unread)
            result[device.id] = reason
        there = [device for device in resource.devices if result[device.id] is None]
        self._commands.keep_only(resource, {device.id for device in there})
        if resource.health.command:
            result.update((device.id, self._commands.reason(resource, device)) for device in there)
        return result

    def specs_are_as_read(self, spec_dirs: Sequence[str]) -> bool:
        """Whether the specs are what they were at the last check. It reads the file system: not for the event loop."""
        names = self._names.get(tuple(spec_dirs))
        return names is not None and names.is_as_read()

    async def close(self) -> None:
        """End the commands that run."""
        await self._commands.close()


def _read(names: CdiNames) -> Optional[str]:
    names.read()
    return None


def _reason(resource: Resource, device: Device, names: Optional[CdiNames]) -> Optional[str]:
    reason = unhealthy_reason(device)
    if reason is None and resource.health.open:
        reason = open_problem(device)
    name = resource.cdi_name(device)
    if reason is None and name is not None and names is not None:
        reason = names.problem(name)
    return reason
