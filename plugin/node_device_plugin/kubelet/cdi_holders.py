"""Finds the containers that hold a device by a CDI name, whoever owns the name's spec.

While CDI is off, such a container does not start again, or starts without its device.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from ..runtime.errors import CriError
from ..runtime.queries import RequestedCdi, requested_cdi
from ..support.bounded_calls import in_thread
from ..wire import device_plugin_v1beta1_pb2 as api
from . import queries
from .checkpoint import CheckpointError, PodDevices, read_checkpoint
from .pod_resources import Listing, PodResourcesClient, PodResourcesError

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
    told = {(each.namespace, each.pod, each.container) for each in containers if each.is_complete}
    for place, resource, entries, missing in _held(checkpointed, pods, by_uid):
        pod = "/".join(place[:2]).lstrip("/")
        for entry in entries:
            try:
                names = queries.cdi_names(api.ContainerAllocateResponse.FromString(entry.allocate_response))
            except DecodeError:
                unknown.append(f"the kubelet's checkpoint has an unreadable answer for {resource} of pod {pod}")
                continue
            if names:
                found.setdefault(place, set()).update(names)
        if missing and place not in told:
            unknown.append(
                f"the kubelet's checkpoint does not have what {pod} was given for {resource} ({', '.join(missing)}): "
                "end this pod, or restart the resource's device plugin"
            )
    return CdiHolders(tuple(CdiHolder(*place, tuple(sorted(found[place]))) for place in sorted(found)), tuple(unknown))


async def _pods(kubelet_root: str) -> Listing | None:
    """The pods that the kubelet lists; None if no kubelet answers, or if it may not know its pods yet."""
    try:
        async with PodResourcesClient(os.path.join(kubelet_root, queries.POD_RESOURCES_SOCKET)) as kubelet:
            pods = await kubelet.pods()
    except PodResourcesError:
        return None
    return None if await in_thread(queries.has_just_started, kubelet_root) else pods


def _held(
    checkpointed: Sequence[PodDevices], pods: Listing | None, by_uid: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[_Place, str, list[PodDevices], list[str]]]:
    """Yield each container that may still hold devices of a resource, with its entries in the checkpoint.

    The checkpoint may also list pods that have ended, and it knows a pod only by its uid. The last part of the result
    are the devices without an entry.
    """
    if pods is None:
        for entry in checkpointed:
            yield (*by_uid.get(entry.pod_uid, ("", entry.pod_uid)), entry.container), entry.resource, [entry], []
        return
    for namespace, pod, container, resource, device_ids in pods.holders:
        of_resource = (each for each in checkpointed if (each.container, each.resource) == (container, resource))
        entries = [each for each in of_resource if not set(device_ids).isdisjoint(each.device_ids)]
        known = {device for each in entries for device in each.device_ids}
        yield (namespace, pod, container), resource, entries, [each for each in device_ids if each not in known]
