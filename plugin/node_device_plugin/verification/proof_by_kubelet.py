"""The proof through the kubelet, which runs a pod that requests the resource."""

from __future__ import annotations

import asyncio
import os
import time

from ..declaration import Resource
from ..kubelet import queries as kubelet_queries
from ..kubelet.pod_resources import PodResourcesClient, PodResourcesError
from ..runtime.client import CriClient
from ..runtime.errors import CriError
from ..support.bounded_calls import in_thread
from ..support.node_process import answer_of
from ..wire.cri_v1_pb2 import SANDBOX_READY
from . import static_pod
from .looking import LOOK, look_at_allocated
from .report import Outcome
from .scope import Scope


async def prove(resource: Resource, shares: int, cri: CriClient, directory: str, image: str, scope: Scope) -> Outcome:
    """Place a pod that requests ``shares`` of ``resource``, inspect its container, and remove the pod.

    Returns after the pod's devices are free or the timeout has passed. directory: for static pods. image: of the pod.
    """
    name = static_pod.new_name()
    try:
        with static_pod.placed(directory, static_pod.manifest(name, image, resource.name, shares)):
            outcome = await _outcome(resource, shares, name, cri, scope)
        await gone(name, cri, scope)
    except static_pod.NotPlaced as error:
        return Outcome(unproven=str(error))
    except PodResourcesError as error:
        return Outcome(unproven=str(error)) if error.is_limited else Outcome(mismatches=(str(error),))
    except (CriError, static_pod.NotRemoved) as error:
        return Outcome(mismatches=(str(error),))
    return outcome


async def _outcome(resource: Resource, shares: int, name: str, cri: CriClient, scope: Scope) -> Outcome:
    deadline = time.monotonic() + scope.timeout
    container = await _running(name, cri)
    while container is None:
        if time.monotonic() > deadline:
            why = await _why(name)
            says = f"expected a running container, found none after {scope.timeout:g} s{why}"
            return Outcome(unproven=says) if static_pod.is_no_device_free(why) else Outcome(mismatches=(says,))
        await asyncio.sleep(LOOK)
        container = await _running(name, cri)
    ids = await _allocated(name, scope.kubelet_root)
    if len(ids) != shares:
        return Outcome(mismatches=("expected %d allocated devices, found %d" % (shares, len(ids)),))
    try:
        return await look_at_allocated(container, ids, resource, cri)
    except ProcessLookupError as error:
        return Outcome(mismatches=(f"{error}{await _why(name)}",))


async def _running(name: str, cri: CriClient) -> str | None:
    """The id of the proof's running container, or None. The kubelet appends the node's name to a static pod's name."""
    for container in await cri.containers({"io.kubernetes.container.name": static_pod.CONTAINER}):
        if container.labels.get("io.kubernetes.pod.name", "").startswith(name):
            status = await cri.container_status(container.id)
            if status.started_at and not status.finished_at and await cri.container_pid(container.id):
                return container.id
    return None


async def _allocated(name: str, kubelet_root: str) -> list[str]:
    """The ids that the kubelet allocated to the pod."""
    async with PodResourcesClient(os.path.join(kubelet_root, kubelet_queries.POD_RESOURCES_SOCKET)) as client:
        return [
            device for holder in await client.holders() if holder.pod.startswith(name) for device in holder.device_ids
        ]


async def gone(name: str, cri: CriClient, scope: Scope) -> None:
    """Wait until the pod of a removed manifest has stopped and holds no device, at most for the scope's timeout.

    Raises PodResourcesError, CriError.
    """
    deadline = time.monotonic() + scope.timeout
    while time.monotonic() < deadline:
        sandboxes = await cri.pod_sandboxes({"io.kubernetes.pod.namespace": static_pod.NAMESPACE})
        stands = any(s.metadata.name.startswith(name) and s.state == SANDBOX_READY for s in sandboxes)
        if not stands and not await _allocated(name, scope.kubelet_root):
            return
        await asyncio.sleep(LOOK)


async def _why(name: str) -> str:
    """The kubelet's last log line about a pod, if the journal has one."""
    command = ["journalctl", "--no-pager", "-q", "-o", "cat", "-u", "kubelet", "--since", "-5min", "-g", name]
    said, _problem = await in_thread(answer_of, command)
    lines = [line for line in (said or "").splitlines() if line.strip()]
    return f"; last line of the kubelet's log: {lines[-1][:500]}" if lines else ""
