"""The reason why a device cannot be given to a container."""

from __future__ import annotations

from collections.abc import Sequence

from ..telemetry.logs import Log

#: Most devices that the log names at a time: thousands of lines take seconds.
MOST_TOLD = 10


class Reason(str):
    """A reason in words. kind: the reason without the parts that differ by device or time.

    The metrics count by kind, because each text would create a series. The kind of a plain
    string is the string. told: the reason without the names of pods and claims; by default, the text has none.
    """

    kind: str
    told: str

    def __new__(cls, text: str, kind: str, told: str = "") -> Reason:
        made = super().__new__(cls, text)
        made.kind, made.told = kind, told or text
        return made


def kind_of(reason: str) -> str:
    """The kind of a reason."""
    return reason.kind if isinstance(reason, Reason) else reason


def told(reason: str) -> str:
    """A reason for the owner of any pod, who may not know the pods and claims of other namespaces."""
    return reason.told if isinstance(reason, Reason) else reason


def warn(log: Log, resource: str, message: str, more: str, reasons: Sequence[tuple[str, str]]) -> None:
    """Log some devices of a resource in a line each. more: the message for all others. reasons: by device id."""
    for device_id, reason in reasons[:MOST_TOLD]:
        log.warning(message, resource=resource, device=device_id, reason=reason)
    if len(reasons) > MOST_TOLD:
        log.warning(more, resource=resource, count=len(reasons) - MOST_TOLD)
