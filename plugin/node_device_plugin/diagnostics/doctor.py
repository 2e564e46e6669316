"""The command ``doctor``: checks each link between the configuration and the kubelet, even if the plugin is stopped."""

from __future__ import annotations

import asyncio
import functools
import os
import stat
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..cdi.directories import DEFAULT_DIRECTORIES, FOREIGN, MODE, OURS, SpecFile
from ..declaration import Configuration, DeclarationError, Problem, cdi
from ..declaration.configuration_file import DEFAULT_PATH, KubeletPlaces, LoadedConfiguration, kubelet_places, load
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
from ..support.tables import counted
from .cdi_specs import read_specs
from .findings import Findings
from .instances import POD, SERVICE, Commands, ending, pods_configuration, running_instances
from .runtime_service import cri_socket, kubelet_service, service_of
from .status import Status, status

_PROVISION = "ansible-playbook playbooks/site.yml --limit THIS-NODE    # on the controller"
#: Maximum number of losses, or of devices that are left out, that one finding names.
_MOST_TOLD = 5
_START_KUBELET = "systemctl start %(kubelet)s\njournalctl --unit %(kubelet)s --lines 50"


class Doctor(NamedTuple):
    """The checks of a node.

    config: the configuration file. runtime_socket, kubelet_root: paths; None for the running kubelet's paths.
    """

    config: str
    runtime_socket: str | None = None
    kubelet_root: str | None = None

    async def examine(self) -> Findings:
        """Check every link, in the order in which a device reaches a container."""
        if self.config == DEFAULT_PATH and not os.path.exists(self.config):
            # A node of a DaemonSet has no such file, because the cluster stores the pod's configuration.
            directory = kubelet_places(self.config).device_plugin_dir
            config = await in_thread(pods_configuration, directory)
            if config is not None:
                return await self._replace(config=config)._examine(POD)
            if not os.path.isdir(directory) and await in_thread(_running_kubelet) == (None, [], ""):
                findings = Findings()
                found = "this machine is not a Kubernetes node: no kubelet runs, and %s and %s do not exist"
                findings.wrong("node", found % (self.config, directory), f"kubeadm join    # then: {_PROVISION}")
                return findings
        return await self._examine(SERVICE)

    async def _examine(self, commands: Commands) -> Findings:
        findings = Findings()
        loaded = await self._configuration(findings)
        configuration = loaded.configuration if loaded else None
        kubelet, refused, unclear = await in_thread(_running_kubelet)
        socket = await in_thread(cri_socket, self.runtime_socket, kubelet)
        service = await in_thread(service_of, socket)
        unit = kubelet_service(service)
        directories, accepted = await _runtime(findings, socket, service, configuration)
        await _specs(findings, directories, accepted, configuration, commands)
        await self._kubelet(findings, kubelet, refused, unclear, unit)
        if loaded is not None:
            await _devices(findings, loaded.configuration)
        directory = kubelet_places(self.config).device_plugin_dir
        _directory(findings, directory, unit)
        if loaded is not None and loaded.configuration.registration == "plugins_registry":
            _registry(findings, loaded.configuration.kubelet_root_dir, unit)
        else:
            await _socket(findings, directory, unit)
        instances = await in_thread(running_instances)
        state = await _plugin(findings, directory, loaded, instances, commands)
        if loaded is None:
            findings.unknown("registration", "the resources are unknown until the configuration is fixed")
            return findings
        _root(findings, loaded.configuration.kubelet_root_dir, kubelet)
        root = self.kubelet_root or (kubelet.root_dir if kubelet else loaded.configuration.kubelet_root_dir)
        await _registration(findings, loaded.configuration, root, state, unit, commands)
        await _expected(findings, KubeletPlaces(directory, root), socket)
        return findings

    async def _configuration(self, findings: Findings) -> LoadedConfiguration | None:
        try:
            loaded = await in_thread(load, self.config)
        except DeclarationError as error:
            found = first(error.problems)
            findings.wrong("configuration", found, f"node-device-plugin validate --config {self.config}\n{_PROVISION}")
            return None
        resources = loaded.configuration.resources
        devices = sum(len(resource.devices) for resource in resources)
        found = f"{counted(len(resources), 'resource')}, {counted(devices, 'device')}"
        findings.ok("configuration", f"{self.config}: {found}")
        return loaded

    async def _kubelet(
        self, findings: Findings, kubelet: KubeletProcess | None, refused: list[str], unclear: str, unit: str
    ) -> None:
        if unclear:
            findings.wrong("kubelet", unclear, "ps -C kubelet -o pid,ppid,user,unit,args")
        elif kubelet is None:
            root = self.kubelet_root or kubelet_places(self.config).root_dir
            if await _refusal(os.path.join(root, kubelet_queries.POD_RESOURCES_SOCKET)) is None:
                found = (
                    "a kubelet answers below %s; it is part of another process (such as k3s), so its version is unknown"
                )
                findings.ok("kubelet", found % root)
            else:
                found = "; ".join(["no kubelet runs on this node", *refused])
                findings.wrong("kubelet", found, _START_KUBELET % {"kubelet": unit})
        elif kubelet.release is None:
            findings.ok("kubelet", "process %d does not report its version" % kubelet.pid)
        elif kubelet.release[:2] < cdi.FIRST_KUBELET:
            found = "kubelet %s silently drops CDI names; use %s or later"
            versions = _dotted(kubelet.release), _dotted(cdi.FIRST_KUBELET)
            findings.wrong("kubelet", found % versions, "apt-get install --only-upgrade kubelet")
        else:
            name = "the lab's stand-in" if kubelet.build == "stand-in" else _dotted(kubelet.release)
            found = f"{name}, root directory {kubelet.root_dir}"
            findings.ok("kubelet", "; ".join(filter(None, [found, cdi.untested_kubelet(kubelet.release)])))


