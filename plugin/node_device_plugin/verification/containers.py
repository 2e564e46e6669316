"""Containers that hold devices already: what they see proves a resource without a pod of ours."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..declaration import Resource
from ..kubelet.pod_resources import Holder
from ..runtime.client import CriClient
from ..wire.cri_v1_pb2 import CONTAINER_RUNNING
from .looking import Outcome, look


class Found(NamedTuple):
    """What the containers of one resource show.

    seen: ids of the devices of those that have what is declared. mismatches: what others do not have, each with its
    pod; a container that began before a change of the declaration has what was declared then. looked_at: how many.
    """

    seen: Tuple[str, ...] = ()
    mismatches: Tuple[str, ...] = ()
    looked_at: int = 0


class Containers:
    """The running containers of a node, listed once.

    by_pod: namespace, pod and container to the container's id.
    """

    def __init__(self, cri: CriClient, by_pod: Mapping[Tuple[str, str, str], str]) -> None:
        self._cri = cri
        self._by_pod = by_pod

    async def find(self, resource: Resource, holders: Sequence[Holder], everyone: bool) -> Found:
        """Look into the containers of ``holders`` until one has what is declared; into all of them for ``everyone``.

        Raises CriError.
        """
        found = Found()
        for holder in holders:
            outcome = await self.outcome(resource, holder, settle=0.0)
            if outcome is None:
                continue
            pod = "%s/%s" % (holder.namespace, holder.pod)
            found = Found(
                tuple(dict.fromkeys([*found.seen, *outcome.seen])),
                (*found.mismatches, *("%s: %s" % (pod, mismatch) for mismatch in outcome.mismatches)),
                found.looked_at + 1,
            )
            if outcome.seen and not everyone:
                break
        return found

    async def outcome(self, resource: Resource, holder: Holder, settle: float) -> Optional[Outcome]:
        """What a holder's container shows; None where it does not run. settle: seconds that it may take.

        Raises CriError.
        """
        container = self._by_pod.get((holder.namespace, holder.pod, holder.container))
        if container is None:
            return None
        try:
            devices = resource.devices_of(holder.device_ids)
        except KeyError as error:
            return Outcome((), ("the kubelet allocated %s, which is not declared" % error.args[0],))
        pid = await self._cri.container_pid(container)
        if pid is None:
            return None
        annotations = (await self._cri.container_status(container)).annotations
        try:
            return await look(pid, annotations, resource, devices, settle)
        except ProcessLookupError:
            return None


async def running(cri: CriClient) -> Containers:
    """The node's running containers. Raises CriError."""
    found: Dict[Tuple[str, str, str], str] = {}
    for container in sorted(await cri.containers(), key=lambda each: each.created_at):
        if container.state == CONTAINER_RUNNING:
            names: List[str] = [
                container.labels.get("io.kubernetes." + label, "")
                for label in ("pod.namespace", "pod.name", "container.name")
            ]
            found[names[0], names[1], names[2]] = container.id
    return Containers(cri, found)
