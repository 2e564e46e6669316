"""The running plugin: one process serves all resources of the node."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..declaration import DeclarationError, Problem
from ..declaration.configuration_file import LoadedConfiguration, sha256_of
from ..devices.events.file_watch import follow
from ..devices.events.watch import Watch
from ..devices.scanner import DeviceScanner
from ..kubelet import plugin_watcher
from ..kubelet.device_plugin.registration import remove_stale_sockets
from ..status_api.pages import Outcome, private_pages, public_pages
from ..status_api.server import Endpoint
from ..support.sockets import status_socket
from ..support.task_group import TaskGroup
from ..telemetry import logs
from . import systemd
from .pod_privileges import refuse_open_probes
from .reconcile import prune, reconcile, watch_holders
from .reload import Reloader
from .resource_manager import ResourceManager, ServedResource
from .single_instance import AnotherServes, Locked, SingleInstance
from .state import State

log = logs.Log(__name__)

#: Minimum seconds between two status messages to systemd.
_STATUS_PERIOD = 1.0
#: Maximum number of resources that one status message names. systemd ignores messages over
#: 4096 bytes, and a name has up to 308 bytes.
_MOST_TOLD = 10


class Overlap(NamedTuple):
    """Whether this instance may serve beside another instance on the same node.

    instance_socket: path of this instance's own status socket, which serves even while another instance leads; empty
    for no such socket.
    """

    allowed: bool = False
    instance_socket: str = ""


async def run(path: str, loaded: LoadedConfiguration, overlap: Overlap = Overlap()) -> None:  # noqa: B008 (immutable)
    """Serve until SIGTERM or SIGINT. path: the configuration file, for reloads.

    Raises DeclarationError if this process cannot apply the configuration.
    """
    refuse_open_probes(loaded.configuration)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    instance = SingleInstance()
    try:
        directory = loaded.configuration.kubelet_device_plugin_dir
        if await instance.wait(directory, stop, overlap.allowed):
            remove_stale_sockets(directory)
            await _serve(path, loaded, instance, stop, overlap)
    finally:
        instance.release()


async def _serve(
    path: str, loaded: LoadedConfiguration, instance: SingleInstance, stop: asyncio.Event, overlap: Overlap
) -> None:
    tasks = TaskGroup()
    watch = Watch()
    scanner = DeviceScanner(watch)
    resources = ResourceManager(tasks, scanner, overlap.allowed)

    async def apply(loaded: LoadedConfiguration) -> None:
        refuse_open_probes(loaded.configuration)
        directory = loaded.configuration.kubelet_device_plugin_dir
        try:
            if instance.take(directory):
                remove_stale_sockets(directory)
        except Locked as error:
            if not (overlap.allowed and isinstance(error, AnotherServes)):
                raise DeclarationError([Problem("kubelet_device_plugin_dir", str(error))]) from error
        scanner.writes = instance.leads(directory)
        logs.configure(loaded.configuration.log_level, loaded.configuration.log_format)
        http.move(loaded.configuration.http_address)
        own.move(status_socket(directory))
        change = await resources.apply(loaded.configuration)
        if not loaded.configuration.resources:
            if loaded.sha256:
                # Prune now, because an uninstall through the Kubernetes API only waits until no resource is served.
                # After `reload --empty`, which reads no file, `cdi prune` removes the specs and reports them.
                await resources.prune()
            await resources.all_retired()
        instance.release(but=directory)
        log.info("applied the configuration", sha256=loaded.sha256[:12], change=change)

    async def forget_lost() -> Outcome:
        await resources.forget_lost()
        return Outcome("applied")

    reloader = Reloader(path, loaded, apply)
    state = State(resources, reloader)
    public = public_pages(state.metrics, state.not_ready)
    http = Endpoint(public)
    private = private_pages(state.as_data, reloader.reload, reloader.withdraw, forget_lost, public)
    own = Endpoint(private, status_socket(loaded.configuration.kubelet_device_plugin_dir))
    endpoints = [http]
    if overlap.instance_socket:
        endpoints.append(Endpoint(private, overlap.instance_socket))

    async def lead() -> None:
        if not instance.leads(reloader.loaded.configuration.kubelet_device_plugin_dir):
            await instance.lead(lambda: reloader.loaded.configuration.kubelet_device_plugin_dir)
            log.info("the other instance ended; this instance now writes the CDI specs and serves the status socket")
            remove_stale_sockets(reloader.loaded.configuration.kubelet_device_plugin_dir)
            await resources.take_over()
        await own.run()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloader.ask)
    if sha256_of(path) != loaded.sha256:
        # The file changed while this instance waited for another instance to end.
        reloader.ask()
    plugin_watcher.remove_stale_sockets(loaded.configuration.kubelet_root_dir)
    stopped: asyncio.Future[Any] = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(apply(loaded))
    try:
        # A SIGTERM must end the process even while the first scan waits for devices that hang.
        await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            return
        starting.result()
        for concern in (reloader.run(), follow(path, reloader.ask), lead(), *(each.run() for each in endpoints)):
            tasks.start(concern)
        every = systemd.watchdog_interval()
        if every is not None:
            tasks.start(systemd.ping_watchdog(every))
        for concern in (reconcile(resources, watch), watch_holders(resources), prune(resources), _report(resources)):
            tasks.start(concern)
        if instance.leads(loaded.configuration.kubelet_device_plugin_dir):
            endpoints.append(own)
        serving = asyncio.create_task(_all_serve(resources, endpoints))
        await asyncio.wait([serving, stopped, tasks.defect], return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        # Exclude the existing objects from garbage collections, which would otherwise delay Allocate.
        gc.freeze()
        gc.enable()
        while not (stop.is_set() or tasks.defect.done() or systemd.notify("READY=1")):
            await asyncio.sleep(0.1)
        await asyncio.wait([stopped, tasks.defect], return_when=asyncio.FIRST_COMPLETED)
        if tasks.defect.done():
            tasks.defect.result()
    finally:
        systemd.notify("STOPPING=1")
        stopped.cancel()
        starting.cancel()
        await asyncio.wait([starting])
        await tasks.stop()
        await scanner.close()
        watch.close()
        log.info("stopped")


async def _all_serve(resources: ResourceManager, endpoints: Sequence[Endpoint]) -> None:
    """Return once every resource is served and every endpoint has tried to listen.

    A port that is already in use does not delay this function.
    """
    for endpoint in endpoints:
        await endpoint.tried.wait()
    await resources.all_served()


async def _report(resources: ResourceManager) -> None:
    last = ""
    while True:
        status = _status(resources.served())
        if status != last and systemd.notify(status):
            last = status
        await asyncio.sleep(_STATUS_PERIOD)


def _status(served: Sequence[ServedResource]) -> str:
    missing = [each.name for each in served if not each.status.is_registered]
    more = " and %d more" % (len(missing) - _MOST_TOLD) if len(missing) > _MOST_TOLD else ""
    return "STATUS=%d of %d resources registered with the kubelet%s" % (
        len(served) - len(missing),
        len(served),
        "; waiting for {}{}".format(", ".join(missing[:_MOST_TOLD]), more) if missing else "",
    )
