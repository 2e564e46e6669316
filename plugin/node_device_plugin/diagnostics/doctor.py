"""The command ``doctor``: checks each link between the configuration and the kubelet, even if the plugin is stopped."""

from __future__ import annotations

import asyncio
import functools
import os
import stat
from collections.abc import Iterable, Sequence
from typing import Any

from ..cdi.directories import DEFAULT_DIRECTORIES, FOREIGN, MODE, OURS, SpecFile
from ..declaration import Configuration, DeclarationError, Problem, cdi, dra_api
from ..declaration.configuration_file import DEFAULT_PATH, KubeletPlaces, LoadedConfiguration, kubelet_places, load
from ..declaration.model import DRA
from ..declaration.problems import first
from ..devices import health
from ..kubelet import queries as kubelet_queries
from ..kubelet.checkpoint import CheckpointError
from ..kubelet.pod_resources import PodResourcesError
from ..runtime import queries as runtime_queries
from ..runtime.errors import CriError
from ..status_api import client
from ..support import lock_holders
from ..support.bounded_calls import BoundedCalls, Key, NoAnswer, in_thread
from ..support.kubelet_process import KubeletProcess, running_kubelet
from ..support.node_process import NotTrusted
from ..support.sockets import PRIVATE_MODE, status_socket
from ..support.tables import counted, few
from .cdi_specs import read_specs
from .findings import Findings
from .instances import POD, SERVICE, ending, pods_configuration, running_instances
from .runtime_service import cri_socket, kubelet_service, service_of
from .status import Status, status

_PROVISION = "ansible-playbook playbooks/site.yml --limit THIS-NODE    # on the controller"
#: Maximum number of losses, or of devices that are left out, that one finding names.
_MOST_TOLD = 5
_TRIGGER = "udevadm trigger --action=add    # if the device is plugged in; role host_devices loads kernel modules"
_START_KUBELET = "systemctl start %(kubelet)s\njournalctl --unit %(kubelet)s --lines 50"


