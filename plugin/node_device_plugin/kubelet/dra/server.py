"""The DRAPlugin service (v1) of the driver, which the kubelet calls for each pod with claims."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, Callable, TypeVar

from ...telemetry import metrics
from ...telemetry.logs import Log
from ...wire import dra_v1_pb2 as api
from ...wire import dra_v1_pb2_grpc as api_grpc
from .claims import CDI_KIND, WHOLE, ClaimId, PreparedClaim, Refused, spec_device
from .preparing import Preparing

log = Log(__name__)
T = TypeVar("T")


class DraPluginServer(api_grpc.DRAPluginServicer):
    """Answers once for each claim of a request. prepared: called with each claim that has its devices now."""

    def __init__(self, preparing: Preparing, prepared: Callable[[PreparedClaim], None]) -> None:
        self._preparing, self._prepared = preparing, prepared

    async def NodePrepareResources(
        self, request: api.NodePrepareResourcesRequest, context: Any
    ) -> api.NodePrepareResourcesResponse:
        """Prepare claims at the same time. If one fails, its answer has the error, and its pod waits."""
        return api.NodePrepareResourcesResponse(claims=await _for_each(self._prepare, request.claims))

    async def NodeUnprepareResources(
        self, request: api.NodeUnprepareResourcesRequest, context: Any
    ) -> api.NodeUnprepareResourcesResponse:
        """Release claims at the same time, also claims that are not prepared."""
        return api.NodeUnprepareResourcesResponse(claims=await _for_each(self._unprepare, request.claims))

    async def _prepare(self, asked: ClaimId) -> api.NodePrepareResourceResponse:
        try:
            claim = await self._preparing.prepare(asked)
        except Exception as error:
            metrics.CLAIM_PREPARATIONS.increment("failed")
            return api.NodePrepareResourceResponse(error=_told("to prepare a claim", asked, error))
        # The pod need not wait for the rest.
        asyncio.get_running_loop().call_soon(self._tell, claim)
        return api.NodePrepareResourceResponse(devices=list(_answers(claim)))

    def _tell(self, claim: PreparedClaim) -> None:
        metrics.CLAIM_PREPARATIONS.increment("prepared")
        self._prepared(claim)
        given = [name for device in claim.devices for name in device.cdi_names]
        log.info("prepared a claim", claim=f"{claim.id.namespace}/{claim.id.name}", uid=claim.id.uid, given=given)

    async def _unprepare(self, asked: ClaimId) -> api.NodeUnprepareResourceResponse:
        try:
            await self._preparing.unprepare(asked)
        except Exception as error:
            return api.NodeUnprepareResourceResponse(error=_told("to release a claim", asked, error))
        log.info("released a claim", claim=f"{asked.namespace}/{asked.name}", uid=asked.uid)
        return api.NodeUnprepareResourceResponse()


def _answers(claim: PreparedClaim) -> Iterator[api.Device]:
    """The devices as the kubelet learns of them, each CDI name once for each request.

    Devices may share a control device of another program's spec. A container gets all devices of a request, and some
    runtimes do not start it if a name comes twice (kubernetes/kubernetes#140274).
    """
    told: set[tuple[str, str]] = set()
    for device in claim.devices:
        names = [name for name in device.cdi_names if (device.request, name) not in told]
        told.update((device.request, name) for name in names)
        yield api.Device(
            request_names=[device.request], pool_name=device.pool, device_name=device.name, cdi_device_ids=names
        )
    if WHOLE in claim.env:
        # The last one, because of two values of a variable the last one counts.
        last, names = claim.devices[-1], [f"{CDI_KIND}={spec_device(claim.id, WHOLE)}"]
        yield api.Device(request_names=[WHOLE], pool_name=last.pool, device_name=last.name, cdi_device_ids=names)


async def _for_each(call: Callable[[ClaimId], Coroutine[Any, Any, T]], claims: Sequence[api.Claim]) -> dict[str, T]:
    """The answer for each claim, by uid. One claim, as most pods have, needs no task of its own."""
    ids = {each.uid: ClaimId(each.uid, each.namespace, each.name) for each in claims}
    calls = [call(each) for each in ids.values()]
    answers = await asyncio.gather(*calls) if len(calls) > 1 else [await each for each in calls]
    return dict(zip(ids, answers))


def _told(what: str, asked: ClaimId, error: Exception) -> str:
    """Log why a call failed for a claim; returns the text for the kubelet, which is never empty."""
    is_expected = isinstance(error, Refused)
    text = str(error) if is_expected else f"{asked}: a defect of the plugin: {error!r}"
    log.error("refused a request", request=what, uid=asked.uid, error=text, exc_info=None if is_expected else error)
    return text
