# SPDX-License-Identifier: Apache-2.0
"""Waits for a state of the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ....plugin.node_device_plugin.cluster.api import Unavailable

_Found = TypeVar("_Found")


def until(
    look: Callable[[bool], _Found | None], seconds: float, pause: float, meanwhile: Callable[[], None] = lambda: None
) -> _Found:
    """Return the first result of ``look`` that is not None.

    look: takes whether ``seconds`` have passed, and then must return a result or raise an error. Before that,
    Unavailable only causes another look, because a control plane answers again after a restart or failover.
    pause: seconds between two looks. meanwhile: called before each look, for example to renew the play's lock.
    """
    deadline = time.monotonic() + seconds
    while True:
        meanwhile()
        is_late = time.monotonic() >= deadline
        try:
            found = look(is_late)
            if found is not None:
                return found
        except Unavailable:
            if is_late:
                raise
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
