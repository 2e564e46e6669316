"""Tells the node object when the node's devices are allocatable: removes the startup taint, and sets the condition.

Only the plugin's pod does this, and only if the DaemonSet's settings request it. Without them, the plugin never calls
the API server.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import random
import time
from collections.abc import Iterable
from typing import Callable

from ..cluster import in_pod
from ..cluster.api import Api, Conflict, Place
from ..cluster.node_readiness import Offered, ToldNode, Verdict, condition_change, judge, taint_removal
from ..support.bounded_calls import in_thread
from ..telemetry.logs import Log, Tries
from .resource_manager import ServedResource

log = Log(__name__)

#: Seconds between two looks at the node object: the first pause, which doubles, and the longest one while the devices
#: are not allocatable, and otherwise. A look writes nothing.
_FIRST, _LONGEST_WAITING, _LONGEST = 1.0, 4.0, 60.0


def offered(served: Iterable[ServedResource]) -> Offered:
    """What the kubelet should make allocatable: the healthy devices of each resource, or their shares.

    A resource of another API, whose devices no node object shows, only has to be registered.
    """
    counts, unregistered = {}, []
    for name, table, frontend in served:
        if frontend.is_allocatable:
            healthy = [device for device, reason in table.shown() if reason is None]
            counts[name] = sum(len(frontend.listed_ids(table.resource, device)) for device in healthy)
        if not frontend.status(name).is_registered:
            unregistered.append(name)
    return Offered(counts, unregistered)


class NodeReport:
    """Keeps a node object up to date.

    offered: what the plugin offers now. leads: whether this instance leads; another instance tells nothing.
    """

    def __init__(
        self,
        told: ToldNode,
        offered: Callable[[], Offered],
        leads: Callable[[], bool],
        connect: Callable[[], Api] = lambda: Api(in_pod.access(os.environ)),
    ) -> None:
        self._told, self._offered, self._leads, self._connect = told, offered, leads, connect
        self._tries = Tries(log)
        #: When the devices were first found not to be allocatable (time.monotonic); None while they are.
        self._waiting_since: float | None = None

    async def run(self) -> None:
        """Look at the node object until cancelled. Logs failures, because serving devices must go on."""
        pause = _FIRST
        while True:
            was_waiting, longest = self._waiting_since is not None, _LONGEST
            if self._leads():
                try:
                    # Use a thread for each look: an API server that hangs delays only this loop.
                    verdict = await in_thread(self._look, self._offered())
                    self._tries.went_well()
                    longest = _LONGEST if verdict.is_ready else _LONGEST_WAITING
                except Exception as error:
                    self._tries.failed(logging.WARNING, "cannot tell the node object about the devices", error=error)
                    longest = _LONGEST_WAITING if isinstance(error, Conflict) else _LONGEST
            else:
                longest = _FIRST
            # After a change, the next change may come soon.
            is_waiting = self._waiting_since is not None
            pause = _FIRST if is_waiting != was_waiting else min(2 * pause, longest)
            # Pods that start together must not look together.
            await asyncio.sleep(pause * random.uniform(0.8, 1.0))  # noqa: S311 (no secret)

    def _look(self, offered: Offered) -> Verdict:
        """Read the node object, and patch what is not right. Raises ApiError and KubeconfigError."""
        name, taint, condition = self._told
        # The kubelet renews the token, so read it again.
        api = self._connect()
        # The answer to a patch shows the node, so no right to read nodes is needed. An empty patch writes nothing.
        node = api.merge(Place("nodes", name, part="" if taint else "status"), {})
        verdict, now = judge(node, offered), time.monotonic()
        if verdict.is_ready:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        if taint and verdict.is_ready:
            removal = taint_removal(node, taint)
            if removal:
                api.patch_node(name, removal)
                log.info("removed the startup taint", node=name, taint=taint)
        if condition:
            lasted = 0.0 if self._waiting_since is None else now - self._waiting_since
            change = condition_change(node, verdict, datetime.datetime.now(datetime.timezone.utc), lasted)
            if change:
                api.patch_node_status(name, change)
        return verdict