class Doctor(Findings):
    """The findings of a node, and the checks that make them.

    config: the configuration file. runtime_socket, kubelet_root: paths; None for the running kubelet's paths.
    """

    def __init__(self, config: str, runtime_socket: str | None = None, kubelet_root: str | None = None) -> None:
        super().__init__()
        self._config, self._runtime_socket, self._kubelet_root = config, runtime_socket, kubelet_root
        self._commands = SERVICE
        #: The configuration; None if it is wrong.
        self._loaded: LoadedConfiguration | None = None
        #: The running kubelet, and the service that runs it.
        self._kubelet: KubeletProcess | None = None
        self._unit = ""

    @property
    def _configuration(self) -> Configuration | None:
        return self._loaded.configuration if self._loaded else None

    @property
    def _needs_cdi(self) -> bool:
        return self._configuration is None or self._configuration.needs_cdi

    async def examine(self) -> Findings:
        """Check every link, in the order in which a device reaches a container."""
        directory = kubelet_places(self._config).device_plugin_dir
        if self._config == DEFAULT_PATH and not os.path.exists(self._config):
            # A node of a DaemonSet has no such file, because the cluster stores the pod's configuration.
            config = await in_thread(pods_configuration, directory)
            if config is not None:
                self._config, self._commands = config, POD
            elif not os.path.isdir(directory) and await in_thread(_running_kubelet) == (None, [], ""):
                found = "this machine is not a Kubernetes node: no kubelet runs, and %s and %s do not exist"
                self.wrong("node", found % (self._config, directory), f"kubeadm join    # then: {_PROVISION}")
                return self
        await self._examine_configuration()
        self._kubelet, refused, unclear = await in_thread(_running_kubelet)
        socket = await in_thread(cri_socket, self._runtime_socket, self._kubelet)
        service = await in_thread(service_of, socket)
        self._unit = kubelet_service(service)
        directories, accepted = await self._examine_runtime(socket, service)
        await self._examine_specs(directories, accepted)
        await self._examine_kubelet(refused, unclear)
        configuration = self._configuration
        if configuration is not None:
            await self._examine_devices(configuration)
        directory = kubelet_places(self._config).device_plugin_dir
        self._examine_directory(directory)
        if configuration is not None and configuration.registration == "plugins_registry":
            self._examine_registry(configuration.kubelet_root_dir)
        else:
            await self._examine_socket(directory)
        state = await self._examine_plugin(directory)
        if configuration is None:
            self.unknown("registration", "the resources are unknown until the configuration is fixed")
            return self
        self._examine_root(configuration.kubelet_root_dir)
        root = self._kubelet_root or (self._kubelet.root_dir if self._kubelet else configuration.kubelet_root_dir)
        await self._examine_registration(configuration, root, state)
        if configuration.uses_dra:
            await self._examine_dra(configuration, state)
        await self._examine_expected(KubeletPlaces(directory, root, configuration.dynamic_cdi_dir), socket)
        return self

    async def _examine_configuration(self) -> None:
        try:
            self._loaded = await in_thread(load, self._config)
        except DeclarationError as error:
            found, fix = first(error.problems), f"node-device-plugin validate --config {self._config}\n{_PROVISION}"
            self.wrong("configuration", found, fix)
            return
        resources = self._loaded.configuration.resources
        devices = sum(len(resource.devices) for resource in resources)
        found = f"{counted(len(resources), 'resource')}, {counted(devices, 'device')}"
        self.ok("configuration", f"{self._config}: {found}")

    async def _examine_runtime(self, socket: str, service: str) -> tuple[tuple[str, ...], str | None]:
        """Check the running runtime; returns its spec directories and its highest CDI version."""
        checked = self._configuration.checked_spec_dirs if self._configuration else ()
        expected = tuple(dict.fromkeys(checked)) or DEFAULT_DIRECTORIES
        try:
            state = await runtime_queries.runtime(socket)
        except CriError as error:
            fix = f"systemctl restart {service}    # after you fix the links below; or set --socket"
            self.wrong("runtime", str(error), f"journalctl --unit {service} --lines 20\n{fix}")
            self.unknown("CDI", "the runtime does not answer")
            return expected, None
        name, version = state["name"], state["version"]
        accepted = cdi.accepted_version(version) if name == "containerd" else None
        drops_names = name == "containerd" and accepted is None
        if drops_names and self._needs_cdi:
            found = f"{name} {version} silently drops CDI names; use 1.7.2 or later"
            fix = "apt-get install --only-upgrade containerd"
            if service != "containerd":
                fix = f"systemctl status {service}    # upgrade {service}: it ships its own containerd"
            self.wrong("runtime", found, fix)
        elif not state["conditions"].get("RuntimeReady", True):
            found = f"{name} {version} reports that it is not ready"
            self.wrong("runtime", found, f"journalctl --unit {service}")
        else:
            self.ok("runtime", f"{name} {version}")
        directories = tuple(state["cdi"]["spec_dirs"] or expected)
        if not self._needs_cdi:
            self.ok("CDI", "not needed: every resource has injection: device_nodes")
        elif state["cdi"]["enabled"] is False or drops_names:
            fails = runtime_queries.fails_without_cdi(name, version)
            consequence = "cannot be created with" if fails else "start without"
            self.wrong("CDI", f"CDI is off in the running {name}: containers {consequence} their devices", _PROVISION)
        elif state["cdi"]["enabled"] is None:
            self.ok("CDI", "{} does not report CDI; assumed spec directories {}".format(name, ", ".join(directories)))
        else:
            on = "always on" if state["cdi"]["always_on"] else "on"
            self.ok("CDI", "{}, spec directories {}".format(on, ", ".join(directories)))
        return directories, accepted

    async def _examine_specs(self, directories: tuple[str, ...], accepted: str | None) -> None:
        try:
            specs = await read_specs(directories, accepted)
        except NoAnswer as error:
            self.wrong("CDI specs", str(error), "findmnt --target {}".format("\nfindmnt --target ".join(directories)))
            return
        # List foreign files first, because in a conflict the foreign file must go.
        files = sorted(specs.every.values(), key=lambda file: file.owner == OURS)
        harm = [(file, problem) for file in files for problem in specs.harm(file)]
        missing = _unresolved(files, self._configuration) if self._configuration else []
        harm += [(file, file.unclear[name]) for name in missing for file in files if name in file.unclear]
        others = [(file, problem) for file in files for problem in specs.problems(file) if file.owner == FOREIGN]
        if harm:
            self.wrong("CDI specs", _first_in(harm), _fix_of(*harm[0]))
        elif missing:
            found = "no CDI spec in {} defines {}".format(", ".join(directories), ", ".join(missing))
            self.wrong("CDI specs", found, f"{_PROVISION}\n{self._commands.restart}")
        elif others:
            # Runtimes skip such a file, so only that file's devices have no effect.
            found = f"another owner's file; our devices work: {_first_in(others)}"
            self.warning("CDI specs", found, _fix_of(*others[0]))
        else:
            self.ok("CDI specs", "%d files, %d of them ours" % (len(files), sum(f.owner == OURS for f in files)))

    async def _examine_kubelet(self, refused: list[str], unclear: str) -> None:
        kubelet = self._kubelet
        if unclear:
            self.wrong("kubelet", unclear, "ps -C kubelet -o pid,ppid,user,unit,args")
        elif kubelet is None:
            root = self._kubelet_root or kubelet_places(self._config).root_dir
            if await _refusal(os.path.join(root, kubelet_queries.POD_RESOURCES_SOCKET)) is None:
                found = (
                    "a kubelet answers below %s; it is part of another process (such as k3s), so its version is unknown"
                )
                self.ok("kubelet", found % root)
            else:
                found = "; ".join(["no kubelet runs on this node", *refused])
                self.wrong("kubelet", found, _START_KUBELET % {"kubelet": self._unit})
        elif kubelet.release is None:
            self.ok("kubelet", "process %d does not report its version" % kubelet.pid)
        elif self._needs_cdi and kubelet.release[:2] < cdi.FIRST_KUBELET:
            found = "kubelet %s silently drops CDI names; use %s or later"
            versions = _dotted(kubelet.release), _dotted(cdi.FIRST_KUBELET)
            self.wrong("kubelet", found % versions, "apt-get install --only-upgrade kubelet")
        else:
            name = "the lab's stand-in" if kubelet.build == "stand-in" else _dotted(kubelet.release)
            found = f"{name}, root directory {kubelet.root_dir}"
            self.ok("kubelet", "; ".join(filter(None, [found, cdi.untested_kubelet(kubelet.release)])))

    async def _examine_devices(self, configuration: Configuration) -> None:
        answers = await BoundedCalls().run(
            [
                (Key(resource.name, device.id), functools.partial(health.host_problem, resource, device))
                for resource in configuration.resources
                for device in resource.devices
                if device.required
            ]
        )
        reasons = {key: health.reason_of(answer) for key, answer in answers.items()}
        bad = [f"{key.name}: {reason}" for key, reason in reasons.items() if reason is not None]
        if bad:
            self.wrong("devices", first(bad), f"{_TRIGGER}\nnode-device-plugin status    # each with its reason")
        else:
            self.ok("devices", "every required device node exists")

    def _examine_directory(self, directory: str) -> None:
        link = "kubelet directory"
        if not os.path.isdir(directory):
            found = f"{directory} does not exist: the node has not joined, or the kubelet uses another directory"
            fix = f"systemctl status {self._unit}    # for another directory, set kubelet_device_plugin_dir"
            self.wrong(link, found, fix)
        elif not os.access(directory, os.W_OK | os.X_OK):
            self.wrong(link, f"{directory}: this user cannot write to it", "sudo node-device-plugin doctor")
        else:
            # Unlike this process, the service runs as root without capabilities, so file permissions apply to it.
            for path, asked, mode in (
                (directory, 0o5, 0o755),
                (os.path.dirname(status_socket(directory)), 0o7, PRIVATE_MODE),
            ):
                if os.path.isdir(path) and not _allows(os.stat(path), asked):
                    found = "%s: mode %04o, owner %d: the plugin cannot create its sockets there"
                    status = os.stat(path)
                    found = found % (path, stat.S_IMODE(status.st_mode), status.st_uid)
                    self.wrong(link, found, f"chown root {path}\nchmod {mode:04o} {path}")
                    return
            self.ok(link, directory)

    def _examine_registry(self, root: str) -> None:
        registry = os.path.join(root, "plugins_registry")
        if os.path.isdir(registry):
            self.ok("kubelet socket", f"not needed: the kubelet watches {registry}")
        else:
            found = f"{registry} does not exist: check that {root} is the kubelet's --root-dir"
            fix = f"systemctl status {self._unit}    # for another --root-dir, set kubelet_root_dir"
            self.wrong("kubelet socket", found, fix)

    def _examine_root(self, root: str) -> None:
        kubelet = self._kubelet
        if kubelet is not None and os.path.realpath(kubelet.root_dir) != os.path.realpath(root):
            found = f"the kubelet's --root-dir is {kubelet.root_dir}, but the configuration has {root}"
            fix = f"set node_devices_settings: {{kubelet_root_dir: {kubelet.root_dir}}}, then:\n{_PROVISION}"
            self.wrong("root directory", found, fix)
        else:
            self.ok("root directory", root)

    async def _examine_socket(self, directory: str) -> None:
        path = os.path.join(directory, "kubelet.sock")
        reason = await _refusal(path)
        if reason is None:
            self.ok("kubelet socket", f"{path} accepts connections")
        else:
            self.wrong("kubelet socket", f"{path}: {reason}", f"systemctl restart {self._unit}")

    async def _examine_plugin(self, directory: str) -> dict[str, Any] | None:
        commands, instances = self._commands, await in_thread(running_instances)
        try:
            state: dict[str, Any] = await client.ask(directory, "GET", "/status")
        except client.NotAnswering as error:
            # The plugin serves nothing until it has locked its directory.
            locked = os.path.dirname(status_socket(directory))
            others = [each for each in await in_thread(lock_holders.holders, locked) if each.pid not in instances]
            if others:
                found = f"{error}; {locked} is locked by {lock_holders.named(others)}, so that the plugin waits"
                self.wrong("plugin", found, await in_thread(ending, [each.pid for each in others]))
            else:
                self.wrong("plugin", str(error), f"{commands.restart}\n{commands.log}")
            return None
        running = state["configuration"]["sha256"]
        if self._loaded is not None and running != self._loaded.sha256:
            found = f"the plugin runs with configuration {running[:12]}, but the file is {self._loaded.sha256[:12]}"
            self.wrong("plugin", found, commands.reload)
        elif len(instances) > 1:
            pids = [str(pid) for pid in instances]
            found = "several plugins run (processes {}): one serves, and the others wait".format(" ".join(pids))
            fix = "systemctl status node-device-plugin    # stop each plugin except the service, such as a pod:"
            self.wrong("plugin", found, "{}\nps -o pid,args -p {}".format(fix, ",".join(pids)))
        else:
            self.ok("plugin", "{}, configuration {}".format(state["version"], running[:12]))
        return state

    async def _examine_registration(
        self, configuration: Configuration, root: str, state: dict[str, Any] | None
    ) -> None:
        link, commands = "registration", self._commands
        try:
            listing = await kubelet_queries.listing(root, configuration.kubelet_device_plugin_dir)
        except (CheckpointError, OSError) as error:
            self.wrong(link, str(error), f"systemctl restart {self._unit}")
            return
        except PodResourcesError as error:
            if error.is_limited:
                fix = "node-device-plugin doctor    # again, after the other clients have finished"
                self.wrong(link, str(error), fix)
            else:
                fix = "%s    # or --kubelet-root" % (_START_KUBELET % {"kubelet": self._unit})
                self.wrong(link, f"no kubelet answers below {root}", fix)
            return
        served = {each["name"]: bool(each["registered"]) for each in (state or {}).get("resources", [])}
        others = (each.name for each in configuration.resources if each.name not in served and each.api != DRA)
        missing = [name for name in others if not listing.knows(name, None)]
        unregistered = [name for name, is_registered in served.items() if not is_registered]
        if missing:
            found = "the kubelet does not know {}".format(", ".join(missing))
            self.wrong(link, found, f"{commands.restart}\n{commands.log}")
        elif unregistered:
            found = "not registered with the kubelet: {}".format(", ".join(unregistered))
            self.wrong(link, found, f"{commands.restart}\n{commands.log}")
        elif state is None:
            self.unknown(link, "the kubelet still lists every resource, but no plugin answers")
        else:
            self.ok(link, "the kubelet lists every resource")

    async def _examine_dra(self, configuration: Configuration, state: dict[str, Any] | None) -> None:
        """Check what the driver needs, and that the API server has the node's ResourceSlices."""
        from ..cluster.api import ApiError, NotFound
        from ..kubelet.dra import of_this_node, queries

        link, driver = "DRA", of_this_node(configuration.dra)
        kubelet = self._kubelet
        resources = [each for each in configuration.resources if each.api == DRA]
        if kubelet is not None and kubelet.release is not None and kubelet.release[:2] < dra_api.FIRST_KUBELET:
            found = "kubelet %s does not know the API v1 of DRA drivers; use %s or later"
            versions = _dotted(kubelet.release), _dotted(dra_api.FIRST_KUBELET)
            self.wrong(link, found % versions, f"set api: device_plugin, or upgrade the node, then:\n{_PROVISION}")
            return
        if kubelet is not None and kubelet.dra_is_off:
            found = "the kubelet's feature gate DynamicResourceAllocation is off"
            self.wrong(link, found, f"systemctl restart {self._unit}    # after you remove it from the featureGates")
            return
        try:
            slices = await in_thread(queries.read_slices, driver)
        except NotFound as error:
            found = f"{error}: the cluster is older than Kubernetes 1.34, or DRA is off there"
            self.wrong(
                link,
                found,
                f"kubectl api-resources --api-group resource.k8s.io    # else api: device_plugin\n{_PROVISION}",
            )
            return
        except ApiError as error:
            selected = f"--field-selector spec.nodeName={driver.node}"
            access = f" --kubeconfig {driver.kubeconfig}" if driver.kubeconfig else ""
            fix = f"kubectl{access} get resourceslices {selected}"
            self.wrong(link, str(error), fix)
            return
        served = [each for each in (state or {}).get("resources", ()) if each.get("api") == DRA]
        troubled = [f"{each['name']}: {each['problem']}" for each in served if each.get("problem")]
        unregistered = [each["name"] for each in served if not each["registered"]]
        offered = sum(map(len, queries.offered(slices, resources).values()))
        if troubled:
            tell = self.wrong if unregistered else self.warning
            tell(link, first(troubled), self._commands.log)
        elif unregistered:
            found = f"the kubelet has not registered the driver {driver.name}"
            self.wrong(link, found, f"{self._commands.restart}\n{self._commands.log}")
        else:
            found = f"driver {driver.name}, {counted(len(slices), 'ResourceSlice')} with {counted(offered, 'device')}"
            self.ok(link, found)

    async def _examine_expected(self, places: KubeletPlaces, socket: str) -> None:
        """Check that no expected device is lost, and tell why optional devices are left out."""
        link = "expected devices"
        try:
            found = await status(places, socket)
        except (CheckpointError, OSError) as error:
            self.unknown(link, str(error))
            return
        if found.plugin is None:
            self.unknown(link, "no plugin answers")
            return
        absent, unusable = await _absent(found)
        harm = [f"{loss.resource}: {loss.text}" for loss in found.losses if loss.fails]
        mild = [f"{loss.resource}: {loss.text}" for loss in found.losses if not loss.fails]
        shown = "node-device-plugin status    # each device with its reason and its pod"
        if harm:
            self.wrong(link, "; ".join(few(harm, _MOST_TOLD)), shown)
        elif mild or unusable:
            self.warning(link, "; ".join(few([*mild, *unusable], _MOST_TOLD)), shown)
        else:
            not_there = "; ".join(few(absent, _MOST_TOLD))
            left_out = f"; optional devices that are not there: {not_there}" if absent else ""
            self.ok(link, f"no device is lost{left_out}")


