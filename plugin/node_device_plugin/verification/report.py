"""What a verification found, as data and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..support.tables import table

#: A container saw its devices.
PROVEN = "proven"
#: It was proven before, and nothing about it has changed since.
PROVEN_BEFORE = "proven before"
#: Nothing is free to prove it with, and nobody could look into the containers that hold it; the detail names them.
IN_USE = "in use"
#: Neither proven nor disproven; the detail says why.
UNPROVEN = "unproven"
#: Registered with no device, as declared.
EMPTY = "empty"
#: No kubelet yet.
PENDING = "pending"
FAILED = "failed"


class Row(NamedTuple):
    """One resource of the node.

    capacity: shares of the devices that are declared and, where a device is not required, there.
    healthy: shares that the kubelet calls allocatable.
    seen: ids of the devices that a container saw.
    shares: how many a pod may ask for to prove it; 0 where it needs none, or where none is free.
    """

    resource: str
    capacity: int
    healthy: int
    seen: tuple[str, ...]
    state: str
    detail: str
    shares: int = 0


class Report(NamedTuple):
    """All of a node.

    problems: one sentence each, naming what was expected and what was found.
    proven, proven_before: the record for the next verification, and the one that this began with (see proof_record).
    image: what a proof's container would run; None where the node has none.
    """

    runtime: str
    kubelet: str
    rows: Sequence[Row]
    problems: Sequence[str]
    proven: Mapping[str, str]
    proven_before: Mapping[str, str]
    image: str | None

    def to_data(self) -> dict[str, Any]:
        """As JSON takes it."""
        data = self._asdict()
        return {"resources": [row._asdict() for row in data.pop("rows")], **data}

    def to_text(self) -> str:
        """A table for people, the problems below it."""
        rows = []
        for row in self.rows:
            # What failed is told below, a line for each problem.
            state = f"{row.state} ({row.detail})" if row.detail and row.state != FAILED else row.state
            rows.append((row.resource, str(row.capacity), str(row.healthy), " ".join(row.seen), state))
        shown = table(("RESOURCE", "CAPACITY", "HEALTHY", "CONTAINER SAW", "STATE"), rows)
        problems = [f"problem: {problem}" for problem in self.problems]
        return "\n".join([f"runtime {self.runtime}, kubelet {self.kubelet}", shown, *problems])
