"""Judges resources without the kubelet's lists: they are pending. Without a kubelet, the runtime proves its part."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ..declaration import Resource
from ..devices.health import CdiNames
from ..kubelet.losses import Loss, Offer
from ..runtime.client import CriClient
from . import proof_by_runtime
from .expected import Expected
from .report import FAILED, PENDING, Outcome, Row
from .scope import Node, Runtime


class NoLists:
    """A kubelet whose lists are missing.

    said: see expected.said_by_plugin. problem: a sentence for the report. why: text for each row.
    kubelet: the kubelet's state for the report.
    """

    def __init__(self, said: Mapping[str, Any], problem: str, why: str, kubelet: str) -> None:
        self._said, self._why = said, why
        self.problem, self.kubelet = problem, kubelet

    def is_settled(self, wanted: Sequence[Expected]) -> bool:
        return False

    def offer(self, wanted: Expected) -> Offer:
        return wanted.offer(None, self._said.get(wanted.resource.name))

    def judge(self, wanted: Expected, lost: Sequence[Loss]) -> Row:
        row = Row(wanted.resource.name, len(wanted.ids), 0, (), PENDING, self._why, absent=wanted.absent)
        return row._replace(state=FAILED, detail="; ".join(loss.text for loss in lost)) if lost else row

    async def prove(self, resources: Sequence[Resource], rows: Mapping[str, Row]) -> Mapping[str, Outcome]:
        # Do not prove by the runtime here: a kubelet that recovers would end our unknown sandboxes.
        return {}


class NoKubelet(NoLists):
    """A node without a kubelet."""

    def __init__(self, said: Mapping[str, Any], runtime: Runtime, node: Node, names: CdiNames) -> None:
        super().__init__(said, "", "no kubelet yet", "none")
        self._runtime, self._node, self._names = runtime, node, names

    def is_settled(self, wanted: Sequence[Expected]) -> bool:
        return True

    async def prove(self, resources: Sequence[Resource], rows: Mapping[str, Row]) -> Mapping[str, Outcome]:
        image = self._runtime.image
        if image is None or not self._runtime.gives_cdi:
            return {}
        async with CriClient(self._node.runtime_socket) as cri:
            proofs = {r.name: proof_by_runtime.prove(r, cri, image, self._names) for r in resources if r.uses_cdi}
            return dict(zip(proofs, await asyncio.gather(*proofs.values())))
