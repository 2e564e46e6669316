# SPDX-License-Identifier: Apache-2.0
"""Limits the number of a run's nodes that restart their runtime at the same time."""

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
    """Wait until fewer than ``number`` nodes of this run restart their runtime.

    The run's forks share lock files in the run's temporary directory. Unlike ``throttle``, this limit affects only
    hosts with a restart. renew: called at each retry.
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
