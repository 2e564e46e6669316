"""Questions to the kubelet: which devices it lists, and who holds them."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from ..cdi import writer
from ..cdi.directories import DEFAULT_DIRECTORIES
from ..cdi.links import Links
from ..declaration.model import devices_behind
from ..devices.holdings import Holding
from ..support.bounded_calls import Key, NoAnswer
from ..telemetry.logs import Log
from ..wire import device_plugin_v1beta1_pb2 as api
from .checkpoint import CheckpointError, read_checkpoint
from .pod_resources import Holder, PodResourcesClient, PodResourcesError, Pods

log = Log(__name__)

POD_RESOURCES_SOCKET = os.path.join("pod-resources", "kubelet.sock")


class Listing(NamedTuple):
    """What a running kubelet lists.

    registered: every resource that its device manager knows, those without a device too.
    allocatable: resource to the ids of its healthy devices. holders: who holds which. pods: how many there are.
    """

    registered: frozenset[str]
    allocatable: Mapping[str, tuple[str, ...]]
    holders: list[Holder]
    pods: int

    def held(self, resource: str) -> dict[str, str]:
        """Ids of a resource that are held, each with ``namespace/pod``."""
        return {
            device: f"{holder.namespace}/{holder.pod}"
            for holder in self.holders
            if holder.resource == resource
            for device in holder.device_ids
        }


async def listing(kubelet_root: str, device_plugin_dir: str) -> Listing:
    """What the kubelet lists now.

    Raises PodResourcesError where none answers, CheckpointError where its checkpoint cannot be read.
    """
    allocatable, pods = await _listed(kubelet_root)
    checkpoint = read_checkpoint(device_plugin_dir)
    known = checkpoint.registered if checkpoint else {}
    return Listing(frozenset(known) | frozenset(allocatable), allocatable, pods.holders, pods.number)


async def _listed(kubelet_root: str) -> tuple[Mapping[str, tuple[str, ...]], Pods]:
    async with PodResourcesClient(os.path.join(kubelet_root, POD_RESOURCES_SOCKET)) as kubelet:
        return await kubelet.allocatable(), await kubelet.pods()


class HeldDevice(NamedTuple):
    """A device that a container holds. pod: its uid, and no namespace, by a checkpoint.

    all_host_paths: what the container was given of the host for it, sorted: by the Allocate answer that the kubelet
    keeps, and what the specs of ours say now of the CDI names in it. host_paths: of these, what no other device of its
    kind gives. by_our_cdi: whether one of the names is in our specs.
    """

    resource: str
    device: str
    namespace: str
    pod: str
    container: str
    host_paths: tuple[str, ...] = ()
    all_host_paths: tuple[str, ...] = ()
    by_our_cdi: bool = False


class Holders(NamedTuple):
    """Who holds which device. source: who says so: ``kubelet``, its ``checkpoint``, or ``none``.

    allocatable: resource to its healthy devices. unanswered: where the kubelet was asked, and why that failed, which
    tells one that hangs from one that is not there.
    """

    source: str
    held: tuple[HeldDevice, ...] = ()
    allocatable: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    unanswered: str | None = None

    def to_data(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {**self._asdict(), "held": [each._asdict() for each in self.held], "allocatable": dict(self.allocatable)}


async def holders(
    kubelet_root: str,
    device_plugin_dir: str,
    spec_dirs: Sequence[str] = DEFAULT_DIRECTORIES,
    links: Links | None = None,
) -> Holders:
    """Who holds which device. While no kubelet answers, its checkpoint does.

    links: kept by who asks again and again, so that a path that hangs is not asked each time.
    Raises OSError where that cannot be read, or hangs, and CheckpointError while no kubelet answers.
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
            log.warning("cannot tell which device nodes containers were given", error=error)
            given = _Given({}, {}, links)
        held = (
            given.held(HeldDevice(holder.resource, device, holder.namespace, holder.pod, holder.container))
            for holder in pods.holders
            for device in holder.device_ids
        )
        return Holders("kubelet", tuple(held), allocatable)
    return await checkpointed_holders(device_plugin_dir, spec_dirs, links, unanswered)


