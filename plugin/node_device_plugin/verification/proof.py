"""One proof: a container that the kubelet created for a pod that asked for the resource, looked at from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import List, NamedTuple, Optional, Tuple

from .. import node_state
from ..cri import CriClient
from ..cri_errors import CriError
from ..declaration import Resource
from ..declaration.expectations import expected_in_container
from ..pod_resources import PodResourcesClient, PodResourcesError
from ..wire.cri_v1_pb2 import SANDBOX_READY
from . import static_pod
from .observation import shortcomings

_LOOK = 0.1
#: Seconds that a new container's process may take from "running" to its own program and environment.
_SETTLE = 3.0


class Proof(NamedTuple):
    """What is to be proven: that a container gets ``shares`` shares of ``resource``."""

    resource: Resource
    shares: int


class Outcome(NamedTuple):
    """seen: ids of the devices that the container saw. shortcomings: what it did not show; empty is good."""

    seen: Tuple[str, ...]
    shortcomings: Tuple[str, ...]


async def prove(
    proof: Proof, cri: CriClient, static_pod_dir: str, kubelet_root: str, image: str, pulled: bool, timeout: float
) -> Outcome:
    """Place a pod, look into its container, take the pod away and wait until the kubelet has forgotten it."""
    name = static_pod.new_name()
    pod = static_pod.manifest(name, image, pulled, proof.resource.name, proof.shares)
    try:
        with static_pod.placed(static_pod_dir, pod):
            outcome = await _look(proof, name, cri, kubelet_root, timeout)
        await _gone(name, cri, kubelet_root, timeout)
    except (CriError, PodResourcesError) as error:
        return Outcome((), (str(error),))
    except OSError as error:
        return Outcome((), ("the proof's pod cannot be placed in %s: %s" % (static_pod_dir, error.strerror),))
    return outcome


async def _look(proof: Proof, name: str, cri: CriClient, kubelet_root: str, timeout: float) -> Outcome:
    deadline = time.monotonic() + timeout
    pid = None
    while pid is None:
        pid = await _process(name, cri)
        if pid is None and time.monotonic() > deadline:
            return Outcome((), ("expected a container, found none after %g s%s" % (timeout, await _why(name)),))
        await asyncio.sleep(_LOOK)
    ids = await _allocated(name, kubelet_root)
    if len(ids) != proof.shares:
        return Outcome((), ("expected %d devices allocated, found %d" % (proof.shares, len(ids)),))
    try:
        devices = proof.resource.devices_of(ids)
    except KeyError as error:
        return Outcome((), ("the kubelet allocated %s, which is not declared" % error.args[0],))
    expectation = expected_in_container(proof.resource, devices)
    settled = time.monotonic() + _SETTLE
    while True:
        try:
            short = shortcomings(pid, expectation)
        except ProcessLookupError as error:
            return Outcome((), ("%s%s" % (error, await _why(name)),))
        if not short:
            return Outcome(expectation.devices, ())
        if time.monotonic() > settled:
            return Outcome((), tuple(short))
        await asyncio.sleep(_LOOK)


async def _process(name: str, cri: CriClient) -> Optional[int]:
    """The process of the proof's container once it runs. The kubelet adds the node's name to a static pod's."""
    for container in await cri.containers({"io.kubernetes.container.name": static_pod.CONTAINER}):
        if container.labels.get("io.kubernetes.pod.name", "").startswith(name):
            status = await cri.container_status(container.id)
            if status.started_at and not status.finished_at:
                return await cri.container_pid(container.id)
    return None


async def _allocated(name: str, kubelet_root: str) -> List[str]:
    """The ids that the kubelet gave the pod."""
    async with PodResourcesClient(os.path.join(kubelet_root, node_state.POD_RESOURCES_SOCKET)) as kubelet:
        return [
            device for holder in await kubelet.holders() if holder.pod.startswith(name) for device in holder.device_ids
        ]


async def _gone(name: str, cri: CriClient, kubelet_root: str, timeout: float) -> None:
    """Wait until the pod's devices are free for the next one, and its sandbox has stopped."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        sandboxes = await cri.pod_sandboxes({"io.kubernetes.pod.namespace": static_pod.NAMESPACE})
        stands = any(s.metadata.name.startswith(name) and s.state == SANDBOX_READY for s in sandboxes)
        if not stands and not await _allocated(name, kubelet_root):
            return
        await asyncio.sleep(_LOOK)


async def _why(name: str) -> str:
    """The kubelet's last words about a pod, where the journal has them."""
    command = ["journalctl", "--no-pager", "-q", "-o", "cat", "-u", "kubelet", "--since", "-5min", "-g", name]
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        words, _ = await asyncio.wait_for(process.communicate(), 10)
        lines = [line for line in words.decode(errors="replace").splitlines() if line.strip()]
        if lines:
            return "; the kubelet's last words: %s" % lines[-1][:500]
    return ""