def _running_kubelet() -> tuple[KubeletProcess | None, list[str], str]:
    """Like running_kubelet, with the problem if several processes of root are named kubelet."""
    try:
        return (*running_kubelet(), "")
    except NotTrusted as error:
        return None, [], str(error)


async def _runtime(
    findings: Findings, socket: str, service: str, configuration: Configuration | None
) -> tuple[tuple[str, ...], str | None]:
    """Check the running runtime; returns its spec directories and its highest CDI version."""
    expected: tuple[str, ...] = DEFAULT_DIRECTORIES
    if configuration is not None and configuration.checked_spec_dirs:
        expected = tuple(dict.fromkeys(configuration.checked_spec_dirs))
    try:
        state = await runtime_queries.runtime(socket)
    except CriError as error:
        fix = f"systemctl restart {service}    # after you fix the links below; or set --socket"
        findings.wrong("runtime", str(error), f"journalctl --unit {service} --lines 20\n{fix}")
        findings.unknown("CDI", "the runtime does not answer")
        return expected, None
    name, version = state["name"], state["version"]
    accepted = cdi.accepted_version(version) if name == "containerd" else None
    if name == "containerd" and accepted is None:
        found = f"{name} {version} silently drops CDI names; use 1.7.2 or later"
        fix = "apt-get install --only-upgrade containerd"
        if service != "containerd":
            fix = f"systemctl status {service}    # upgrade {service}: it ships its own containerd"
        findings.wrong("runtime", found, fix)
    elif not state["conditions"].get("RuntimeReady", True):
        found = f"{name} {version} reports that it is not ready"
        findings.wrong("runtime", found, f"journalctl --unit {service}")
    else:
        findings.ok("runtime", f"{name} {version}")
    directories = tuple(state["cdi"]["spec_dirs"] or expected)
    if state["cdi"]["enabled"] is False or (name == "containerd" and accepted is None):
        consequence = "cannot be created with" if runtime_queries.fails_without_cdi(name, version) else "start without"
        findings.wrong("CDI", f"CDI is off in the running {name}: containers {consequence} their devices", _PROVISION)
    elif state["cdi"]["enabled"] is None:
        findings.ok("CDI", "{} does not report CDI; assumed spec directories {}".format(name, ", ".join(directories)))
    else:
        on = "always on" if state["cdi"]["always_on"] else "on"
        findings.ok("CDI", "{}, spec directories {}".format(on, ", ".join(directories)))
    return directories, accepted


