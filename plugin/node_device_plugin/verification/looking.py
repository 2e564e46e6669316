"""Waiting until a container shows what it was given, whoever created it."""

from __future__ import annotations

import asyncio
import time
from typing import List, Mapping, NamedTuple, Sequence, Tuple

from ..declaration import Device, Resource
from ..declaration.expectations import Expectation, expected_in_container
from ..devices.health.bounded import BoundedChecks
from .observation import annotation_mismatches, mismatches

#: Seconds between two looks.
LOOK = 0.1
#: Seconds that a new container's process may take from "running" to its own program and environment.
SETTLE = 3.0
#: Seconds that one look may take: a path in a container may be on a file system that does not answer.
_LIMIT = 5.0


class Outcome(NamedTuple):
    """What a proof showed.

    seen: ids of the devices that a container saw. mismatches: what it did not show, a sentence each; empty is good.
    unproven: why there was no proof; empty where there was one.
    """

    seen: Tuple[str, ...]
    mismatches: Tuple[str, ...]
    unproven: str = ""


async def look(
    pid: int, annotations: Mapping[str, str], resource: Resource, devices: Sequence[Device], settle: float = SETTLE
) -> Outcome:
    """Whether a container shows ``devices`` of ``resource``, by its process ``pid`` and what the runtime calls its
    annotations. settle: seconds that it may take. ProcessLookupError where it ends meanwhile."""
    expectation = expected_in_container(resource, devices)
    unsaid = annotation_mismatches(annotations, expectation)
    settled = time.monotonic() + settle
    while True:
        short = [*await _mismatches(pid, expectation), *unsaid]
        if not short:
            return Outcome(expectation.devices, ())
        if time.monotonic() >= settled:
            return Outcome((), tuple(short))
        await asyncio.sleep(LOOK)


async def _mismatches(pid: int, expectation: Expectation) -> List[str]:
    found: List[str] = []
    gone: List[ProcessLookupError] = []

    def compare() -> None:
        try:
            found.extend(mismatches(pid, expectation))
        except ProcessLookupError as error:
            gone.append(error)

    reason = (await BoundedChecks(_LIMIT).run([("", compare)]))[""]
    if gone:
        raise gone[0]
    return ["the container cannot be looked into: %s" % reason] if reason else found
