"""Allocate as it is, with a count and the time that it takes."""

from __future__ import annotations

import time
from typing import Any

from ...telemetry import metrics
from ...wire import device_plugin_v1beta1_pb2 as api
from .server import DevicePluginServer


class MeasuredDevicePluginServer(DevicePluginServer):
    """A DevicePluginServer whose allocations are counted and timed."""

    async def Allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        """As DevicePluginServer.Allocate."""
        resource = self.resource.name
        started = time.perf_counter()
        result = "error"
        try:
            answer = await super().Allocate(request, context)
            result = "ok"
            return answer
        finally:
            if result != "ok" and context.code():
                result = context.code().name.lower()
            metrics.ALLOCATIONS.increment(resource, result)
            metrics.ALLOCATION_SECONDS.observe(time.perf_counter() - started, resource)
