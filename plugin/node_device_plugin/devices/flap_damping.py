"""Damps flapping: a loss counts at once, but a repeated recovery only after a stable period."""

from __future__ import annotations

from collections.abc import Collection
from typing import Callable

#: The reason for a device that is healthy again, but not for long enough.
UNSTEADY = "the device was lost again soon after a recovery; waiting until it is stable"


class _History:
    """Clock times in seconds, or None.

    came_back: the last recovery that counted. fine_since: a flapping device's pending recovery.
    """

    came_back: float | None = None
    is_flapping = False
    fine_since: float | None = None


class Flapping:
    """If a device is lost within ``delay`` seconds of its recovery, delays its next recovery.

    The device must then stay healthy for ``delay`` seconds. The first recovery counts at once.
    clock: returns monotonic seconds. former: of the former table, whose devices keep their histories.
    """

    def __init__(self, delay: float, clock: Callable[[], float], former: Flapping | None = None) -> None:
        self._delay = delay
        self._clock = clock
        self._histories: dict[str, _History] = former._histories if former else {}

    def forget(self, device_ids: Collection[str]) -> None:
        """Delete the histories of these devices."""
        for device_id in device_ids:
            self._histories.pop(device_id, None)

    def judged(self, device_id: str, reason: str | None, is_new: bool, shown: str | None) -> str | None:
        """The reason to show: ``reason`` from a check (None: healthy), or UNSTEADY.

        is_new: whether the device was never shown. shown: the reason shown now.
        """
        now = self._clock()
        if reason is not None:
            history = self._histories.get(device_id)
            if history is not None:
                history.fine_since = None
                if shown is None and history.came_back is not None and now - history.came_back < self._delay:
                    history.is_flapping = True
            return reason
        if is_new or shown is None:
            return None
        history = self._histories.setdefault(device_id, _History())
        if history.is_flapping:
            if history.fine_since is None:
                history.fine_since = now
            if now - history.fine_since < self._delay:
                return UNSTEADY
            history.is_flapping = False
        history.came_back = now
        return None
