"""Resources that are served and kept registered, as plugin.run does it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Callable, TypeVar, Union

from node_device_plugin.daemon.resource_manager import ResourceManager
from node_device_plugin.declaration import Resource
from node_device_plugin.declaration.model import DEVICE_PLUGIN
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.devices.scanner import DeviceScanner
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.kubelet.device_plugin.frontend import DevicePluginFrontend
from node_device_plugin.kubelet.device_plugin.plugin_watcher_registration import PluginWatcherRegistration
from node_device_plugin.kubelet.device_plugin.registration import Registration
from node_device_plugin.kubelet.device_plugin.server import DevicePluginServer
from node_device_plugin.support.task_group import TaskGroup

Either = TypeVar("Either", bound=Union[Registration, PluginWatcherRegistration])


@contextlib.asynccontextmanager
async def kept_registered(
    resources: Sequence[Resource], register: Callable[[DevicePluginServer], Either]
) -> AsyncIterator[dict[str, Either]]:
    """Inside this block, every device healthy; gives the registrations by resource."""
    registrations = {}
    for resource in resources:
        table = DeviceTable(resource)
        table.update({device.id: None for device in resource.devices})
        registrations[resource.name] = register(DevicePluginServer(table))
    tasks = [asyncio.create_task(registration.run()) for registration in registrations.values()]
    try:
        yield registrations
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def managed(tasks: TaskGroup, watch: Watch) -> ResourceManager:
    """A manager, as daemon.main puts it together, whose frontend runs."""
    scanner = DeviceScanner(watch)
    frontend = DevicePluginFrontend(scanner)
    tasks.start(frontend.run())
    return ResourceManager(scanner, {DEVICE_PLUGIN: frontend})
