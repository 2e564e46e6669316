"""Judges which expected devices a node has lost. ``verify``, ``doctor`` and ``status`` use this verdict.

Expected are the devices that pods hold, a device for each running container that requests one, the number of devices
that the declaration requires, and, as a warning, the discovered devices that were offered since the boot.

A running container may request a device and hold none. The kubelet starts such a container if it admits the pod again
without its checkpoint of devices, for example after somebody deleted the file. It also does so if no scheduler made a
claim for a resource of a DRA driver (removeMissingExtendedResources in pkg/kubelet/lifecycle of Kubernetes): for a
static pod, and for a pod that was created with ``spec.nodeName``. Requests are in pod specs alone, so this module reads
the copy that the kubelet keeps of them for in-place resizes (``allocated_pods_state``, pkg/kubelet/allocation/state in
Kubernetes). A kubelet before 1.33 keeps no copy.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..declaration.device_plugin_api import devices_behind
from ..declaration.dra_api import NO_CLAIM
from ..declaration.model import DEVICE_PLUGIN, DRA
from ..devices.health import CdiNames, reason_of
from ..runtime.client import CriClient
from ..runtime.errors import CriError
from ..support import bounded_reads
from ..support.bounded_calls import BoundedCalls, Key, NoAnswer
from ..support.tables import counted, few
from ..wire.cri_v1_pb2 import CONTAINER_RUNNING
from .queries import DeviceNames, HeldDevice, Holders

#: Maximum number of reasons in one sentence.
_MOST_TOLD = 5
_MISSED = (
    "{} was offered since the node's boot, and is lost: {}: attach it again, or accept its loss with "
    "node-device-plugin reload --forget-lost"
)
_NOT_GIVEN = "but the kubelet gave it none (for example, its checkpoint was deleted): create the pod again"
_NOT_FOUND = "the plugin no longer finds the device"
#: The kubelet's copy of the requests of its pods, below its root directory.
REQUESTS_FILE = "allocated_pods_state"
_NOTHING = frozenset({"", "0"})


class Offer(NamedTuple):
    """A resource as it is offered now.

    min_devices: as declared. reasons: each known device with the reason why it is lost; None for a healthy device, and
    for one that is withheld because a container holds it under another name. left_out: devices that matched and are not
    offered, each with the reason. missed: discovered devices that were offered since the boot and are gone, each with
    the reason. api: as in Resource.
    """

    resource: str
    min_devices: int
    reasons: Mapping[str, str | None]
    left_out: Mapping[str, str] = MappingProxyType({})
    missed: Mapping[str, str] = MappingProxyType({})
    api: str = DEVICE_PLUGIN


class Loss(NamedTuple):
    """A lost device. text: one sentence without the resource. device: empty if only a number is missing.

    fails: whether the loss fails a verification; otherwise it is a warning.
    """

    resource: str
    device: str
    text: str
    fails: bool = True

    @property
    def level(self) -> str:
        """The word before the loss in a report for people."""
        return "problem" if self.fails else "warning"


def offers_of(plugin: Mapping[str, Any]) -> list[Offer]:
    """The offers in the running plugin's state (daemon.state). An earlier release's plugin has fewer keys."""
    return [
        Offer(
            each["name"],
            each.get("min_devices", 0),
            {
                device["id"]: None if device["state"] == "healthy" or device.get("withheld") else device["reason"]
                for device in each["devices"]
            },
            {**each["refused"], **each.get("left_out", {})},
            each.get("missed", {}),
            each.get("api", DEVICE_PLUGIN),
        )
        for each in plugin["resources"]
    ]


async def losses(
    offers: Sequence[Offer], holders: Holders, unmet: Iterable[Loss], spec_dirs: Sequence[str]
) -> list[Loss]:
    """The losses of these resources. unmet: see unserved. spec_dirs: where the runtime reads CDI specs."""
    known = {offer.resource: offer for offer in offers}
    # The checkpoint may list pods that have ended. It gives no namespace.
    held = [each for each in holders.held if each.resource in known and each.namespace]
    lost = await _lost(held if holders.source == "kubelet" else [], known, spec_dirs)
    found = [
        Loss(each.resource, each.device, f"{each.device}: {each.namespace}/{each.pod} holds it, but it is lost: {why}")
        for each, why in lost.items()
        if why is not None
    ]
    told = {(each.resource, device_id) for each in found for device_id in devices_behind(each.device)}
    found += [
        Loss(offer.resource, device_id, _MISSED.format(device_id, why), fails=False)
        for offer in offers
        for device_id, why in offer.missed.items()
        if (offer.resource, device_id) not in told
    ]
    found += unmet
    found += [_too_few(offer) for offer in offers if _number(offer) < offer.min_devices]
    order = list(known)
    return sorted(dict.fromkeys(found), key=lambda loss: order.index(loss.resource))


async def _lost(
    held: Sequence[HeldDevice], offers: Mapping[str, Offer], spec_dirs: Sequence[str]
) -> dict[HeldDevice, str | None]:
    """Each held device with the reason why it is lost; None if it is not lost.

    A device that is no longer declared is not lost while its CDI names resolve and its host paths exist.
    """
    found: dict[HeldDevice, str | None] = {}
    unknown: dict[Key, HeldDevice] = {}
    for each in held:
        reasons = offers[each.resource].reasons
        offered = [device_id for device_id in devices_behind(each.device) if device_id in reasons]
        if offered:
            found[each] = reasons[offered[0]]
        else:
            unknown[Key(each.resource, f"{each.device} of {each.namespace}/{each.pod} {each.container}")] = each
    if unknown:
        calls, names = BoundedCalls(), CdiNames(spec_dirs)
        read = functools.partial(names.read, {name for each in unknown.values() for name in each.cdi_names})
        unread = (await calls.run([(names.key, read)]))[names.key] if spec_dirs else None
        looks = [(key, functools.partial(_broken, each, names)) for key, each in unknown.items()]
        for key, answer in (await calls.run(looks)).items():
            why = reason_of(unread) or reason_of(answer)
            found[unknown[key]] = why and f"{_NOT_FOUND}, and {why}"
    return found


def _broken(held: HeldDevice, names: CdiNames) -> str | None:
    """What is missing of a given device, by its CDI names and host paths; None if nothing is missing."""
    its = DeviceNames(held.cdi_names).of(devices_behind(held.device))
    broken = next(filter(None, map(names.problem, its)), None) if names.is_known else None
    gone = next((path for path in held.all_host_paths if not os.path.lexists(path)), None)
    return broken or (gone and f"{gone} does not exist")


def _number(offer: Offer) -> int:
    return sum(reason is None for reason in offer.reasons.values())


def _too_few(offer: Offer) -> Loss:
    lost = {device_id: why for device_id, why in offer.reasons.items() if why is not None}
    reasons = [f"{device_id}: {why}" for device_id, why in {**offer.left_out, **lost}.items()]
    expected = f"expected at least {counted(offer.min_devices, 'device')} (min_devices), found {_number(offer)}"
    return Loss(offer.resource, "", "; ".join([expected, *few(reasons, _MOST_TOLD)]))


async def unserved(kubelet_root: str, runtime_socket: str, holders: Holders, offers: Sequence[Offer]) -> list[Loss]:
    """A loss for each running container that requests one of these resources and holds none of it, sorted.

    With DRA, the loss is a warning: whoever may create pods can cause it, and only a new pod ends it. Empty if the
    kubelet keeps no requests, or if the kubelet or the runtime does not answer. Doctor reports such programs.
    """
    apis = {offer.resource: offer.api for offer in offers}
    if holders.source != "kubelet" or not apis:
        return []
    try:
        wanted = await BoundedCalls().ask(requested, kubelet_root, frozenset(apis))
        if not wanted:
            return []
        async with CriClient(runtime_socket) as cri:
            running = [each for each in await cri.containers() if each.state == CONTAINER_RUNNING]
    except (CriError, NoAnswer):
        return []
    holding = {(held.resource, held.namespace, held.pod, held.container) for held in holders.held}
    found = set()
    for each in running:
        uid, namespace, pod, container = (
            each.labels.get("io.kubernetes." + label, "")
            for label in ("pod.uid", "pod.namespace", "pod.name", "container.name")
        )
        # The kubelet lists neither ended pods nor init containers, whose devices later containers get.
        if (namespace, pod, container) not in holders.containers:
            continue
        for resource, number in wanted.get((uid, container), {}).items():
            if (resource, namespace, pod, container) not in holding:
                is_by_claim = apis[resource] == DRA
                text = f"{namespace}/{pod} runs without a device: its container {container} requests {number}, "
                found.add(Loss(resource, "", text + (NO_CLAIM if is_by_claim else _NOT_GIVEN), not is_by_claim))
    return sorted(found)


def requested(kubelet_root: str, resources: Collection[str]) -> dict[tuple[str, str], dict[str, str]]:
    """By pod uid and container, the requested number of each of these resources; empty without a readable file."""
    try:
        content = bounded_reads.read_file(os.path.join(kubelet_root, REQUESTS_FILE))
        data = bounded_reads.json_of(content)["data"].encode()
        entries = bounded_reads.json_of(data).get("entries") or {}
        found = {
            (str(uid), str(container)): _numbers(wanted, resources)
            for uid, pod in entries.items()
            for container, wanted in (pod.get("ContainerResources") or {}).items()
        }
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return {}
    return {key: numbers for key, numbers in found.items() if numbers}


def _numbers(wanted: Mapping[str, Any], resources: Collection[str]) -> dict[str, str]:
    # For an extended resource, request and limit are equal (API validation), and one of them may be left out.
    both = {**(wanted.get("limits") or {}), **(wanted.get("requests") or {})}
    return {name: str(both[name]) for name in resources if str(both.get(name, "")) not in _NOTHING}
