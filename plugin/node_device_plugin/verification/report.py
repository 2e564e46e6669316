"""What a verification found, as data and as a table."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

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
    seen: Tuple[str, ...]
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
    image: Optional[str]

    def to_data(self) -> Dict[str, Any]:
        """As JSON takes it."""
        return {
            "runtime": self.runtime,
            "kubelet": self.kubelet,
            "resources": [row._asdict() for row in self.rows],
            "problems": list(self.problems),
            "proven": dict(self.proven),
            "proven_before": dict(self.proven_before),
            "image": self.image,
        }

    def to_text(self) -> str:
        """A table for people, the problems below it."""
        lines = [("RESOURCE", "CAPACITY", "HEALTHY", "CONTAINER SAW", "STATE")]
        for row in self.rows:
            # What failed is told below, a line for each problem.
            state = "%s (%s)" % (row.state, row.detail) if row.detail and row.state != FAILED else row.state
            lines.append((row.resource, str(row.capacity), str(row.healthy), " ".join(row.seen) or "-", state))
        return "\n".join(
            ["runtime %s, kubelet %s" % (self.runtime, self.kubelet), *_aligned(lines)]
            + ["problem: %s" % problem for problem in self.problems]
        )


def _aligned(lines: Sequence[Tuple[str, ...]]) -> List[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]
