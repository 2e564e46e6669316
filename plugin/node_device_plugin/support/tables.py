"""Formats tables and counts as plain text."""

from __future__ import annotations

from collections.abc import Sequence

#: Longest text of a cell. Each cell is as wide as the longest of its column.
LONGEST_CELL = 1000


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines with aligned columns. An empty cell becomes ``-``.

    Unprintable characters of a cell are escaped, and a cell of more than ``LONGEST_CELL`` characters is cut.
    """
    shown: list[list[str]] = [list(head), *([shortened(cell, LONGEST_CELL) or "-" for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in shown) for column in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in shown)


def shortened(text: str, most: int) -> str:
    """At most ``most`` printable characters of a text, which may be of any length and have any character."""
    text = printable(text)
    return text if len(text) <= most else text[:most] + " …"


def counted(number: int, noun: str) -> str:
    """The number with its noun, e.g. ``1 device`` or ``2 devices``."""
    return "%d %s%s" % (number, noun, "" if number == 1 else "s")


def some(names: Sequence[str], most: int = 10) -> str:
    """At most ``most`` of the names, and how many others there are."""
    more = " and %d more" % (len(names) - most) if len(names) > most else ""
    return ", ".join(names[:most]) + more


def few(sentences: Sequence[str], most: int) -> list[str]:
    """At most ``most`` of the sentences, and a last one with the number of the others."""
    more = ["and %d more" % (len(sentences) - most)] if len(sentences) > most else []
    return [*sentences[:most], *more]


def printable(text: str) -> str:
    """Escape unprintable characters, because a device's path may contain any character but NUL."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
