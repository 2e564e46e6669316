"""Starts threads that do not delay the exit."""

from __future__ import annotations

import _thread
from typing import Callable


def start(work: Callable[[], None]) -> None:
    """Run ``work``, which raises nothing, in a thread. Raises RuntimeError at the process's thread limit (TasksMax=).

    Unlike ``threading.Thread.start``, returns before the thread has begun. On a busy machine, a thread may begin only
    after some milliseconds, and the event loop must not wait for that long.
    """
    _thread.start_new_thread(work, ())
