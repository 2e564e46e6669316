"""Finds the containers that hold a device by a CDI name, whoever owns the name's spec.

While CDI is off, such a container does not start again, or starts without its device.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from ..runtime.errors import CriError
from ..runtime.queries import RequestedCdi, requested_cdi
from ..support.bounded_calls import in_thread
from ..wire import device_plugin_v1beta1_pb2 as api
from . import queries
from .checkpoint import CheckpointError, PodDevices, read_checkpoint
from .pod_resources import PodResourcesClient, PodResourcesError, Pods

#: Namespace, pod and container.
_Place = tuple[str, str, str]


class CdiHolder(NamedTuple):
    """A container and its CDI names, sorted. If only the pod's uid is known, pod is the uid and namespace is empty."""

    namespace: str
    pod: str
    container: str
    names: tuple[str, ...]


class CdiHolders(NamedTuple):
    """The containers that hold CDI names, sorted. unknown: why there may be others; empty if all are known."""

    held: tuple[CdiHolder, ...]
    unknown: tuple[str, ...]

    def to_data(self) -> dict[str, Any]:
        """The same, ready for JSON."""
        return {"held": [each._asdict() for each in self.held], "unknown": list(self.unknown)}


async def cdi_holders(kubelet_root: str, device_plugin_dir: str, socket: str) -> CdiHolders:
    """The containers that hold CDI names: by the kubelet, its checkpoint, and the container runtime at ``socket``.

    An ended container counts until nothing can start it again: while its pod's sandbox is ready or the kubelet lists
    its pod, and if no kubelet answers.
    """
    unknown = []
    checkpointed: tuple[PodDevices, ...] = ()
    containers: list[RequestedCdi] = []
    pods = await _pods(kubelet_root)
    try:
        checkpoint = await in_thread(read_checkpoint, device_plugin_dir)
        checkpointed = checkpoint.pod_devices if checkpoint else ()
    except CheckpointError as error:
        unknown.append(str(error))
    except OSError as error:
        unknown.append(f"{error.filename or device_plugin_dir} cannot be read: {error.strerror}")
    try:
        containers = await requested_cdi(socket)
    except CriError as error:
        unknown.append(str(error))
    found: dict[_Place, set[str]] = {place: set(names) for place, names in (pods.claimed if pods else {}).items()}
    for each in containers:
        place = (each.namespace, each.pod, each.container)
        if each.names and (each.may_run or pods is None or place in pods.containers):
            found.setdefault(place, set()).update(each.names)
    by_uid = {each.uid: (each.namespace, each.pod) for each in containers}
    for entry, places in _held(checkpointed, pods, by_uid):
        try:
            names = queries.cdi_names(api.ContainerAllocateResponse.FromString(entry.allocate_response))
        except DecodeError:
            pod = "/".join(places[0][:2]).lstrip("/")
            unknown.append(f"the kubelet's checkpoint has an unreadable answer for {entry.resource} of pod {pod}")
            continue
        for place in places if names else ():
            found.setdefault(place, set()).update(names)
    unknown += _without_answer(checkpointed, pods, {each[:2] + each[3:4] for each in containers if each.is_complete})
    return CdiHolders(tuple(CdiHolder(*place, tuple(sorted(found[place]))) for place in sorted(found)), tuple(unknown))


async def _pods(kubelet_root: str) -> Pods | None:
    """The pods that the kubelet lists; None if no kubelet answers, or if it may not know its pods yet."""
    try:
        async with PodResourcesClient(os.path.join(kubelet_root, queries.POD_RESOURCES_SOCKET)) as kubelet:
            pods = await kubelet.pods()
    except PodResourcesError:
        return None
    return None if await in_thread(queries.has_just_started, kubelet_root) else pods


def _held(
    checkpointed: Iterable[PodDevices], pods: Pods | None, by_uid: dict[str, tuple[str, str]]
) -> Iterator[tuple[PodDevices, list[_Place]]]:
    """Yield the checkpoint's entries of containers that may still hold their devices, with these containers.

    The checkpoint may also list pods that have ended, and it knows a pod only by its uid.
    """
    for entry in checkpointed:
        if pods is None:
            namespace, pod = by_uid.get(entry.pod_uid, ("", entry.pod_uid))
            yield entry, [(namespace, pod, entry.container)]
            continue
        places = [
            (each.namespace, each.pod, each.container)
            for each in pods.holders
            if (each.container, each.resource) == (entry.container, entry.resource)
            and not set(each.device_ids).isdisjoint(entry.device_ids)
        ]
        if places:
            yield entry, places


def _without_answer(checkpointed: Iterable[PodDevices], pods: Pods | None, told: set[_Place]) -> Iterator[str]:
    """Yield a message for each container whose CDI names neither the checkpoint nor the runtime tells."""
    known = {(entry.container, entry.resource, device) for entry in checkpointed for device in entry.device_ids}
    for each in pods.holders if pods else ():
        place = (each.namespace, each.pod, each.container)
        missing = [device for device in each.device_ids if (each.container, each.resource, device) not in known]
        if missing and place not in told:
            yield (
                f"the kubelet's checkpoint does not have what {each.namespace}/{each.pod} was given for "
                f"{each.resource} ({', '.join(missing)}): end this pod, or restart the resource's device plugin"
            )
