# SPDX-License-Identifier: Apache-2.0
"""How many nodes of a run restart something at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import time
from collections.abc import Callable, Iterator

from ansible import constants


@contextlib.contextmanager
def at_most(number: int, renew: Callable[[], None]) -> Iterator[None]:
    """Wait until fewer than ``number`` nodes of this run restart: forks share the run's temporary folder.

    Only who restarts something waits, unlike with a task's ``throttle``. renew: called at each look.
    """
    for slot in itertools.cycle(range(max(number, 1))):
        path = os.path.join(constants.DEFAULT_LOCAL_TMP, f"cdi_runtime.{slot}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            renew()
            time.sleep(0.1)
            continue
        try:
            yield
        finally:
            os.close(descriptor)
        return
