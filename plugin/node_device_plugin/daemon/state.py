"""The state of the running plugin as plain data, for the status, the metrics and readiness."""

from __future__ import annotations

import collections
import platform
import time
from collections.abc import Iterator
from typing import Any

from ..declaration import Device
from ..devices.given import HELD_BY_ANOTHER_NAME, IN_DOUBT, MET, MOVED_AWAY
from ..devices.reason import kind_of
from ..devices.table import DeviceTable
from ..support.directory_names import by_precedence
from ..support.version import version
from ..telemetry import metrics
from .reload import Reloader
from .resource_manager import ResourceManager, ServedResource

#: If the last full scan is more than this many seconds old, the plugin is not ready.
DISCOVERY_FRESH = 60.0
#: The kinds of reasons for devices that are not lost, but not offered: containers keep what they were given.
_WITHHELD = (HELD_BY_ANOTHER_NAME, IN_DOUBT, MET, MOVED_AWAY)


class State:
    """The served resources, their configuration, and the start time."""

    def __init__(self, resources: ResourceManager, reloader: Reloader) -> None:
        self._resources = resources
        self._reloader = reloader
        self._started = time.time()

    def not_ready(self) -> list[str]:
        """Why the plugin is not ready; empty if all resources are registered and the scan is recent."""
        reasons = [
            f"{each.name}: {each.status.problem or 'not registered with the kubelet'}"
            for each in self._resources.served()
            if not each.status.is_registered
        ]
        age = self._discovery_age()
        if age is None or age > DISCOVERY_FRESH:
            reasons.append("the devices were %s" % ("never scanned" if age is None else "last scanned %d s ago" % age))
        return reasons

    def as_data(self) -> dict[str, Any]:
        """The whole state, ready for JSON."""
        not_ready = self.not_ready()
        return {
            "version": version(),
            "started": self._started,
            "ready": not not_ready,
            "not_ready": not_ready,
            "configuration": {
                "path": self._reloader.source.chosen,
                "sha256": self._reloader.loaded.sha256,
                "last_reload": self._reloader.last.result,
                "problems": [str(problem) for problem in self._reloader.last.problems],
                "cdi_spec_dirs": by_precedence(self._reloader.loaded.configuration.checked_spec_dirs),
            },
            "discovery_age_seconds": self._discovery_age(),
            "resources": [
                {**_resource(served), "missed": dict(self._resources.missed(served.name))}
                for served in self._resources.served()
            ],
        }

    def metrics(self) -> str:
        """The metrics in Prometheus' text format."""
        lines = [line for counted in metrics.COUNTED for line in counted.render()]
        lines.extend(self._gauges())
        return "\n".join(lines) + "\n"

    def _gauges(self) -> Iterator[str]:
        reloader, served = self._reloader, self._resources.served()
        yield from metrics.BUILD.render({(version(), platform.python_version()): 1})
        yield from metrics.CONFIGURATION.render({(reloader.loaded.sha256,): 1})
        yield from metrics.REFUSED.render({(): int(reloader.last.result == "refused")})
        yield from metrics.STARTED.render({(): self._started})
        yield from metrics.DISCOVERY_AGE.render({(): self._discovery_age()})
        yield from metrics.REGISTERED.render({(each.name,): int(each.status.is_registered) for each in served})
        yield from metrics.REGISTERED_SECONDS.render({(each.name,): each.status.registered_seconds for each in served})
        yield from metrics.PREPARED_CLAIMS.render({(each.name,): each.status.prepared for each in served})
        yield from metrics.DEVICES.render(dict(sorted(self._devices().items())))

    def _devices(self) -> dict[tuple[str, ...], float]:
        counts: dict[tuple[str, ...], float] = collections.defaultdict(float)
        for each in self._resources.served():
            table = each.table
            # A resource without devices also needs a series, because an alert on a sum of no series never fires.
            counts[(table.resource.name, "healthy", "")] += 0
            for _device, state, reason in _states(table):
                counts[(table.resource.name, state, kind_of(reason or ""))] += 1
        return counts

    def _discovery_age(self) -> float | None:
        at = self._resources.checked_at
        return None if at is None else round(time.monotonic() - at, 3)


def _resource(served: ServedResource) -> dict[str, Any]:
    table, status = served.table, served.status
    return {
        "name": table.resource.name,
        "api": table.declared.api,
        "registered": status.is_registered,
        "problem": status.problem,
        "registered_seconds": None if status.registered_seconds is None else round(status.registered_seconds, 3),
        "devices": [
            {
                "id": device.id,
                "state": state,
                "reason": reason,
                "withheld": kind_of(reason or "") in _WITHHELD,
                "kubelet_ids": served.frontend.listed_ids(table.resource, device),
                "cdi_name": table.resource.cdi_name(device),
                "cdi_devices": list(device.cdi_devices),
                "host_paths": [node.host_path for node in device.nodes],
                "attributes": device.attributes.known(),
                "numa_node": device.numa_node,
            }
            for device, state, reason in _states(table)
        ],
        "min_devices": table.resource.min_devices,
        "late": table.late,
        "refused": dict(table.left_out),
        "left_out": dict(table.not_offered),
    }


def _states(table: DeviceTable) -> Iterator[tuple[Device, str, str | None]]:
    """Each device with its state and reason. The state absent: the optional device has never passed its checks."""
    shown = {device.id for device, _reason in table.shown()}
    for device in table.resource.devices:
        reason = table.reason(device)
        if device.id not in shown:
            yield device, "absent", reason
        else:
            yield device, "healthy" if reason is None else "unhealthy", reason