def _running_kubelet() -> tuple[KubeletProcess | None, list[str], str]:
    """Like running_kubelet, with the problem if several processes of root are named kubelet."""
    try:
        return (*running_kubelet(), "")
    except NotTrusted as error:
        return None, [], str(error)


def _first_in(problems: Sequence[tuple[SpecFile, Problem]]) -> str:
    return first([f"{file.path}: {problem}" for file, problem in problems])


def _fix_of(file: SpecFile, problem: Problem) -> str:
    if problem.where == MODE:
        fix = f"chmod 0644 {file.path}"
    elif file.owner == OURS:
        fix = _PROVISION
    elif problem in file.warnings:
        fix = f"vi {file.path}    # or let the program that writes the file quote the text"
    else:
        fix = f"mv {file.path} /root/    # until the owner of the file has fixed it"
    return f"{fix}\nnode-device-plugin cdi check    # every problem"


def _unresolved(files: Iterable[SpecFile], configuration: Configuration) -> list[str]:
    defined = {name for file in files for name in file.names if name not in file.unclear}
    names = [
        name
        for resource in configuration.resources
        for device in resource.devices
        for name in resource.cdi_names(device)
        # On a node without the device, the other program writes no spec.
        if device.required or name not in device.cdi_devices
    ]
    return [name for name in names if name not in defined]


