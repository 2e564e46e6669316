"""Causes random faults for hours: ``make soak`` (``python -m bench.soak MINUTES``).

Prints a line every minute. The exit code is 1 if a resource stays lost, or if the plugin's open files, threads or
memory grow above MOST_MORE.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable
from typing import Callable

from kubelet_stand_in import StandInKubelet

from . import processes
from .settings import Settings, settings, until

RESOURCES, DEVICES = 10, 20
#: Maximum seconds for the recovery from a fault.
TIMEOUT = 30.0
#: Allowed growth since the first minute: open files, threads, MiB.
MOST_MORE = {"files": 12, "threads": 8, "MiB": 16}


class Soak:
    """One plugin process, one kubelet, and the faults that hit them."""

    def __init__(self, given: Settings, kubelet: StandInKubelet, chance: random.Random) -> None:
        self._given = given
        self._kubelet = kubelet
        self._chance = chance
        self.plugin = processes.plugin(given.config, given.log)
        self.faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kubelet restart": kubelet.restart,
            "kubelet away": self._away,
            "stream lost": self._stream,
            "plugin killed": self._killed,
            "plugin reloaded": self._reloaded,
            "device unplugged": self._unplugged,
            "pod": self._pod,
        }
        self.seen = dict.fromkeys(self.faults, 0)

    async def one(self) -> None:
        """Cause one fault, and wait until every resource is back. Raises RuntimeError if a resource stays lost."""
        name = self._chance.choice(list(self.faults))
        try:
            await self.faults[name]()
            await until(lambda: self._given.all_connected(self._kubelet), TIMEOUT)
        except RuntimeError:
            raise RuntimeError("some resource stays lost after '%s' (faults so far: %s)" % (name, self.seen)) from None
        self.seen[name] += 1

    async def held(self) -> dict[str, float]:
        """Return the plugin's open files, threads and memory, after our kubelet has closed its old connections."""
        gc.collect()
        await asyncio.sleep(1)
        process = "/proc/%d/" % self.plugin.pid
        return {
            "files": len(os.listdir(process + "fd")),
            "threads": len(os.listdir(process + "task")),
            "MiB": round(self.plugin.resident(), 1),
        }

    async def _away(self) -> None:
        await self._kubelet.stop()
        await asyncio.sleep(self._chance.uniform(0, 4))
        await self._kubelet.start()

    async def _stream(self) -> None:
        endpoints, resource = self._kubelet.manager.endpoints, self._chance.choice(self._given.resources)
        client = endpoints[resource].client
        if client is not None:
            await client.close()
            await until(lambda: endpoints[resource].client is not client, TIMEOUT)

    async def _killed(self) -> None:
        os.kill(self.plugin.pid, self._chance.choice([signal.SIGKILL, signal.SIGTERM]))
        self.plugin.__exit__(None, None, None)
        await until(lambda: not self._given.any_connected(self._kubelet), TIMEOUT)
        self.plugin.__enter__()

    async def _reloaded(self) -> None:
        os.kill(self.plugin.pid, signal.SIGHUP)

    async def _unplugged(self) -> None:
        resource, device = self._chance.randrange(RESOURCES), self._chance.randrange(DEVICES)
        name, device_id = self._given.resources[resource], self._given.id(resource, device)
        for health in ("Unhealthy", "Healthy"):
            if health == "Unhealthy":
                os.unlink(self._given.node(resource, device))
            else:
                os.symlink("/dev/null", self._given.node(resource, device))
            await until(lambda: self._kubelet.devices(name).get(device_id) == health, 2 * TIMEOUT)  # noqa: B023

    async def _pod(self) -> None:
        resource = self._chance.choice(self._given.resources)
        pod = await self._kubelet.allocate_pod("pod", {"main": {resource: self._chance.randint(1, DEVICES)}})
        await self._kubelet.remove_pod(pod.uid)


async def _run(minutes: float) -> int:
    started = time.monotonic()
    said, first, faults = started, None, 0
    with settings(RESOURCES, DEVICES) as given:
        async with given.kubelet() as kubelet:
            soak = Soak(given, kubelet, random.Random())
            with soak.plugin:
                await until(lambda: given.all_connected(kubelet))
                while time.monotonic() - started < 60 * minutes:
                    try:
                        await soak.one()
                    except RuntimeError as error:
                        print("soak: LOST: %s; the plugin's log ends with:\n%s" % (error, given.log_end()))
                        return 1
                    faults += 1
                    if time.monotonic() - said < min(60.0, 60 * minutes / 2):
                        continue
                    said = time.monotonic()
                    held = await soak.held()
                    first = first or held
                    print("soak: %3.0f min, %5d faults, %s" % ((said - started) / 60, faults, held), flush=True)
                    more = [what for what, most in MOST_MORE.items() if held[what] > first[what] + most]
                    if more:
                        print("soak: LEAKED: more %s than at the start: %s" % (", ".join(more), first))
                        return 1
            print("soak: passed: nothing lost, nothing leaked: %s" % soak.seen)
    return 0


def main(arguments: list[str]) -> int:
    """Run for MINUTES, by default 60."""
    # Silence the stand-in kubelet, which would log every restart.
    logging.getLogger("kubelet").setLevel(logging.CRITICAL)
    return asyncio.run(_run(float(arguments[0]) if arguments else 60.0))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
