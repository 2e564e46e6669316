"""Questions to the kubelet: the devices that it lists, and the containers that hold them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from ..cdi import writer
from ..cdi.directories import DEFAULT_DIRECTORIES
from ..cdi.kinds import kinds_of
from ..cdi.links import Links
from ..cdi.reader import SpecReader
from ..cdi.resolution import UUID, Resolution
from ..declaration.cdi import names_in
from ..declaration.device_plugin_api import devices_behind, shares_behind
from ..declaration.names import ids_of
from ..devices.holdings import Holding
from ..support.bounded_calls import Key, NoAnswer
from ..telemetry.logs import Log, Tries
from ..wire import device_plugin_v1beta1_pb2 as api
from .checkpoint import CheckpointError, PodDevices, read_checkpoint
from .pod_resources import Holder, PodResourcesClient, PodResourcesError, Pods

log = Log(__name__)
#: The running plugin asks every few seconds.
_READING = Tries(log)

POD_RESOURCES_SOCKET = os.path.join("pod-resources", "kubelet.sock")
#: Seconds after its start within which a kubelet may not list its pods yet: it waits for the API server's answer.
_STARTING = 10.0
#: Seconds between two questions to such a kubelet.
_PAUSE = 0.5


class _Socket(NamedTuple):
    """A kubelet's socket. first_seen: monotonic seconds. replaces: whether this process saw another socket before."""

    this: tuple[int, int, int]
    first_seen: float
    replaces: bool


#: The kubelet's socket as last seen, by path.
_SOCKETS: dict[str, _Socket] = {}


class Listing(NamedTuple):
    """The devices and pods that a running kubelet lists.

    checkpointed: the resources in the kubelet's checkpoint, also without a device. The checkpoint may be late: of
    several registrations at the same time, it may miss one until the kubelet's next write.
    allocatable: resource to the ids of its healthy devices. holders: containers with devices. pods: their number.
    """

    checkpointed: frozenset[str]
    allocatable: Mapping[str, tuple[str, ...]]
    holders: list[Holder]
    pods: int

    def registered(self, served: Mapping[str, bool]) -> frozenset[str]:
        """The resources that the kubelet knows, also without a device.

        served: each resource of the running plugin, with whether the plugin says that it is registered; empty without
        an answer. Only a resource that no plugin tells about depends on the checkpoint.
        """
        registered = (name for name, is_registered in served.items() if is_registered)
        return frozenset(self.allocatable) | frozenset(registered) | (self.checkpointed - served.keys())

    def held(self, resource: str) -> dict[str, str]:
        """The held ids of a resource, each with its ``namespace/pod``."""
        return {
            device: f"{holder.namespace}/{holder.pod}"
            for holder in self.holders
            if holder.resource == resource
            for device in holder.device_ids
        }


async def listing(kubelet_root: str, device_plugin_dir: str) -> Listing:
    """The devices and pods that the kubelet lists.

    While a kubelet that has just started lists no pod, although it has pods on its disk, the question is repeated.
    Raises PodResourcesError if the kubelet does not answer, CheckpointError or OSError for an unreadable checkpoint.
    """
    allocatable, pods = await _listed(kubelet_root)
    while not pods.number and has_just_started(kubelet_root) and _has_pods(kubelet_root):
        await asyncio.sleep(_PAUSE)
        allocatable, pods = await _listed(kubelet_root)
    checkpoint = read_checkpoint(device_plugin_dir)
    known = checkpoint.registered if checkpoint else {}
    return Listing(frozenset(known), allocatable, pods.holders, pods.number)


async def _listed(kubelet_root: str) -> tuple[Mapping[str, tuple[str, ...]], Pods]:
    async with PodResourcesClient(os.path.join(kubelet_root, POD_RESOURCES_SOCKET)) as kubelet:
        return await kubelet.allocatable(), await kubelet.pods()


class HeldDevice(NamedTuple):
    """A device that a container holds. From a checkpoint, pod is the pod's uid and namespace is empty.

    all_host_paths: the host paths that the container got for it, sorted: from the Allocate answer that the kubelet
    keeps, and from the specs as they define its CDI names now; for a name that is gone, those of every device that it
    may have meant. host_paths: the same without CDI paths that another device of the kind gives, too. by_our_cdi:
    whether our specs define one of the names.
    """

    resource: str
    device: str
    namespace: str
    pod: str
    container: str
    host_paths: tuple[str, ...] = ()
    all_host_paths: tuple[str, ...] = ()
    by_our_cdi: bool = False
    #: The CDI names in the Allocate answer for all devices of the resource in the container.
    cdi_names: tuple[str, ...] = ()


