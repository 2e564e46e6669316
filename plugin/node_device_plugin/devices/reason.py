"""Why a device cannot be given away."""

from __future__ import annotations


class Reason(str):
    """In words. kind: the same without what differs from device to device, and from time to time.

    The metrics count by kind: each text would be a series of its own. Text that is no Reason is its own kind.
    """

    kind: str

    def __new__(cls, text: str, kind: str) -> Reason:
        made = super().__new__(cls, text)
        made.kind = kind
        return made


def kind_of(reason: str) -> str:
    """The kind of a reason."""
    return reason.kind if isinstance(reason, Reason) else reason
