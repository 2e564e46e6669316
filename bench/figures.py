"""The measured figures, their statistics, and the table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One measured number. unit: e.g. ``ms``. floor: the floor's number. most: the limit, in the same unit."""

    name: str
    unit: str
    ours: float
    floor: float | None = None
    most: float | None = None

    @property
    def reached(self) -> bool | None:
        """Whether the figure is within its limit; None if there is no limit."""
        return None if self.most is None else self.ours <= self.most

    def to_data(self) -> dict[str, Any]:
        """Return the figure as data for the JSON file."""
        return {**self._asdict(), "reached": self.reached}


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value that ``part`` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(part * len(ordered) + 0.5) - 1))]


def median(values: Sequence[float]) -> float:
    """Return the middle value."""
    return statistics.median(values)


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as a text table."""
    rows = [("", "ours", "floor", "limit", "")]
    for figure in figures:
        rows.append(
            (
                figure.name,
                _number(figure.ours, figure.unit),
                _number(figure.floor, figure.unit),
                "" if figure.most is None else "<= " + _number(figure.most, figure.unit),
                {None: "", True: "reached", False: "MISSED"}[figure.reached],
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines: list[str] = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:4], widths[1:4])), row[4]]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _number(value: float | None, unit: str) -> str:
    return "" if value is None else ("%.3g %s" % (value, unit) if value < 1000 else "%.0f %s" % (value, unit))
