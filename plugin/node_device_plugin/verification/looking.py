"""Waiting until a container shows what it was given, whoever created it."""

from __future__ import annotations

import asyncio
import time
from typing import Mapping, NamedTuple, Sequence, Tuple

from ..declaration import Device, Resource
from ..declaration.expectations import expected_in_container
from .observation import annotation_mismatches, mismatches

#: Seconds between two looks.
LOOK = 0.1
#: Seconds that a new container's process may take from "running" to its own program and environment.
_SETTLE = 3.0


class Outcome(NamedTuple):
    """What a proof showed.

    seen: ids of the devices that the container saw. mismatches: what it did not show, a sentence each; empty is good.
    """

    seen: Tuple[str, ...]
    mismatches: Tuple[str, ...]


async def look(pid: int, annotations: Mapping[str, str], resource: Resource, devices: Sequence[Device]) -> Outcome:
    """Whether a container shows ``devices`` of ``resource``, by its process ``pid`` and what the runtime calls its
    annotations. ProcessLookupError where it ends meanwhile."""
    expectation = expected_in_container(resource, devices)
    unsaid = annotation_mismatches(annotations, expectation)
    settled = time.monotonic() + _SETTLE
    while True:
        short = [*mismatches(pid, expectation), *unsaid]
        if not short:
            return Outcome(expectation.devices, ())
        if time.monotonic() > settled:
            return Outcome((), tuple(short))
        await asyncio.sleep(LOOK)
