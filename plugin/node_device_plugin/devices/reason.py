"""The reason why a device cannot be given to a container."""

from __future__ import annotations


class Reason(str):
    """A reason in words. kind: the reason without the parts that differ by device or time.

    The metrics count by kind, because each text would create a series. The kind of a plain
    string is the string.
    """

    kind: str

    def __new__(cls, text: str, kind: str) -> Reason:
        made = super().__new__(cls, text)
        made.kind = kind
        return made


def kind_of(reason: str) -> str:
    """The kind of a reason."""
    return reason.kind if isinstance(reason, Reason) else reason
