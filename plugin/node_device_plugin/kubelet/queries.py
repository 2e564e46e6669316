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

from ..cdi.directories import DEFAULT_DIRECTORIES
from ..cdi.links import Links
from ..cdi.reader import SpecReader
from ..cdi.resolution import UUID, HostPaths, Resolution, paths, paths_by_name
from ..declaration.cdi import names_in
from ..declaration.device_plugin_api import devices_behind
from ..declaration.names import ids_of, kinds_of
from ..devices.holdings import Holding
from ..support.bounded_calls import NoAnswer, in_thread
from ..telemetry.logs import Log, Tries
from ..wire import device_plugin_v1beta1_pb2 as api
from .checkpoint import Checkpoint, CheckpointError, PodDevices, read_checkpoint, read_registered
from .device_plugin.ids import ListedId
from .dra import RECORDS
from .pod_resources import Claimed, Listing, PodResourcesClient, PodResourcesError

log = Log(__name__)
#: The running plugin asks every few seconds.
_READING = Tries(log)

POD_RESOURCES_SOCKET = os.path.join("pod-resources", "kubelet.sock")
#: Seconds after its start within which a kubelet may not list its pods yet: it waits for the API server's answer.
_STARTING = 10.0
#: Seconds between two questions to such a kubelet.
_PAUSE = 0.5


#: The devices of a container, and what the plugin answered for them.
_Answered = tuple[PodDevices, api.ContainerAllocateResponse]


class _Socket(NamedTuple):
    """A kubelet's socket. first_seen: monotonic seconds. replaces: whether this process saw another socket before."""

    this: tuple[int, int, int]
    first_seen: float
    replaces: bool


#: The kubelet's socket as last seen, by path.
_SOCKETS: dict[str, _Socket] = {}


async def listing(kubelet_root: str, device_plugin_dir: str) -> Listing:
    """What the kubelet lists, with the resources in its checkpoint.

    While a kubelet that has just started lists no pod, although it has pods on its disk, the question is repeated.
    Raises PodResourcesError if the kubelet does not answer, CheckpointError or OSError for an unreadable checkpoint.
    """
    listed = await _listed(kubelet_root)
    while not listed.pods and has_just_started(kubelet_root) and _has_pods(kubelet_root):
        await asyncio.sleep(_PAUSE)
        listed = await _listed(kubelet_root)
    return listed._replace(checkpointed=frozenset(read_registered(device_plugin_dir)))


async def _listed(kubelet_root: str) -> Listing:
    async with PodResourcesClient(os.path.join(kubelet_root, POD_RESOURCES_SOCKET)) as kubelet:
        allocatable = await kubelet.allocatable()
        return (await kubelet.pods())._replace(allocatable=allocatable)


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
    #: The CDI names in the Allocate answer for all devices of the resource in the container; or those of the claim.
    cdi_names: tuple[str, ...] = ()
    #: The claim by which the container holds the device, as ``namespace/name``; empty for a device of a device plugin.
    #: Without a kubelet, the pod of a claim is unknown: pod is then empty.
    claim: str = ""