async def _specs(
    findings: Findings,
    directories: tuple[str, ...],
    accepted: str | None,
    configuration: Configuration | None,
    commands: Commands,
) -> None:
    try:
        specs = await read_specs(directories, accepted)
    except NoAnswer as error:
        findings.wrong("CDI specs", str(error), "findmnt --target {}".format("\nfindmnt --target ".join(directories)))
        return
    # List foreign files first, because in a conflict the foreign file must go.
    files = sorted(specs.every.values(), key=lambda file: file.owner == OURS)
    harm = [(file, problem) for file in files for problem in specs.harm(file)]
    missing = _unresolved(files, configuration) if configuration else []
    harm += [(file, file.unclear[name]) for name in missing for file in files if name in file.unclear]
    others = [(file, problem) for file in files for problem in specs.problems(file) if file.owner == FOREIGN]
    if harm:
        findings.wrong("CDI specs", _first_in(harm), _fix_of(*harm[0]))
    elif missing:
        found = "no CDI spec in {} defines {}".format(", ".join(directories), ", ".join(missing))
        findings.wrong("CDI specs", found, f"{_PROVISION}\n{commands.restart}")
    elif others:
        # Runtimes skip such a file, so only that file's devices have no effect.
        findings.warning(
            "CDI specs", f"another owner's file; our devices work: {_first_in(others)}", _fix_of(*others[0])
        )
    else:
        findings.ok("CDI specs", "%d files, %d of them ours" % (len(files), sum(f.owner == OURS for f in files)))


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


async def _devices(findings: Findings, configuration: Configuration) -> None:
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
        fix = "udevadm trigger --action=add    # if the device is plugged in; role host_devices loads kernel modules"
        findings.wrong("devices", first(bad), f"{fix}\nnode-device-plugin status    # each with its reason")
    else:
        findings.ok("devices", "every required device node exists")


def _directory(findings: Findings, directory: str, unit: str) -> None:
    link = "kubelet directory"
    if not os.path.isdir(directory):
        found = f"{directory} does not exist: the node has not joined, or the kubelet uses another directory"
        findings.wrong(
            link, found, f"systemctl status {unit}    # for another directory, set kubelet_device_plugin_dir"
        )
    elif not os.access(directory, os.W_OK | os.X_OK):
        findings.wrong(link, f"{directory}: this user cannot write to it", "sudo node-device-plugin doctor")
    else:
        # Unlike this process, the service runs as root without capabilities, so file permissions apply to the service.
        for path, asked, mode in (
            (directory, 0o5, 0o755),
            (os.path.dirname(status_socket(directory)), 0o7, PRIVATE_MODE),
        ):
            if os.path.isdir(path) and not _allows(os.stat(path), asked):
                found = "%s: mode %04o, owner %d: the plugin cannot create its sockets there"
                status = os.stat(path)
                found = found % (path, stat.S_IMODE(status.st_mode), status.st_uid)
                findings.wrong(link, found, f"chown root {path}\nchmod {mode:04o} {path}")
                return
        findings.ok(link, directory)


def _allows(status: os.stat_result, asked: int) -> bool:
    """Whether file permissions grant this user ``asked`` (bits r, w, x) without any capability."""
    if status.st_uid == os.geteuid():
        allowed = status.st_mode >> 6
    elif status.st_gid in (os.getegid(), *os.getgroups()):
        allowed = status.st_mode >> 3
    else:
        allowed = status.st_mode
    return allowed & asked == asked


def _registry(findings: Findings, root: str, unit: str) -> None:
    registry = os.path.join(root, "plugins_registry")
    if os.path.isdir(registry):
        findings.ok("kubelet socket", f"not needed: the kubelet watches {registry}")
    else:
        found = f"{registry} does not exist: check that {root} is the kubelet's --root-dir"
        findings.wrong(
            "kubelet socket", found, f"systemctl status {unit}    # for another --root-dir, set kubelet_root_dir"
        )


def _root(findings: Findings, root: str, kubelet: KubeletProcess | None) -> None:
    if kubelet is not None and os.path.realpath(kubelet.root_dir) != os.path.realpath(root):
        found = f"the kubelet's --root-dir is {kubelet.root_dir}, but the configuration has {root}"
        fix = f"set node_devices_settings: {{kubelet_root_dir: {kubelet.root_dir}}}, then:\n{_PROVISION}"
        findings.wrong("root directory", found, fix)
    else:
        findings.ok("root directory", root)


async def _socket(findings: Findings, directory: str, unit: str) -> None:
    path = os.path.join(directory, "kubelet.sock")
    reason = await _refusal(path)
    if reason is None:
        findings.ok("kubelet socket", f"{path} accepts connections")
    else:
        findings.wrong("kubelet socket", f"{path}: {reason}", f"systemctl restart {unit}")


async def _refusal(socket: str) -> str | None:
    """Why a connection to a unix socket fails; None if it succeeds."""
    try:
        _reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(socket), 5)
    except (OSError, asyncio.TimeoutError) as error:
        return getattr(error, "strerror", None) or "no answer in 5 s"
    writer.close()
    return None


