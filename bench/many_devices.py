"""Measures the cost of one update with 10,000 devices in one resource, declared and discovered."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from functools import partial

from kubelet_stand_in import StandInKubelet

from . import processes
from .figures import Figure, median
from .settings import Settings, settings, until

DEVICES = 10_000
ROUNDS = 5
#: Limit in seconds of CPU time.
MOST = 0.5


def measure() -> list[Figure]:
    with settings(resources=1, devices=DEVICES) as given, processes.plugin(given.config, given.log) as process:
        update, resident, start = asyncio.run(_updates(given, process))
    figures = [
        Figure("10,000 devices: CPU of one update", "s", update, most=MOST),
        Figure("10,000 devices: start to registered", "ms", start),
        Figure("10,000 devices: resident", "MiB", resident),
    ]
    if os.geteuid() != 0:
        print("bench: discovered devices: left out, because only root can create device nodes", file=sys.stderr)
        return figures
    with settings(resources=1, devices=1) as given:
        _discover(given)
        with processes.plugin(given.config, given.log) as process:
            plugged, unplugged = asyncio.run(_plugged(given, process))
    return [
        *figures,
        Figure("10,000 discovered devices: CPU of one plugged in", "s", plugged, most=MOST),
        Figure("10,000 discovered devices: CPU of one unplugged", "s", unplugged, most=MOST),
    ]


async def _updates(given: Settings, process: processes.Measured) -> tuple[float, float, float]:
    async with given.kubelet() as kubelet:
        start = (await until(lambda: given.all_connected(kubelet)) - process.started) * 1e3
        used = []
        for number in range(ROUNDS):
            await asyncio.sleep(1.2)
            before = process.cpu()
            os.unlink(given.node(0, number))
            await until(partial(_unhealthy, kubelet, given.resources[0], given.id(0, number)))
            # Wait, because the plugin's work after the message is also part of the update.
            await asyncio.sleep(0.5)
            used.append(process.cpu() - before)
        return median(used), process.resident(), start


def _discover(given: Settings) -> None:
    """Create nodes, because all links lead to one device, and configure a resource that discovers these nodes."""
    os.unlink(given.node(0, 0))
    for device in range(DEVICES):
        _plug_in(given, device)
    with open(given.config, "w") as file:
        resource = {"name": given.resources[0], "discover": {"paths": [given.node(0, 0)[:-1] + "*"]}}
        places = given.places()
        places["cdi_spec_dirs"] = [places["dynamic_cdi_dir"]]
        json.dump({**places, "resources": [resource]}, file)


def _plug_in(given: Settings, device: int) -> None:
    os.mknod(given.node(0, device), stat.S_IFCHR | 0o600, os.makedev(1, 3))


async def _plugged(given: Settings, process: processes.Measured) -> tuple[float, float]:
    plugged, unplugged = [], []
    async with given.kubelet() as kubelet:
        await until(lambda: given.all_connected(kubelet))

        def listed(count: int, healthy: int) -> bool:
            devices = kubelet.devices(given.resources[0])
            return len(devices) == count and list(devices.values()).count("Healthy") == healthy

        async def used(count: int, healthy: int) -> float:
            await until(partial(listed, count, healthy))
            await asyncio.sleep(1.0)
            return process.cpu() - before

        for number in range(ROUNDS):
            await asyncio.sleep(1.2)
            before = process.cpu()
            _plug_in(given, DEVICES + number)
            plugged.append(await used(DEVICES + number + 1, DEVICES + 1))
            await asyncio.sleep(1.2)
            before = process.cpu()
            os.unlink(given.node(0, number))
            unplugged.append(await used(DEVICES + number + 1, DEVICES))
    return median(plugged), median(unplugged)


def _unhealthy(kubelet: StandInKubelet, resource: str, device: str) -> bool:
    return kubelet.devices(resource)[device] == "Unhealthy"
