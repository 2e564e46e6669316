"""Measures many publishers of ResourceSlices at once: ``python -m bench.publishers [PUBLISHERS [SECONDS]]``.

The API server is real (KUBERNETES_BIN_DIR). Each publisher has the credentials of a node of its own, and all run in one
process. They start, change once, and rest for SECONDS. The module fails if a number is above its limit, except times.
"""

from __future__ import annotations

import asyncio
import functools
import pathlib
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Sequence

from node_device_plugin.declaration.model import DraDriver
from node_device_plugin.kubelet.dra.publisher import Publisher, connect
from node_device_plugin.kubelet.dra.slices import Pool, SliceDevice
from node_device_plugin.support.task_group import TaskGroup

from .cluster import Cluster, api_server, writes
from .figures import Figure, table
from .fleet import missed

PUBLISHERS, REST = 200, 600.0
_DRIVER, _DEVICES = "dra.example.com", 8
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
#: Seconds until all must have published.
_TIMEOUT = 120.0


def measured(count: int, rest: float, directory: pathlib.Path) -> list[Figure]:
    """Measure ``count`` publishers. rest: seconds at rest. directory: writable. Raises RuntimeError."""
    nodes = {secrets.token_hex(16): "node-%d" % number for number in range(count)}
    with api_server(directory, {token: f"system:node:{node}" for token, node in nodes.items()}) as cluster:
        drivers = []
        for token, node in nodes.items():
            cluster.ask("POST", "/api/v1/nodes", {"metadata": {"name": node}})
            drivers.append(DraDriver(_DRIVER, node, str(cluster.kubeconfig_of(node, token))))
        return asyncio.run(_measured(cluster, drivers, rest))


async def _measured(cluster: Cluster, drivers: Sequence[DraDriver], rest: float) -> list[Figure]:
    count, figures = len(drivers), list[Figure]()
    publishers = [Publisher(driver, functools.partial(connect, driver)) for driver in drivers]
    tasks = TaskGroup()
    running = asyncio.ensure_future(tasks.run())

    async def publish(what: str, devices: int) -> None:
        with cluster.counted() as requests:
            started = time.monotonic()
            for driver, publisher in zip(drivers, publishers):
                publisher.publish([_pool(driver, devices)])
            await _until_published(cluster, count * devices)
            seconds = time.monotonic() - started
            # What has not settled writes again.
            await asyncio.sleep(2)
        name = "%d publishers, %s: " % (count, what)
        figures.append(Figure(name + "time until all have published", "s", seconds))
        figures.append(Figure(name + "write requests", "", writes(requests), most=count))

    try:
        for publisher in publishers:
            publisher.set_registered(True)
            tasks.start(publisher.run())
        await publish("start", _DEVICES)
        await publish("a change", _DEVICES - 1)
        with cluster.counted() as requests:
            await asyncio.sleep(rest)
        figures.append(
            Figure("%d publishers: write requests in %g s at rest" % (count, rest), "", writes(requests), most=0)
        )
        problems = {publisher.problem for publisher in publishers} - {None}
        if problems:
            raise RuntimeError("publishers report: %s" % problems)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return figures


def _pool(driver: DraDriver, devices: int) -> Pool:
    made = (
        SliceDevice("d%d" % number, {"resource": "example.com/gpu", "id": str(number)}) for number in range(devices)
    )
    return Pool(f"{driver.node}/gpu.example.com", tuple(made))


async def _until_published(cluster: Cluster, devices: int) -> None:
    until = time.monotonic() + _TIMEOUT
    while True:
        slices = await asyncio.to_thread(cluster.list, _SLICES)
        found = sum(len(each["spec"].get("devices") or ()) for each in slices)
        if found == devices:
            return
        if time.monotonic() > until:
            raise RuntimeError("after %g s, %d of %d devices are published" % (_TIMEOUT, found, devices))
        await asyncio.sleep(0.2)


def main(arguments: Sequence[str]) -> int:
    """Measure, and print the table. Returns 1 if a figure except times is above its limit."""
    # Otherwise the programs would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_arguments: sys.exit(1))
    count = int(arguments[0]) if arguments else PUBLISHERS
    rest = float(arguments[1]) if len(arguments) > 1 else REST
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        try:
            figures = measured(count, rest, pathlib.Path(scratch))
            problems = missed(figures)
        except RuntimeError as error:
            problems = [str(error)]
    print(table(figures))
    for problem in problems:
        print("bench: publishers: %s" % problem, file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
