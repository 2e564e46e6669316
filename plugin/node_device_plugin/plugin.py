"""The running plugin: every resource of the node in one process."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any, List, Sequence

from . import health, systemd
from .configuration import LoadedConfiguration
from .device_ids import DeviceIds
from .device_table import DeviceTable
from .registration import Registration, remove_stale_sockets
from .service import DevicePlugin

log = logging.getLogger(__name__)

#: Seconds between two looks at the device nodes.
_HEALTH_PERIOD = 2.0
#: Seconds between two words to systemd about the state.
_STATUS_PERIOD = 1.0


async def run(loaded: LoadedConfiguration) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    directory = loaded.configuration.kubelet_device_plugin_dir
    remove_stale_sockets(directory)
    ids = DeviceIds()
    tables = [DeviceTable(resource, ids) for resource in loaded.configuration.resources]
    await _check(tables)
    registrations = [Registration(DevicePlugin(table), directory) for table in tables]
    tasks = [asyncio.create_task(registration.run()) for registration in registrations]
    tasks.append(asyncio.create_task(_check_for_ever(tables)))
    tasks.append(asyncio.create_task(_report_for_ever(registrations)))
    stopped: asyncio.Future[Any] = asyncio.create_task(stop.wait())
    try:
        ready: asyncio.Future[Any] = asyncio.gather(*(registration.serving() for registration in registrations))
        await asyncio.wait([ready, stopped], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not stop.is_set():
            log.info("serving %d resources, configuration %s", len(registrations), loaded.sha256[:12])
            systemd.notify("READY=1")
        # A task that ends is a defect: it comes to light here instead of going on without it.
        done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        systemd.notify("STOPPING=1")
        for task in [*tasks, stopped]:
            task.cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)
        log.info("stopped")


async def _check(tables: Sequence[DeviceTable]) -> None:
    for table in tables:
        for device, reason in table.update(await asyncio.to_thread(health.check, table.resource)):
            if reason is None:
                log.info("%s: device %s is healthy", table.resource.name, device.id)
            else:
                log.warning("%s: device %s is unhealthy: %s", table.resource.name, device.id, reason)


async def _check_for_ever(tables: Sequence[DeviceTable]) -> None:
    while True:
        await asyncio.sleep(_HEALTH_PERIOD)
        await _check(tables)


async def _report_for_ever(registrations: Sequence[Registration]) -> None:
    last = ""
    while True:
        missing = _unregistered(registrations)
        status = "STATUS=%d of %d resources registered with the kubelet%s" % (
            len(registrations) - len(missing),
            len(registrations),
            "; waiting for %s" % ", ".join(missing) if missing else "",
        )
        if status != last:
            last = status
            systemd.notify(status)
        await asyncio.sleep(_STATUS_PERIOD)


def _unregistered(registrations: Sequence[Registration]) -> List[str]:
    return [registration.resource for registration in registrations if not registration.is_registered]
