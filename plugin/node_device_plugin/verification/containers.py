"""Inspects containers that already hold devices. Their view can prove a resource without a static pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..declaration import Resource
from ..kubelet.pod_resources import Holder
from ..runtime.client import CriClient
from ..wire.cri_v1_pb2 import CONTAINER_RUNNING
from .looking import look_at_allocated
from .report import Outcome


class Containers:
    """The running containers of a node, listed once.

    by_pod: maps (namespace, pod name, container name) to the container's id.
    """

    def __init__(self, cri: CriClient, by_pod: Mapping[tuple[str, str, str], str]) -> None:
        self._cri = cri
        self._by_pod = by_pod

    async def find(self, resource: Resource, holders: Sequence[Holder], everyone: bool) -> Outcome:
        """Inspect the containers of ``holders`` until one matches the declaration; inspect all if ``everyone`` is set.

        A container that started before a change of the declaration still has the former devices. Therefore each
        mismatch names its pod. Raises CriError.
        """
        found = Outcome()
        for holder in holders:
            outcome = await self.outcome(resource, holder, settle=0.0)
            if outcome is None:
                continue
            pod = f"{holder.namespace}/{holder.pod}"
            found = Outcome(
                tuple(dict.fromkeys([*found.seen, *outcome.seen])),
                (
                    *found.mismatches,
                    *(f"{pod}: {mismatch}" for mismatch in outcome.mismatches),
                ),
                f"{pod}: {outcome.unproven}" if outcome.unproven else found.unproven,
            )
            if outcome.seen and not everyone:
                break
        return found

    async def outcome(self, resource: Resource, holder: Holder, settle: float) -> Outcome | None:
        """The outcome for a holder's container; None if the container does not run. Raises CriError.

        settle: seconds to wait until the container matches.
        """
        container = self._by_pod.get((holder.namespace, holder.pod, holder.container))
        if container is None:
            return None
        try:
            return await look_at_allocated(container, holder.device_ids, resource, self._cri, settle)
        except ProcessLookupError:
            return None


async def running(cri: CriClient) -> Containers:
    """The node's running containers. Raises CriError."""
    found: dict[tuple[str, str, str], str] = {}
    for container in sorted(await cri.containers(), key=lambda each: each.created_at):
        if container.state == CONTAINER_RUNNING:
            namespace, pod, name = (
                container.labels.get("io.kubernetes." + label, "")
                for label in ("pod.namespace", "pod.name", "container.name")
            )
            found[namespace, pod, name] = container.id
    return Containers(cri, found)
