"""Measures the idle plugin's resident memory and CPU time, with 10 resources of 100 devices."""

from __future__ import annotations

import asyncio

from . import processes
from .figures import Figure, median
from .settings import Settings, settings, until

RESOURCES, DEVICES = 10, 100
ROUNDS = 5
#: Seconds of each round in which the plugin's CPU time is counted.
IDLE = 10.0
#: Limits: a multiple of the floor's memory, and percent of one CPU.
MOST_RESIDENT, MOST_CPU = 1.3, 0.2


def measure() -> list[Figure]:
    ours: list[tuple[float, float]] = []
    floor: list[tuple[float, float]] = []
    one: list[tuple[float, float]] = []
    with settings(RESOURCES, DEVICES) as given:
        for _ in range(ROUNDS):
            floor.append(asyncio.run(_once(given, _floor(given), 0.5)))
            ours.append(asyncio.run(_once(given, processes.plugin(given.config, given.log), IDLE)))
    with settings(1, DEVICES) as given:
        for _ in range(ROUNDS):
            one.append(asyncio.run(_once(given, _floor(given), 0.5)))
    resident, cpu = (median([values[part] for values in ours]) for part in (0, 1))
    floor_resident = median([values[0] for values in floor])
    return [
        Figure("resident, 10 resources of 100", "MiB", resident, floor_resident, MOST_RESIDENT * floor_resident),
        Figure("resident, against a floor of 1 resource", "MiB", resident, median([values[0] for values in one])),
        Figure("idle CPU, 10 resources of 100", "%", cpu, most=MOST_CPU),
    ]


def _floor(given: Settings) -> processes.Measured:
    return processes.floor(given.device_plugin_dir, given.answers, given.log)


async def _once(given: Settings, process: processes.Measured, seconds: float) -> tuple[float, float]:
    """Return the resident memory in MiB, and the CPU use in percent of one CPU."""
    async with given.kubelet() as kubelet:
        with process:
            await until(lambda: given.all_connected(kubelet))
            await asyncio.sleep(1)
            before = process.cpu()
            await asyncio.sleep(seconds)
            return process.resident(), (process.cpu() - before) / seconds * 100
