"""The command of a resource that is run before a container starts, for each of its devices."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...declaration import Device, Resource
from ...devices.commands import environment, run_command

#: Commands at a time, for one container.
_AT_ONCE = 8


async def pre_start(resource: Resource, devices: Sequence[Device]) -> str | None:
    """Run it. Gives the reason why a device cannot be used by the container that is about to start, or None.

    The resource's time limit is for all devices together, because the kubelet's (30 s) is.
    """
    if not resource.pre_start.command:
        # Only somebody who passes over GetDevicePluginOptions asks.
        return None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + resource.pre_start.timeout
    turns = asyncio.Semaphore(_AT_ONCE)

    async def run(device: Device) -> str | None:
        async with turns:
            left = deadline - loop.time()
            if left <= 0:
                return f"device {device.id}: no time was left of {resource.pre_start.timeout:g} s"
            problem = await run_command(resource.pre_start.command, environment(resource, device), left)
            return None if problem is None else f"device {device.id}: {problem}"

    problems = [problem for problem in await asyncio.gather(*map(run, devices)) if problem is not None]
    return "; ".join(problems) or None
