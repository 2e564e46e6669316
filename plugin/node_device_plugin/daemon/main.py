"""The running plugin: one process serves all resources of the node."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..declaration import Configuration, DeclarationError, Problem
from ..declaration.configuration_file import LoadedConfiguration, Source, sha256_of
from ..declaration.model import DEVICE_PLUGIN, DRA
from ..devices.events.file_watch import follow
from ..devices.events.watch import Watch
from ..devices.scanner import DeviceScanner
from ..kubelet import dra, plugin_watcher
from ..kubelet.device_plugin.frontend import DevicePluginFrontend
from ..kubelet.device_plugin.registration import remove_stale_sockets
from ..kubelet.frontend import Frontend
from ..status_api.pages import Outcome, private_pages, public_pages
from ..status_api.server import Endpoint
from ..support.bounded_calls import NoAnswer
from ..support.sockets import status_socket
from ..support.tables import some
from ..support.task_group import TaskGroup
from ..telemetry import logs
from . import systemd
from .pod_privileges import refuse_open_probes
from .reconcile import prune, reconcile, watch_holders
from .reload import Reloader
from .resource_manager import ResourceManager, ServedResource
from .single_instance import AnotherServes, Locked, SingleInstance
from .state import State

if TYPE_CHECKING:
    from ..cluster.node_readiness import ToldNode

log = logs.Log(__name__)

#: Minimum seconds between two status messages to systemd.
_STATUS_PERIOD = 1.0
#: Maximum number of resources that one status message names. systemd ignores messages over
#: 4096 bytes, and a name has up to 308 bytes.
_MOST_TOLD = 10


class Overlap(NamedTuple):
    """Whether this instance may serve beside another instance on the same node.

    name: only instances of one name overlap; empty for the service, which overlaps if a play allows it.
    instance_socket: path of this instance's own status socket, which serves even while another instance leads; empty
    for no such socket. claims_alone: whether it may only while it serves no device plugin, because kubelets up to 1.36
    accept two sockets of a DRA driver, but not of a device plugin.
    """

    allowed: bool = False
    instance_socket: str = ""
    name: str = ""
    claims_alone: bool = False

    def covers(self, configuration: Configuration) -> bool:
        """Whether this instance may serve a configuration beside another instance."""
        return self.allowed or (self.claims_alone and not configuration.uses_device_plugin)


async def run(
    source: Source,
    loaded: LoadedConfiguration,
    overlap: Overlap = Overlap(),  # noqa: B008 (immutable)
    told: ToldNode | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT. source: where the configuration is, for reloads.

    told: the node object to tell when its devices are allocatable; None to never call the API server.
    Raises DeclarationError if this process cannot apply the configuration.
    """
    _refuse_nameless(loaded.configuration)
    refuse_open_probes(loaded.configuration)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    instance = SingleInstance(overlap.name, overlap.covers(loaded.configuration))
    try:
        directory = loaded.configuration.kubelet_device_plugin_dir
        if await instance.wait(directory, stop):
            remove_stale_sockets(directory)
            await _Plugin(source, loaded, instance, overlap, told).serve(stop)
    finally:
        instance.release()


