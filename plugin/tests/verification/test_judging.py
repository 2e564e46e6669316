"""The steps of a verification that are the same for every API through which containers get devices."""

from typing import Any, Optional

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.verification.device_plugins import DevicePlugins
from node_device_plugin.verification.judging import Judge, before_proof, note, with_outcome
from node_device_plugin.verification.proof_record import Record
from node_device_plugin.verification.report import Outcome, Row
from node_device_plugin.verification.without_lists import NoKubelet, NoLists

NAME = "example.com/dev"
SHOWN = {"state": "proven", "detail": "", "shares": 0}
LATE = {"state": "unproven", "detail": "late"}
ROW = Row(NAME, 2, 2, (), "unproven", "no static pods", 2, ("d9: gone",))


@pytest.mark.parametrize(
    ("row", "outcome", "changes"),
    [
        (ROW, None, {}),
        (ROW._replace(state="failed"), Outcome(("d0",)), {}),
        (ROW, Outcome(("d0",)), {**SHOWN, "seen": ("d0",)}),
        # What another container showed stays.
        (
            ROW._replace(seen=("d1",)),
            Outcome(("d0", "d1")),
            {**SHOWN, "seen": ("d1", "d0")},
        ),
        (ROW, Outcome(note="one of a, b"), {"state": "proven", "detail": "one of a, b", "shares": 0}),
        (ROW._replace(seen=("d1",)), Outcome(unproven="late"), {"detail": "late"}),
        (
            ROW._replace(state="in use"),
            Outcome(("d0",), (), "late"),
            {**LATE, "seen": ("d0",)},
        ),
        (ROW, Outcome(mismatches=("a", "b")), {"state": "failed", "detail": "a; b", "shares": 0}),
        (ROW._replace(state="pending"), Outcome(("d0",)), {"seen": ("d0",)}),
        (ROW._replace(state="pending"), Outcome(unproven="late"), {}),
        (ROW._replace(state="pending"), Outcome(mismatches=("a",)), {"state": "failed", "detail": "a", "shares": 0}),
    ],
)
def test_a_row_with_its_outcome(row: Row, outcome: Optional[Outcome], changes: dict[str, Any]) -> None:
    assert with_outcome(row, {} if outcome is None else {NAME: outcome}) == row._replace(**changes)


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_recorded_proof_needs_no_second(is_recorded: bool) -> None:
    (resource,) = parse_resources([{"name": NAME, "devices": [{"id": "d0"}], "env": {"DEV": "x"}}])
    record = Record({}, "1")
    if is_recorded:
        note(record, [resource], "containerd", {NAME: Outcome(("d0",))})
    expected = ROW._replace(state="proven before", detail="", shares=0) if is_recorded else ROW
    assert before_proof(ROW, resource, record, "containerd") == expected
    assert before_proof(ROW, resource, None, "containerd") == before_proof(ROW, resource, record, "crio") == ROW


def test_what_no_container_can_show_is_not_tried() -> None:
    (resource,) = parse_resources([{"name": NAME, "devices": [{"id": "d0", "nodes": [{"path": "/dev/null"}]}]}])
    row = before_proof(ROW, resource, None, "containerd")
    assert (row.state, row.shares, row.detail[:35]) == ("unproven", 0, "the container may have /dev/null wi")


def test_only_proofs_are_noted() -> None:
    (resource,) = parse_resources([{"name": NAME, "devices": [{"id": "d0"}], "env": {"DEV": "x"}}])
    record = Record({}, "1")
    for outcomes, noted in (
        ({}, False),
        ({NAME: Outcome(unproven="late")}, False),
        ({NAME: Outcome(("d0",))}, True),
        ({NAME: Outcome(unproven="late")}, True),
        ({NAME: Outcome(mismatches=("wrong",))}, False),
    ):
        note(record, [resource], "containerd", outcomes)
        assert record.holds(resource, "containerd") is noted


def test_every_judge_has_all_that_a_verification_asks() -> None:
    for judge in (DevicePlugins, NoLists, NoKubelet):
        methods = [name for name in vars(Judge) if not name.startswith("_")]
        assert methods == ["is_settled", "offer", "judge", "prove"]
        assert all(callable(getattr(judge, name)) for name in methods)
