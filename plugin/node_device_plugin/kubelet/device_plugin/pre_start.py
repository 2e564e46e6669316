"""Runs the command of a resource for each device of a container, before the container starts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...declaration import Device, Resource
from ...devices.commands import environment, run_command

#: Maximum number of commands that run at once for one container.
_AT_ONCE = 8


async def pre_start(resource: Resource, devices: Sequence[Device]) -> str | None:
    """Run the command for each device. Returns why the container cannot use its devices, or None.

    The resource's timeout covers all devices together, as the kubelet's limit (30 s) does.
    """
    if not resource.pre_start.command:
        # A kubelet that honours GetDevicePluginOptions never calls this.
        return None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + resource.pre_start.timeout
    turns = asyncio.Semaphore(_AT_ONCE)

    async def run(device: Device) -> str | None:
        async with turns:
            left = deadline - loop.time()
            if left <= 0:
                return f"device {device.id}: pre_start.timeout ({resource.pre_start.timeout:g} s) ended before its turn"
            problem = await run_command(resource.pre_start.command, environment(resource, device), left)
            return None if problem is None else f"device {device.id}: {problem}"

    problems = [problem for problem in await asyncio.gather(*map(run, devices)) if problem is not None]
    return "; ".join(problems) or None