async def _plugin(
    findings: Findings,
    directory: str,
    loaded: LoadedConfiguration | None,
    instances: Sequence[int],
    commands: Commands,
) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = await client.ask(directory, "GET", "/status")
    except client.NotAnswering as error:
        # The plugin serves nothing until it has locked its directory.
        locked = os.path.dirname(status_socket(directory))
        others = [each for each in await in_thread(lock_holders.holders, locked) if each.pid not in instances]
        if others:
            found = f"{error}; {locked} is locked by {lock_holders.named(others)}, so that the plugin waits"
            findings.wrong("plugin", found, await in_thread(ending, [each.pid for each in others]))
        else:
            findings.wrong("plugin", str(error), f"{commands.restart}\n{commands.log}")
        return None
    running = state["configuration"]["sha256"]
    if loaded is not None and running != loaded.sha256:
        found = f"the plugin runs with configuration {running[:12]}, but the file is {loaded.sha256[:12]}"
        findings.wrong("plugin", found, commands.reload)
    elif len(instances) > 1:
        pids = [str(pid) for pid in instances]
        found = "several plugins run (processes {}): one serves, and the others wait".format(" ".join(pids))
        fix = "systemctl status node-device-plugin    # stop each plugin except the service, such as a pod:"
        findings.wrong("plugin", found, "{}\nps -o pid,args -p {}".format(fix, ",".join(pids)))
    else:
        findings.ok("plugin", "{}, configuration {}".format(state["version"], running[:12]))
    return state


async def _registration(
    findings: Findings,
    configuration: Configuration,
    root: str,
    state: dict[str, Any] | None,
    unit: str,
    commands: Commands,
) -> None:
    link = "registration"
    try:
        listing = await kubelet_queries.listing(root, configuration.kubelet_device_plugin_dir)
    except (CheckpointError, OSError) as error:
        findings.wrong(link, str(error), f"systemctl restart {unit}")
        return
    except PodResourcesError as error:
        fix = "%s    # or --kubelet-root" % (_START_KUBELET % {"kubelet": unit})
        if error.is_limited:
            findings.wrong(
                link, str(error), "node-device-plugin doctor    # again, after the other clients have finished"
            )
        else:
            findings.wrong(link, f"no kubelet answers below {root}", fix)
        return
    served = {each["name"]: bool(each["registered"]) for each in (state or {}).get("resources", [])}
    registered = listing.registered(served)
    missing = [each.name for each in configuration.resources if each.name not in {*registered, *served}]
    unregistered = [name for name, is_registered in served.items() if not is_registered]
    if missing:
        found = "the kubelet does not know {}".format(", ".join(missing))
        findings.wrong(link, found, f"{commands.restart}\n{commands.log}")
    elif unregistered:
        found = "not registered with the kubelet: {}".format(", ".join(unregistered))
        findings.wrong(link, found, f"{commands.restart}\n{commands.log}")
    elif state is None:
        findings.unknown(link, "the kubelet still lists every resource, but no plugin answers")
    else:
        findings.ok(link, "the kubelet lists every resource")


async def _expected(findings: Findings, places: KubeletPlaces, socket: str) -> None:
    """Check that no expected device is lost, and tell why optional devices are left out."""
    link = "expected devices"
    try:
        found = await status(places, socket)
    except (CheckpointError, OSError) as error:
        findings.unknown(link, str(error))
        return
    if found.plugin is None:
        findings.unknown(link, "no plugin answers")
        return
    absent, unusable = await _absent(found)
    harm = [f"{loss.resource}: {loss.text}" for loss in found.losses if loss.fails]
    mild = [f"{loss.resource}: {loss.text}" for loss in found.losses if not loss.fails]
    shown = "node-device-plugin status    # each device with its reason and its pod"
    if harm:
        findings.wrong(link, _joined(harm), shown)
    elif mild or unusable:
        findings.warning(link, _joined([*mild, *unusable]), shown)
    else:
        left_out = f"; optional devices that are not there: {_joined(absent)}" if absent else ""
        findings.ok(link, f"no device is lost{left_out}")


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


def _joined(sentences: Sequence[str]) -> str:
    more = [f"and {len(sentences) - _MOST_TOLD} more"] if len(sentences) > _MOST_TOLD else []
    return "; ".join([*sentences[:_MOST_TOLD], *more])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