class Holders(NamedTuple):
    """The held devices. source: where they come from: ``kubelet``, its ``checkpoint``, or ``none``.

    allocatable: resource to its healthy devices. unanswered: the kubelet's socket and the reason of the failure, which
    tells a kubelet that hangs from a missing one. containers: see Pods; not part of the data for JSON.
    """

    source: str
    held: tuple[HeldDevice, ...] = ()
    allocatable: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    unanswered: str | None = None
    containers: frozenset[tuple[str, str, str]] = frozenset()

    def to_data(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        data = {**self._asdict(), "held": [each._asdict() for each in self.held], "allocatable": dict(self.allocatable)}
        del data["containers"]
        return data


async def holders(
    kubelet_root: str,
    device_plugin_dir: str,
    spec_dirs: Sequence[str] = DEFAULT_DIRECTORIES,
    links: Links | None = None,
) -> Holders:
    """The held devices: from the kubelet, or from its checkpoint while no kubelet answers.

    A kubelet that has just started answers before it knows its pods. Its checkpoint adds the devices that it does not
    list. The checkpoint may also list pods that have ended, so after ``_STARTING`` only the kubelet's list counts.

    links: a caller that asks repeatedly passes the same object, so that a path that hangs is not read each time.
    Raises OSError if a file is unreadable or hangs, and CheckpointError for an invalid checkpoint without a kubelet.
    """
    links = links or Links()
    try:
        allocatable, pods = await _listed(kubelet_root)
    except PodResourcesError as error:
        unanswered = f"{error.socket}: {error.code.name}: {error.details}"
    else:
        try:
            given = await _Given.read(device_plugin_dir, spec_dirs, links)
        except CheckpointError as error:
            _READING.failed(logging.WARNING, "cannot read which device nodes containers got", error=error)
            given = _Given((), {}, links)
        else:
            _READING.went_well()
        held = {
            (holder.resource, device): given.held(
                HeldDevice(holder.resource, device, holder.namespace, holder.pod, holder.container)
            )
            for holder in pods.holders
            for device in holder.device_ids
        }
        look = functools.partial(has_just_started, kubelet_root)
        if await links.calls.call(Key("", "the kubelet's socket"), look):
            held = {**{(each.resource, each.device): each for each in given.checkpointed()}, **held}
        return Holders("kubelet", tuple(held.values()), allocatable, containers=pods.containers)
    return await checkpointed_holders(device_plugin_dir, spec_dirs, links, unanswered)


async def checkpointed_holders(
    device_plugin_dir: str, spec_dirs: Sequence[str], links: Links, unanswered: str
) -> Holders:
    """The held devices by the checkpoint, for a kubelet that does not answer. Raises CheckpointError and OSError."""
    read = functools.partial(read_checkpoint, device_plugin_dir)
    checkpoint = await links.calls.call(Key("", "the kubelet's checkpoint"), read)
    if checkpoint is None:
        return Holders("none", unanswered=unanswered)
    given = await _Given.read(device_plugin_dir, spec_dirs, links)
    return Holders("checkpoint", tuple(given.checkpointed()), checkpoint.registered, unanswered)


def has_just_started(kubelet_root: str) -> bool:
    """Whether the kubelet made its PodResources socket, as it does at its start, within the last ``_STARTING``.

    The clock may be wrong. Therefore a socket counts as new only for this long after this process first saw it, and its
    time counts only if this process has seen no former socket.
    """
    path = os.path.join(kubelet_root, POD_RESOURCES_SOCKET)
    try:
        found = os.stat(path)
    except OSError:
        return True
    this, now = (found.st_dev, found.st_ino, found.st_ctime_ns), time.monotonic()
    former = _SOCKETS.get(path)
    if former is None or former.this != this:
        _SOCKETS[path] = former = _Socket(this, now, former is not None)
    if not former.replaces and time.time() - found.st_ctime >= _STARTING:
        return False
    return now - former.first_seen < _STARTING


def _has_pods(kubelet_root: str) -> bool:
    """Whether the kubelet has the directory of a pod. False if this process may not look."""
    try:
        return bool(os.listdir(os.path.join(kubelet_root, "pods")))
    except OSError:
        return False


def holdings(state: Holders, own: Collection[str]) -> list[Holding]:
    """The held devices as holdings, without the devices of resources that other plugins offer now.

    own: our present and former resources. A resource that no plugin offers may have been ours, shared or not. A
    checkpoint still lists our former names as offered, so if the checkpoint is the source, the result has every held
    device.
    """
    offered = state.allocatable if state.source == "kubelet" else ()
    found = []
    for held in state.held:
        is_ours = held.resource in own or held.by_our_cdi
        if is_ours or held.resource not in offered:
            holder = f"{held.namespace}/{held.pod}" if held.namespace else f"pod {held.pod}"
            shares = shares_behind(held.device)
            is_share = not is_ours or len(shares) > 1
            found.append(Holding(holder, held.resource, shares, frozenset(held.host_paths), is_share, is_ours))
    return found


def given_paths(device_plugin_dir: str, resource: str, kubelet_ids: Collection[str]) -> list[frozenset[str]]:
    """The host paths of device nodes that the kubelet gives each container with exactly these shares of a resource.

    Raises CheckpointError and OSError.
    """
    checkpoint = read_checkpoint(device_plugin_dir)
    entries = checkpoint.pod_devices if checkpoint else ()
    found = [each for each in entries if each.resource == resource and set(each.device_ids) == set(kubelet_ids)]
    # One by one, because containers of two pods may have the same name.
    answers = [answer for each in found for answer in _answers([each]).values()]
    return [frozenset(node.host_path for node in answer.devices) for answer in answers]


class _Given:
    """The host paths that containers got with their devices, by the checkpoint and the present CDI specs."""

    def __init__(
        self,
        pod_devices: Iterable[PodDevices],
        by_cdi: Mapping[str, writer.HostPaths],
        links: Links,
        ours: Collection[str] = (),
    ) -> None:
        self._pod_devices = pod_devices
        # By container, too: the checkpoint may list an ended pod before the id's present pod.
        self._answers = _answers(pod_devices)
        self._by_cdi = by_cdi
        self._ours = ours
        self._links = links
        #: By the identity of a container's answer.
        self._containers: dict[int, _Container] = {}

    @classmethod
    async def read(cls, device_plugin_dir: str, spec_dirs: Sequence[str], links: Links) -> _Given:
        """Read the checkpoint and the specs. Raises CheckpointError and OSError."""
        read = functools.partial(_pods_and_specs, device_plugin_dir, spec_dirs)
        try:
            pod_devices, specs, foreign = await links.calls.call(Key("", "what containers were given"), read)
        except NoAnswer as error:
            raise NoAnswer(f"reading the kubelet's checkpoint or a CDI spec {error}") from error
        paths = {node for spec in specs for given in spec.values() for node in given.nodes}
        ours = writer.host_paths(specs, links)
        made = cls(pod_devices, {**foreign, **ours}, links, ours.keys())
        await links.look_at(paths.union(node.host_path for each in made._answers.values() for node in each.devices))
        return made

    def checkpointed(self) -> Iterator[HeldDevice]:
        """The held devices according to the checkpoint, which identifies pods only by their uid."""
        for entry in self._pod_devices:
            for device in entry.device_ids:
                yield self.held(HeldDevice(entry.resource, device, "", entry.pod_uid, entry.container))

    def held(self, held: HeldDevice) -> HeldDevice:
        """The held device with its host paths, as far as they are known."""
        answer = self._answers.get((held.container, held.resource, held.device))
        if answer is None:
            return held
        if id(answer) not in self._containers:
            self._containers[id(answer)] = _Container(answer, self._by_cdi, self._ours, self._links)
        return self._containers[id(answer)].held(held)


class _Container:
    """The host paths that a container got with all devices of a resource: one answer covers them all."""

    def __init__(
        self,
        answer: api.ContainerAllocateResponse,
        by_cdi: Mapping[str, writer.HostPaths],
        ours: Collection[str],
        links: Links,
    ) -> None:
        self._cdi_names = tuple(sorted(cdi_names(answer)))
        names = [name for name in self._cdi_names if name in by_cdi]
        self._is_ours = any(name in ours for name in names)
        self._paths = {links.real(node.host_path) for node in answer.devices}
        self._paths.update(mount.host_path for mount in answer.mounts)
        self._by_cdi = by_cdi
        #: Our names and those of other programs, and both by the ids that a name gives its device.
        self._names = tuple([name for name in names if (name in ours) is is_ours] for is_ours in (True, False))
        self._by_id: tuple[dict[str, set[str]], ...] = ({}, {})
        for those, by_id in zip(self._names, self._by_id):
            for name in those:
                for device_id in ids_of(name):
                    by_id.setdefault(device_id, set()).add(name)
        # Of a thousand devices without a name of their own, each has the paths of all.
        self._sorted = functools.lru_cache(maxsize=None)(self._sort)

    def held(self, held: HeldDevice) -> HeldDevice:
        """The held device with its host paths, as far as they are known."""
        behind = devices_behind(held.device)
        own, every = self._sorted(*(frozenset().union(*(ids.get(each, ()) for each in behind)) for ids in self._by_id))
        return held._replace(host_paths=own, all_host_paths=every, by_our_cdi=self._is_ours, cdi_names=self._cdi_names)

    def _sort(self, *named: frozenset[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The device's own paths and all its paths. named: the device's names; if empty, each name may be its name."""
        given = [self._by_cdi[name] for own, all_names in zip(named, self._names) for name in own or all_names]
        own_paths = self._paths.union(*(each.own for each in given))
        return tuple(sorted(own_paths)), tuple(sorted(self._paths.union(*(each.all for each in given))))


#: Keeps the parsed specs, because YAML takes long.
_reader_of = functools.lru_cache(maxsize=4)(SpecReader)
#: The paths of held devices as last known: a name may be gone from the specs while a pod holds its device.
_last_known: dict[str, writer.HostPaths] = {}


def _pods_and_specs(
    device_plugin_dir: str, spec_dirs: Sequence[str]
) -> tuple[tuple[PodDevices, ...], list[dict[str, writer.Given]], dict[str, writer.HostPaths]]:
    checkpoint = read_checkpoint(device_plugin_dir)
    pod_devices = checkpoint.pod_devices if checkpoint else ()
    names = {name for answer in _answers(pod_devices).values() for name in cdi_names(answer)}
    ours = writer.given(spec_dirs, kinds_of(names))
    foreign = names.difference(*ours)
    return pod_devices, ours, _of_foreign(_reader_of(tuple(spec_dirs)).read(kinds_of(foreign)), foreign)


def _of_foreign(specs: Resolution, names: Set[str]) -> dict[str, writer.HostPaths]:
    """The host paths of other programs' devices, by fully qualified name."""
    own = specs.own_nodes(names)
    found = {name: _last_known[name] for name in names if name in _last_known}
    for name in own.keys() & names:
        paths = (each.path for each in specs.host_paths(name) if each.what != "hook")
        found[name] = writer.HostPaths(own[name], specs.nodes(name).union(paths))
    _last_known.clear()
    _last_known.update(found)
    possible = functools.lru_cache(maxsize=None)(functools.partial(_possible, specs, own, names))
    for name in names - found.keys():
        nodes = possible(name.partition("=")[0], bool(UUID.search(name)))
        found[name] = writer.HostPaths(nodes, nodes)
    return found


def _possible(
    specs: Resolution, own: Mapping[str, frozenset[str]], held: Collection[str], kind: str, is_uuid: bool
) -> frozenset[str]:
    """The nodes of every device that a name of this kind, now missing in all specs, may have meant.

    No container holds such a device under another name. A name with a UUID never becomes a name with another UUID.
    """
    others = {name: nodes for name, nodes in own.items() if name.partition("=")[0] == kind}
    excluded = {nodes for name, nodes in others.items() if name in held or (is_uuid and UUID.search(name))}
    return frozenset(path for name, nodes in others.items() if nodes not in excluded for path in specs.nodes(name))


def cdi_names(answer: api.ContainerAllocateResponse) -> set[str]:
    """The CDI names in an Allocate answer. Some plugins give them as annotations."""
    return {each.name for each in answer.cdi_devices} | names_in(answer.annotations)


def _answers(pod_devices: Iterable[PodDevices]) -> Mapping[tuple[str, str, str], api.ContainerAllocateResponse]:
    answers = {}
    for entry in pod_devices:
        with contextlib.suppress(DecodeError):
            answer = api.ContainerAllocateResponse.FromString(entry.allocate_response)
            for device in entry.device_ids:
                answers[entry.container, entry.resource, device] = answer
    return answers