def _allows(status: os.stat_result, asked: int) -> bool:
    """Whether file permissions grant this user ``asked`` (bits r, w, x) without any capability."""
    if status.st_uid == os.geteuid():
        allowed = status.st_mode >> 6
    elif status.st_gid in (os.getegid(), *os.getgroups()):
        allowed = status.st_mode >> 3
    else:
        allowed = status.st_mode
    return allowed & asked == asked


async def _refusal(socket: str) -> str | None:
    """Why a connection to a unix socket fails; None if it succeeds."""
    try:
        _reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(socket), 5)
    except (OSError, asyncio.TimeoutError) as error:
        return getattr(error, "strerror", None) or "no answer in 5 s"
    writer.close()
    return None


async def _absent(found: Status) -> tuple[list[str], list[str]]:
    """The devices that have never passed their checks, each with the reason: those not there, and those that are."""
    devices = [
        (resource["name"], device)
        for resource in (found.plugin or {})["resources"]
        for device in resource["devices"]
        if device["state"] == "absent"
    ]
    looks = [
        (Key(name, device["id"]), functools.partial(_are_there, tuple(device["host_paths"])))
        for name, device in devices
    ]
    there = await BoundedCalls().run(looks)
    absent: list[str] = []
    unusable: list[str] = []
    for name, device in devices:
        to = unusable if there[Key(name, device["id"])] else absent
        to.append(f"{name}={device['id']}: {device['reason']}")
    return absent, unusable


def _are_there(paths: Sequence[str]) -> bool:
    return bool(paths) and all(map(os.path.exists, paths))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
