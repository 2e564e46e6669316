"""The report of a verification, as data and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..support.tables import table

#: A container saw its devices.
PROVEN = "proven"
#: An earlier run proved the resource, and the declaration, runtime and plugin are unchanged since.
PROVEN_BEFORE = "proven before"
#: No device is free for a proof, and no holder's container can be inspected; the detail names the holders.
IN_USE = "in use"
#: The resource is neither proven nor disproven; the detail says why.
UNPROVEN = "unproven"
#: The resource is registered without a device, as declared.
EMPTY = "empty"
#: There is no kubelet yet, or the kubelet returns no lists.
PENDING = "pending"
FAILED = "failed"
#: Maximum number of absent devices that a table names for a resource.
_MOST_TOLD = 5


class Row(NamedTuple):
    """One resource of the node.

    capacity: shares of the required and the healthy optional devices, without devices held under other names.
    healthy: shares that the kubelet lists as allocatable.
    seen: ids of the devices that a container saw.
    shares: the number of shares that a proof's pod may request; 0 if no proof is needed or no share is free.
    absent: devices that are not offered and that nobody misses, each with its reason.
    """

    resource: str
    capacity: int
    healthy: int
    seen: tuple[str, ...]
    state: str
    detail: str
    shares: int = 0
    absent: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """The outcome of a proof, whichever API gave the container its devices.

    seen: ids of the devices that a container showed. mismatches: one sentence each; empty if everything matches.
    unproven: why there was no proof; empty if there was a proof. note: what a proof leaves open.
    """

    seen: tuple[str, ...] = ()
    mismatches: tuple[str, ...] = ()
    unproven: str = ""
    note: str = ""


class Report(NamedTuple):
    """The report of a node.

    problems: one sentence each, with the expected and the found value.
    proven, proven_before: the new record for the next verification, and the former record (see proof_record).
    image: the image for a proof's container; None if the node has no such image.
    warnings: one sentence each; they fail no verification.
    """

    runtime: str
    kubelet: str
    rows: Sequence[Row]
    problems: Sequence[str]
    proven: Mapping[str, str]
    proven_before: Mapping[str, str]
    image: str | None
    warnings: Sequence[str] = ()

    def to_data(self) -> dict[str, Any]:
        """The report, ready for JSON."""
        data = self._asdict()
        return {"resources": [row._asdict() for row in data.pop("rows")], **data}

    def to_text(self) -> str:
        """The report as a table, with the problems below it."""
        rows = []
        for row in self.rows:
            state = state_text(row._asdict())
            rows.append((row.resource, str(row.capacity), str(row.healthy), " ".join(row.seen), state))
        shown = table(("RESOURCE", "CAPACITY", "HEALTHY", "CONTAINER SAW", "STATE"), rows)
        problems = [f"problem: {problem}" for problem in self.problems]
        warnings = [f"warning: {warning}" for warning in self.warnings]
        return "\n".join([f"runtime {self.runtime}, kubelet {self.kubelet}", shown, *warnings, *problems])


def state_text(row: Mapping[str, Any]) -> str:
    """The text of a row's state for a table, with the reasons. row: as data; an earlier release's has fewer keys.

    The detail of a failure is not part of the text, because it is among the problems below the table.
    """
    absent = row.get("absent", ())
    reasons = [row["detail"]] if row["detail"] and row["state"] != FAILED else []
    reasons += [f"without {each}" for each in absent[:_MOST_TOLD]]
    reasons += [f"and without {len(absent) - _MOST_TOLD} more devices"] if len(absent) > _MOST_TOLD else []
    return f"{row['state']} ({'; '.join(reasons)})" if reasons else str(row["state"])