async def checkpointed_holders(
    device_plugin_dir: str, spec_dirs: Sequence[str], links: Links, unanswered: str
) -> Holders:
    """What ``holders`` answers while the kubelet does not. Raises CheckpointError and OSError."""
    read = functools.partial(read_checkpoint, device_plugin_dir)
    checkpoint = await links.calls.call(Key("", "the kubelet's checkpoint"), read)
    if checkpoint is None:
        return Holders("none", unanswered=unanswered)
    given = await _Given.read(device_plugin_dir, spec_dirs, links)
    held = (
        given.held(HeldDevice(entry.resource, device, "", entry.pod_uid, entry.container))
        for entry in checkpoint.pod_devices
        for device in entry.device_ids
    )
    return Holders("checkpoint", tuple(held), checkpoint.registered, unanswered)


def holdings(state: Holders, own: Collection[str]) -> list[Holding]:
    """What ``holders`` answers, as what devices are compared with; without what other plugins offer now.

    own: resources that are ours, or were. What nobody offers may have been ours, too, and shared or not. A checkpoint
    still lists former names of ours as offered, so while it answers for the kubelet every holding counts.
    """
    offered = state.allocatable if state.source == "kubelet" else ()
    found = []
    for held in state.held:
        is_ours = held.resource in own or held.by_our_cdi
        if is_ours or held.resource not in offered:
            holder = f"{held.namespace}/{held.pod}" if held.namespace else f"pod {held.pod}"
            is_share = not is_ours or len(devices_behind(held.device)) > 1
            found.append(Holding(holder, held.resource, held.device, frozenset(held.host_paths), is_share, is_ours))
    return found


#: An id of a resource is in one container at a time; one of a pod that has ended may still stand before it.
_Answers = Mapping[tuple[str, str, str], api.ContainerAllocateResponse]


class _Given:
    """What containers were given for their devices, by the kubelet's checkpoint and our CDI specs as they are now."""

    def __init__(self, answers: _Answers, by_cdi: Mapping[str, writer.HostPaths], links: Links) -> None:
        self._answers = answers
        self._by_cdi = by_cdi
        self._links = links

    @classmethod
    async def read(cls, device_plugin_dir: str, spec_dirs: Sequence[str], links: Links) -> _Given:
        """Raises CheckpointError and OSError."""
        read = functools.partial(_answers_and_specs, device_plugin_dir, spec_dirs)
        try:
            answers, specs = await links.calls.call(Key("", "what containers were given"), read)
        except NoAnswer as error:
            raise NoAnswer(f"what containers were given: the kubelet's checkpoint or a CDI spec {error}") from error
        paths = {node for spec in specs for given in spec.values() for node in given.nodes}
        await links.look_at(paths.union(node.host_path for answer in answers.values() for node in answer.devices))
        return cls(answers, writer.host_paths(specs, links), links)

    def held(self, held: HeldDevice) -> HeldDevice:
        """A device that a container holds, with what is known of it."""
        key = held.container, held.resource, held.device
        answer = self._answers.get(key, api.ContainerAllocateResponse())
        names = [each.name for each in answer.cdi_devices if each.name in self._by_cdi]
        # The answer is for all devices that the container has of the resource.
        of_device = [name for name in names if name.partition("=")[2] in devices_behind(held.device)] or names
        by_cdi = [self._by_cdi[name] for name in of_device]
        paths = {self._links.real(node.host_path) for node in answer.devices}
        paths.update(mount.host_path for mount in answer.mounts)
        return held._replace(
            host_paths=tuple(sorted(paths.union(*(each.own for each in by_cdi)))),
            all_host_paths=tuple(sorted(paths.union(*(each.all for each in by_cdi)))),
            by_our_cdi=bool(names),
        )


def _answers_and_specs(
    device_plugin_dir: str, spec_dirs: Sequence[str]
) -> tuple[_Answers, list[dict[str, writer.Given]]]:
    checkpoint = read_checkpoint(device_plugin_dir)
    answers = {}
    for entry in checkpoint.pod_devices if checkpoint else ():
        with contextlib.suppress(DecodeError):
            answer = api.ContainerAllocateResponse.FromString(entry.allocate_response)
            for device in entry.device_ids:
                answers[entry.container, entry.resource, device] = answer
    return answers, writer.given(spec_dirs)
