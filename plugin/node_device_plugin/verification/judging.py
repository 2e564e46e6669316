"""The steps of a verification that are the same for every API through which containers get devices.

On the controller, Ansible uses this module, so it imports only the standard library and the declaration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..declaration import Resource
from . import evidence
from .proof_record import Record
from .report import FAILED, PENDING, PROVEN, PROVEN_BEFORE, UNPROVEN, Outcome, Row

if TYPE_CHECKING:
    from ..kubelet.losses import Loss, Offer
    from .expected import Expected


class Judge(Protocol):
    """An API of the kubelet through which containers get devices; also the lack of one.

    kubelet: the kubelet's state for the report. problem: a sentence for the report, or empty. warnings: what it could
    not check.
    """

    kubelet: str
    problem: str
    warnings: Sequence[str]

    def is_settled(self, wanted: Sequence[Expected]) -> bool:
        """Whether to wait no longer: the API lists what is expected, or there is no kubelet."""

    def offer(self, wanted: Expected) -> Offer:
        """The resource as the API lists it."""

    def judge(self, wanted: Expected, lost: Sequence[Loss]) -> Row:
        """The row of a resource, before its proof. lost: its losses that fail a verification."""

    async def prove(self, resources: Sequence[Resource], rows: Mapping[str, Row]) -> Mapping[str, Outcome]:
        """Prove resources with containers. rows: of the resources that need a proof.

        Maps each proven resource to its outcome. Omits a resource that no container can prove now.
        """


class ByApi:
    """Implements Judge for a node with several APIs: the API of each resource judges the resource.

    judges: by API. The kubelet's state for the report is the first judge's.
    """

    def __init__(self, judges: Mapping[str, Judge]) -> None:
        self._judges = judges
        self.kubelet = next(iter(judges.values())).kubelet
        self.problem = "; ".join(judge.problem for judge in judges.values() if judge.problem)
        self.warnings: Sequence[str] = [warning for judge in judges.values() for warning in judge.warnings]

    def is_settled(self, wanted: Sequence[Expected]) -> bool:
        return all(
            judge.is_settled([each for each in wanted if each.resource.api == api])
            for api, judge in self._judges.items()
        )

    def offer(self, wanted: Expected) -> Offer:
        return self._judges[wanted.resource.api].offer(wanted)

    def judge(self, wanted: Expected, lost: Sequence[Loss]) -> Row:
        return self._judges[wanted.resource.api].judge(wanted, lost)

    async def prove(self, resources: Sequence[Resource], rows: Mapping[str, Row]) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        for api, judge in self._judges.items():
            outcomes.update(await judge.prove([each for each in resources if each.api == api], rows))
        return outcomes


def before_proof(
    row: Row, resource: Resource, record: Record | None, runtime: str, with_annotations: bool = False
) -> Row:
    """The row of a resource that a container may prove; without a proof if none can show it, or if it was proven.

    record: of earlier proofs; None to prove the resource again. with_annotations: see ``evidence.shown``.
    """
    if not evidence.can_show(resource, resource.devices, with_annotations):
        # A pod would prove nothing, and would be made again in each run.
        return row._replace(state=UNPROVEN, detail=evidence.why_none(resource, resource.devices), shares=0)
    if record is not None and record.holds(resource, runtime):
        return row._replace(state=PROVEN_BEFORE, detail="", shares=0)
    return row


def with_outcome(row: Row, outcomes: Mapping[str, Outcome]) -> Row:
    """The row after the resource's proof. outcomes: of all resources; a resource without a proof is missing."""
    outcome = outcomes.get(row.resource)
    if outcome is None or row.state == FAILED:
        return row
    row = row._replace(seen=tuple(dict.fromkeys([*row.seen, *outcome.seen])))
    if outcome.unproven and row.state != PENDING:
        return row._replace(state=UNPROVEN, detail=outcome.unproven)
    if outcome.mismatches:
        return row._replace(state=FAILED, detail="; ".join(outcome.mismatches), shares=0)
    # Without a kubelet, a container proves only the runtime's part, so the resource stays pending.
    return row if row.state == PENDING else row._replace(state=PROVEN, detail=outcome.note, shares=0)


def note(record: Record, resources: Sequence[Resource], runtime: str, outcomes: Mapping[str, Outcome]) -> None:
    """Record the outcomes of the resources' proofs."""
    for resource in resources:
        outcome = outcomes.get(resource.name)
        if outcome is not None and not outcome.unproven:
            record.note(resource, runtime, proven=not outcome.mismatches)
