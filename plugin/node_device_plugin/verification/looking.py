"""Inspects the devices in a container, whichever program created the container: a proof's, or one that holds devices.

The view comes from /proc on the node, so the image needs no shell. The annotations come from the runtime.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Mapping, Sequence

from ..declaration import Device, Resource
from ..declaration.device_plugin_api import devices_of
from ..kubelet.pod_resources import Holder
from ..runtime.client import CriClient
from ..support.bounded_calls import BoundedCalls, Key, NoAnswer
from ..wire.cri_v1_pb2 import CONTAINER_RUNNING
from . import container_view, evidence
from .container_view import Expectation, View, expected_in_container
from .report import Outcome

#: Bytes of a process's environment that are read.
_LARGEST_ENVIRONMENT = 8 << 20
#: Seconds between two inspections.
LOOK = 0.1
#: Maximum seconds until the process of a "running" container has its own program and environment.
SETTLE = 3.0
#: Maximum seconds for one inspection, because a path in a container may be on a file system that hangs.
_LIMIT = 5.0


class Containers:
    """The running containers of a node, listed once.

    by_pod: maps (namespace, pod name, container name) to the container's id.
    """

    def __init__(self, cri: CriClient, by_pod: Mapping[tuple[str, str, str], str]) -> None:
        self._cri = cri
        self._by_pod = by_pod

    async def find(self, resource: Resource, holders: Sequence[Holder], everyone: bool) -> Outcome:
        """Inspect the containers of ``holders`` until one matches the declaration; inspect all if ``everyone`` is set.

        A container that started before a change of the declaration still has the former devices. Therefore each
        mismatch names its pod. Raises CriError.
        """
        found = Outcome()
        for holder in holders:
            outcome = await self.outcome(resource, holder, settle=0.0)
            if outcome is None:
                continue
            pod = f"{holder.namespace}/{holder.pod}"
            found = Outcome(
                tuple(dict.fromkeys([*found.seen, *outcome.seen])),
                (*found.mismatches, *(f"{pod}: {mismatch}" for mismatch in outcome.mismatches)),
                f"{pod}: {outcome.unproven}" if outcome.unproven else found.unproven,
            )
            if outcome.seen and not everyone:
                break
        return found

    async def outcome(self, resource: Resource, holder: Holder, settle: float) -> Outcome | None:
        """The outcome for a holder's container; None if the container does not run. Raises CriError.

        settle: seconds to wait until the container matches.
        """
        container = self._by_pod.get((holder.namespace, holder.pod, holder.container))
        if container is None:
            return None
        try:
            return await look_at_allocated(container, holder.device_ids, resource, self._cri, settle)
        except ProcessLookupError:
            return None


async def running(cri: CriClient) -> Containers:
    """The node's running containers. Raises CriError."""
    found: dict[tuple[str, str, str], str] = {}
    for container in sorted(await cri.containers(), key=lambda each: each.created_at):
        if container.state == CONTAINER_RUNNING:
            namespace, pod, name = (
                container.labels.get("io.kubernetes." + label, "")
                for label in ("pod.namespace", "pod.name", "container.name")
            )
            found[namespace, pod, name] = container.id
    return Containers(cri, found)


async def look_at_allocated(
    container: str, ids: Sequence[str], resource: Resource, cri: CriClient, settle: float = SETTLE
) -> Outcome:
    """Compare a container (given by its id) with the devices of the kubelet's ``ids``. settle: see ``look``.

    Raises CriError, and ProcessLookupError if the container no longer runs.
    """
    try:
        devices = devices_of(resource, ids)
    except KeyError as error:
        return Outcome(mismatches=(f"the kubelet allocated device {error.args[0]}, which is not declared",))
    pid = await cri.container_pid(container)
    if pid is None:
        raise ProcessLookupError("the container has ended")
    annotations = (await cri.container_status(container)).annotations
    return await look(pid, annotations, resource, devices, settle)


async def look(
    pid: int, annotations: Mapping[str, str], resource: Resource, devices: Sequence[Device], settle: float = SETTLE
) -> Outcome:
    """Compare a container with ``devices`` of ``resource``. Raises ProcessLookupError if its process ends meanwhile.

    pid: the process. annotations: from the runtime. settle: seconds to wait until the container matches."""
    expectation = expected_in_container(resource, devices)
    unsaid = annotation_mismatches(annotations, expectation)
    settled = time.monotonic() + settle
    while True:
        try:
            look_into = functools.partial(compared, pid, expectation, resource, devices)
            found, seen = await BoundedCalls(_LIMIT).call(Key("", "container"), look_into)
            short = [*found, *unsaid]
            if not short:
                return Outcome(tuple(seen), (), "" if seen or not devices else evidence.why_none(resource, devices))
        except NoAnswer as error:
            short = [f"cannot inspect the container: the check {error}"]
        except ProcessLookupError:
            raise
        except OSError as error:
            short = [f"cannot inspect the container: {error.filename}: {error.strerror}"]
        if time.monotonic() >= settled:
            return Outcome(mismatches=tuple(short))
        await asyncio.sleep(LOOK)


def compared(
    pid: int, expectation: Expectation, resource: Resource, devices: Sequence[Device]
) -> tuple[list[str], list[str]]:
    """One sentence for each mismatch between process ``pid`` and ``expectation``, with the expected and found value.

    Also the ids of the devices that the process shows, if its container has no mismatch. Raises ProcessLookupError if
    the process has ended, and other OSErrors if its files cannot be read.
    """
    root, on_host = "/proc/%d/root" % pid, functools.partial(container_view.look_at, follow=True)
    try:
        mounts = container_view.mounts_of(pid)
        view = View(_environment(pid), mounts, lambda path: container_view.look_at(root + path))
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessLookupError("the container's process %d has ended" % pid) from error
    seen = evidence.shown(view, resource, devices, with_annotations=True)
    return container_view.mismatches(view, expectation, on_host), seen


def annotation_mismatches(found: Mapping[str, str], expectation: Expectation) -> list[str]:
    """The mismatches of a container's annotations. found: the annotations from the runtime."""
    return [
        "annotation {}: expected {!r}, found {}".format(name, value, repr(found[name]) if name in found else "nothing")
        for name, value in expectation.annotations.items()
        if found.get(name) != value
    ]


def _environment(pid: int) -> dict[str, str]:
    with open("/proc/%d/environ" % pid, "rb") as file:
        assignments = os.fsdecode(file.read(_LARGEST_ENVIRONMENT)).split("\0")
    return dict(assignment.split("=", 1) for assignment in assignments if "=" in assignment)