class Holders(NamedTuple):
    """The held devices. source: where they come from: ``kubelet``, its ``checkpoint``, or ``none``.

    allocatable: resource to its healthy devices. unanswered: the kubelet's socket and the reason of the failure, which
    tells a kubelet that hangs from a missing one. containers, claims: see Listing; not part of the data for JSON.
    """

    source: str
    held: tuple[HeldDevice, ...] = ()
    allocatable: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    unanswered: str | None = None
    containers: frozenset[tuple[str, str, str]] = frozenset()
    claims: tuple[Claimed, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        data = {**self._asdict(), "held": [each._asdict() for each in self.held], "allocatable": dict(self.allocatable)}
        del data["containers"], data["claims"]
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
        listed = await _listed(kubelet_root)
    except PodResourcesError as error:
        unanswered = f"{error.socket}: {error.code.name}: {error.details}"
        return await checkpointed_holders(device_plugin_dir, spec_dirs, links, unanswered)
    try:
        _checkpoint, given = await _given(device_plugin_dir, spec_dirs, links)
    except CheckpointError as error:
        _READING.failed(logging.WARNING, "cannot read which device nodes containers got", error=error)
        given = []
    else:
        _READING.went_well()
    known = {(each.container, each.resource, each.device): each for each in given}
    is_new = await links.calls.ask(has_just_started, kubelet_root)
    held = {(each.resource, each.device): each for each in (given if is_new else ())}
    for namespace, pod, container, resource, device_ids in listed.holders:
        for device in device_ids:
            each = known.get((container, resource, device), HeldDevice(resource, device, "", "", container))
            held[resource, device] = each._replace(namespace=namespace, pod=pod)
    return Holders("kubelet", tuple(held.values()), listed.allocatable, None, listed.containers, listed.claims)


async def with_claims(state: Holders, cdi_dir: str) -> Holders:
    """The same, with what claims hold of our devices (DRA). cdi_dir: of the plugin's CDI specs.

    Raises CheckpointError if a record of a claim is invalid.
    """
    if not await in_thread(os.path.isdir, os.path.join(cdi_dir, RECORDS)):
        return state
    # Nodes without claims do not load this.
    from .dra.queries import held_by_claims

    return state._replace(held=(*state.held, *await in_thread(held_by_claims, cdi_dir, state.claims)))


async def checkpointed_holders(
    device_plugin_dir: str, spec_dirs: Sequence[str], links: Links, unanswered: str
) -> Holders:
    """The held devices by the checkpoint, for a kubelet that does not answer. Raises CheckpointError and OSError."""
    checkpoint, given = await _given(device_plugin_dir, spec_dirs, links)
    if checkpoint is None:
        return Holders("none", unanswered=unanswered)
    return Holders("checkpoint", tuple(given), checkpoint.registered, unanswered)


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
            held_id = ListedId(held.device)
            is_share = not is_ours or len(held_id.device_ids) > 1
            found.append(Holding(holder, held.resource, held_id, frozenset(held.host_paths), is_share, is_ours))
    return found


def given_paths(device_plugin_dir: str, resource: str, kubelet_ids: Collection[str]) -> list[frozenset[str]]:
    """The host paths of device nodes that the kubelet gives each container with exactly these shares of a resource.

    Raises CheckpointError and OSError.
    """
    checkpoint = read_checkpoint(device_plugin_dir)
    entries = checkpoint.pod_devices if checkpoint else ()
    found = [each for each in entries if each.resource == resource and set(each.device_ids) == set(kubelet_ids)]
    return [frozenset(node.host_path for node in answer.devices) for _entry, answer in _answers(found)]


class DeviceNames:
    """The CDI names of one owner in an answer, which covers all devices of a resource in a container."""

    def __init__(self, names: Iterable[str]) -> None:
        self._all = tuple(names)
        self._by_id: dict[str, list[str]] = {}
        for name in self._all:
            for device_id in ids_of(name):
                self._by_id.setdefault(device_id, []).append(name)

    def of(self, device_ids: Iterable[str]) -> tuple[str, ...]:
        """The names of the device with one of these ids. If it has none, each name may be its name."""
        return tuple(name for each in device_ids for name in self._by_id.get(each, ())) or self._all


async def _given(
    device_plugin_dir: str, spec_dirs: Sequence[str], links: Links
) -> tuple[Checkpoint | None, list[HeldDevice]]:
    """The checkpoint, and its held devices with what their containers got by the present CDI specs.

    Raises CheckpointError and OSError.
    """
    try:
        checkpoint, answers, specs, foreign = await links.calls.ask(_pods_and_specs, device_plugin_dir, spec_dirs)
    except NoAnswer as error:
        raise NoAnswer(f"reading the kubelet's checkpoint or a CDI spec {error}") from error
    nodes = {node.host_path for _entry, answer in answers for node in answer.devices}
    in_ours = (given for spec in specs.ours for given in paths_by_name(spec).values())
    await links.look_at(nodes.union(*(paths("device node", given) for given in in_ours)))
    ours = specs.of_ours(links.real)
    by_name = {**foreign, **ours}
    # The checkpoint may list an ended pod before the id's present pod, whose answer counts.
    found = {
        (each.container, each.resource, each.device): each
        for entry, answer in answers
        for each in _held(entry, answer, by_name, ours, links)
    }
    return checkpoint, [
        found.get((container, resource, device), HeldDevice(resource, device, "", uid, container))._replace(pod=uid)
        for uid, container, resource, device_ids, _answer in (checkpoint.pod_devices if checkpoint else ())
        for device in device_ids
    ]


def _held(
    entry: PodDevices,
    answer: api.ContainerAllocateResponse,
    by_name: Mapping[str, HostPaths],
    ours: Collection[str],
    links: Links,
) -> Iterator[HeldDevice]:
    """The devices of an entry with its answer. by_name: what CDI names give. ours: those in our specs."""
    names = tuple(sorted(cdi_names(answer)))
    of_ours = DeviceNames(name for name in names if name in ours)
    of_others = DeviceNames(name for name in names if name in by_name and name not in ours)
    for_all = {links.real(node.host_path) for node in answer.devices}.union(each.host_path for each in answer.mounts)

    # Of a thousand devices without a name of their own, each has the paths of all.
    @functools.cache
    def with_paths(its_names: tuple[str, ...]) -> HeldDevice:
        given = [by_name[name] for name in its_names]
        own, every = for_all.union(*(each.own for each in given)), for_all.union(*(each.all for each in given))
        held = HeldDevice(entry.resource, "", "", entry.pod_uid, entry.container, tuple(sorted(own)))
        is_ours = any(name in ours for name in names)
        return held._replace(all_host_paths=tuple(sorted(every)), by_our_cdi=is_ours, cdi_names=names)

    for device in entry.device_ids:
        behind = devices_behind(device)
        yield with_paths((*of_ours.of(behind), *of_others.of(behind)))._replace(device=device)


#: Keeps the parsed specs, because YAML takes long.
_reader_of = functools.lru_cache(maxsize=4)(SpecReader)
#: The paths of held devices as last known: a name may be gone from the specs while a pod holds its device.
_last_known: dict[str, HostPaths] = {}


def _pods_and_specs(
    device_plugin_dir: str, spec_dirs: Sequence[str]
) -> tuple[Checkpoint | None, list[_Answered], Resolution, dict[str, HostPaths]]:
    """The checkpoint and its answers, the specs of their CDI names, and what the names that are not ours give."""
    checkpoint = read_checkpoint(device_plugin_dir)
    answers = _answers(checkpoint.pod_devices if checkpoint else ())
    names = {name for _entry, answer in answers for name in cdi_names(answer)}
    specs = _reader_of(tuple(spec_dirs)).read(kinds_of(names))
    return checkpoint, answers, specs, _of_foreign(specs, names.difference(*map(paths_by_name, specs.ours)))


def _of_foreign(specs: Resolution, names: Set[str]) -> dict[str, HostPaths]:
    """What other programs' devices give, by fully qualified name: now, else as last known, else what they may give."""
    own = specs.own_nodes(names)
    known = _remembered(names, {name: _paths_now(specs, name, own[name]) for name in own.keys() & names})
    free = functools.lru_cache(maxsize=None)(functools.partial(_free_nodes, specs, own, names))
    gone = {name: free(name.partition("=")[0], bool(UUID.search(name))) for name in names - known.keys()}
    return {**known, **{name: HostPaths(nodes, nodes) for name, nodes in gone.items()}}


def _paths_now(specs: Resolution, name: str, own: frozenset[str]) -> HostPaths:
    """What a device of another program gives now. own: the nodes that only this device has."""
    others = (each.path for each in specs.host_paths(name) if each.what != "hook")
    return HostPaths(own, specs.nodes(name).union(others))


def _remembered(names: Set[str], now: Mapping[str, HostPaths]) -> dict[str, HostPaths]:
    """Remember what held names give, and forget other names. Returns what they give now, or else gave last."""
    found = {**{name: _last_known[name] for name in names & _last_known.keys()}, **now}
    _last_known.clear()
    _last_known.update(found)
    return found


def _free_nodes(
    specs: Resolution, own: Mapping[str, frozenset[str]], held: Collection[str], kind: str, is_uuid: bool
) -> frozenset[str]:
    """The nodes of every device that a name of this kind may have meant before it went from all specs.

    No container holds such a device under another name. A name with a UUID never becomes a name with another UUID.
    own: each device's nodes, which tell whether two names mean one device. held: the names that containers hold.
    """
    of_kind = {name: nodes for name, nodes in own.items() if name.partition("=")[0] == kind}
    others = {nodes for name, nodes in of_kind.items() if name in held or (is_uuid and UUID.search(name))}
    return frozenset().union(*(specs.nodes(name) for name, nodes in of_kind.items() if nodes not in others))


def cdi_names(answer: api.ContainerAllocateResponse) -> set[str]:
    """The CDI names in an Allocate answer. Some plugins give them as annotations."""
    return {each.name for each in answer.cdi_devices} | names_in(answer.annotations)


def _answers(pod_devices: Iterable[PodDevices]) -> list[_Answered]:
    """The readable Allocate answers."""
    answers = []
    for entry in pod_devices:
        with contextlib.suppress(DecodeError):
            answers.append((entry, api.ContainerAllocateResponse.FromString(entry.allocate_response)))
    return answers