class _Plugin:
    """The parts of the running plugin, from its first configuration until it stops."""

    def __init__(
        self,
        source: Source,
        loaded: LoadedConfiguration,
        instance: SingleInstance,
        overlap: Overlap,
        told: ToldNode | None,
    ) -> None:
        self._source, self._instance, self._overlap, self._told = source, instance, overlap, told
        self._tasks, self._watch = TaskGroup(), Watch()
        self._scanner = DeviceScanner(self._watch)
        #: By API; ``_add_frontends`` adds that for DRA.
        self._frontends: dict[str, Frontend] = {
            DEVICE_PLUGIN: DevicePluginFrontend(self._scanner, overlap.allowed),
        }
        self._resources = ResourceManager(self._scanner, self._frontends)
        self._reloader = Reloader(source, loaded, self._apply)
        state = State(self._resources, self._reloader)
        public = public_pages(state.metrics, state.not_ready)
        reloader, forget = self._reloader, self._forget_lost
        commands = {"/reload": reloader.reload, "/withdraw": reloader.withdraw, "/forget": forget}
        private = private_pages(state.as_data, commands, public)
        self._http = Endpoint(public)
        #: The node's status socket, which the leader serves.
        self._own = Endpoint(private, status_socket(self._directory))
        #: The endpoints that serve also while another instance leads.
        self._endpoints = [self._http]
        if overlap.instance_socket:
            self._endpoints.append(Endpoint(private, overlap.instance_socket))

    @property
    def _directory(self) -> str:
        return self._reloader.loaded.configuration.kubelet_device_plugin_dir

    async def serve(self, stop: asyncio.Event) -> None:
        """Apply the configuration, run all tasks and report READY; then wait until ``stop`` or an error."""
        loaded = self._reloader.loaded
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reloader.ask)
        # A change during the first scan counts, too.
        self._tasks.start(follow(self._source, self._reloader.ask))
        plugin_watcher.remove_stale_sockets(loaded.configuration.kubelet_root_dir)
        for frontend in self._frontends.values():
            self._tasks.start(frontend.run())
        stopped: asyncio.Future[Any] = asyncio.create_task(stop.wait())
        starting = asyncio.create_task(self._apply(loaded))
        try:
            # A SIGTERM must end the process even while the first scan waits for devices that hang.
            await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return
            starting.result()
            if sha256_of(self._source.chosen) != loaded.sha256:
                # The file changed before its watch began, such as while this instance waited for another to end.
                self._reloader.ask()
            self._start_tasks()
            await self._report_ready(stopped)
            await asyncio.wait([stopped, self._tasks.defect], return_when=asyncio.FIRST_COMPLETED)
            if self._tasks.defect.done():
                self._tasks.defect.result()
        finally:
            systemd.notify("STOPPING=1")
            stopped.cancel()
            starting.cancel()
            await asyncio.wait([starting])
            await self._tasks.stop()
            await self._scanner.close()
            self._watch.close()
            log.info("stopped")

    def _start_tasks(self) -> None:
        resources = self._resources
        loops = [reconcile(resources, self._watch), watch_holders(resources), prune(resources), _report(resources)]
        every = systemd.watchdog_interval()
        if every is not None:
            loops.append(systemd.ping_watchdog(every))
        if self._told is not None:
            # A plugin that tells no node object does not load the API client, which takes memory.
            from .node_report import NodeReport, offered

            leads = self._instance.leads
            report = NodeReport(self._told, lambda: offered(resources.served()), lambda: leads(self._directory))
            loops.append(report.run())
        serving = [self._reloader.run(), self._lead()]
        for work in (*serving, *(each.run() for each in self._endpoints), *loops):
            self._tasks.start(work)

    async def _report_ready(self, stopped: asyncio.Future[Any]) -> None:
        """Report READY to systemd once everything is served, unless the plugin stops before."""
        endpoints = [*self._endpoints, self._own] if self._instance.leads(self._directory) else self._endpoints
        serving = asyncio.create_task(_all_serve(self._resources, endpoints))
        await asyncio.wait([serving, stopped, self._tasks.defect], return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        # Exclude the existing objects from garbage collections, which would otherwise delay Allocate.
        gc.freeze()
        gc.enable()
        while not (stopped.done() or self._tasks.defect.done() or systemd.notify("READY=1")):
            await asyncio.sleep(0.1)

    async def _apply(self, loaded: LoadedConfiguration) -> None:
        """Apply a configuration, or raise DeclarationError and change nothing."""
        _refuse_nameless(loaded.configuration)
        refuse_open_probes(loaded.configuration)
        await self._refuse_lost_claims(loaded.configuration)
        directory = loaded.configuration.kubelet_device_plugin_dir
        self._instance.overlaps = self._overlap.covers(loaded.configuration)
        self._take(directory)
        self._scanner.writes = self._instance.leads(directory)
        logs.configure(loaded.configuration.log_level, loaded.configuration.log_format)
        self._http.move(loaded.configuration.http_address)
        self._own.move(status_socket(directory))
        await self._add_frontends(loaded.configuration)
        change = await self._resources.apply(loaded.configuration)
        if not loaded.configuration.resources:
            if loaded.sha256:
                # Prune now, because an uninstall through the Kubernetes API only waits until no resource is served.
                # After `reload --empty`, which reads no file, `cdi prune` removes the specs and reports them.
                await self._resources.prune()
            await self._resources.all_retired()
        self._instance.release(but=directory)
        log.info("applied the configuration", sha256=loaded.sha256[:12], change=change)

    async def _refuse_lost_claims(self, after: Configuration) -> None:
        """Raise DeclarationError if the plugin could not release prepared claims with another configuration."""
        before = self._reloader.loaded.configuration
        if (before.dynamic_cdi_dir, before.dra.name) == (after.dynamic_cdi_dir, after.dra.name):
            return
        try:
            problems = await self._scanner.links.calls.ask(dra.change_problems, before, after)
        except NoAnswer as error:
            problems = [Problem("dynamic_cdi_dir", f"the search for records of claims {error}")]
        if problems:
            raise DeclarationError(problems)

    async def _add_frontends(self, configuration: Configuration) -> None:
        """Add the frontend for DRA once a configuration needs it. It stays, because a later one may need it again."""
        if DRA in self._frontends:
            return
        try:
            is_needed = await self._scanner.links.calls.ask(dra.is_needed, configuration)
        except NoAnswer:
            # The directory of the records hangs, so that no claim could be released anyway.
            is_needed = configuration.uses_dra
        if is_needed:
            # A plugin without such resources does not load the client of the Kubernetes API, which takes memory.
            from ..kubelet.dra.frontend import DraFrontend

            overlaps = self._overlap.allowed or self._overlap.claims_alone
            self._frontends[DRA] = frontend = DraFrontend(self._scanner, overlaps)
            self._tasks.start(frontend.run())

    def _take(self, directory: str) -> None:
        """Lock a device plugin directory. Raises DeclarationError if this instance must not serve there."""
        try:
            if self._instance.take(directory):
                remove_stale_sockets(directory)
        except Locked as error:
            if not (isinstance(error, AnotherServes) and self._instance.join(directory)):
                raise DeclarationError([Problem("kubelet_device_plugin_dir", str(error))]) from error

    async def _lead(self) -> None:
        """Serve the node's status socket, once no other instance leads."""
        if not self._instance.leads(self._directory):
            await self._instance.lead(lambda: self._directory)
            log.info("the other instance ended; this instance now writes the CDI specs and serves the status socket")
            remove_stale_sockets(self._directory)
            await self._resources.take_over()
            # A configuration that only the leader may serve was refused until now.
            self._reloader.ask()
        await self._own.run()

    async def _forget_lost(self) -> Outcome:
        await self._resources.forget_lost()
        return Outcome("applied")


def _refuse_nameless(configuration: Configuration) -> None:
    """Refuse resources with ``api: dra`` on a node whose name nothing tells. Raises DeclarationError.

    Only ``run`` checks this, because the configuration of a profile has no name, and a pod's environment tells it.
    """
    if configuration.uses_dra and not dra.of_this_node(configuration.dra).node:
        raise DeclarationError([Problem("dra.node", "is missing: set the node's name in the cluster")])


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
    return "STATUS=%d of %d resources registered with the kubelet%s" % (
        len(served) - len(missing),
        len(served),
        f"; waiting for {some(missing, _MOST_TOLD)}" if missing else "",
    )
