# SPDX-License-Identifier: Apache-2.0
"""Tables of text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Cells in columns as wide as they must be."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
