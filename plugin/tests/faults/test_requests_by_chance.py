"""gRPC requests by chance: each is answered or refused with a clear status, and the next good one is served."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_device_plugin.support.channels import grpc, unix_channel
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import device_plugin_v1beta1_pb2_grpc as api_grpc

from .in_process import registration, resource
from .strategies import BY_CHANCE

FUZZ = settings(BY_CHANCE, max_examples=100)
IDS = st.lists(
    st.sampled_from(["d0", "d1", "d0::0"]) | st.text(st.characters(blacklist_categories=["Cs"]), max_size=5), max_size=4
)
#: What Allocate may say; everything else would be our fault.
CLEAR = {
    grpc.StatusCode.OK,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class Served:
    """A plugin whose calls can be made from tests that are no coroutines, as hypothesis wants them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: grpc.aio.Channel) -> None:
        self._loop = loop
        self._channel = channel
        self.stub = api_grpc.DevicePluginStub(channel)

    def code(self, call: Callable[[], Awaitable[Any]]) -> grpc.StatusCode:
        async def made() -> grpc.StatusCode:
            try:
                await call()
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        return self._loop.run_until_complete(asyncio.wait_for(made(), 10))

    def raw(self, method: str, content: bytes) -> grpc.StatusCode:
        call = self._channel.unary_unary("/v1beta1.DevicePlugin/" + method)
        return self.code(lambda: call(content))

    def allocate(self, containers: Sequence[Sequence[str]]) -> grpc.StatusCode:
        requests = [api.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        return self.code(lambda: self.stub.Allocate(api.AllocateRequest(container_requests=requests)))


@pytest.fixture
def served(short_path: Path) -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    stack = contextlib.AsyncExitStack()

    async def start() -> Served:
        running = await stack.enter_async_context(
            registration(str(short_path), resource(preference="packed", container_limit=2))
        )
        await asyncio.wait_for(running.serving.wait(), 10)
        (socket,) = os.listdir(short_path / "node-device-plugin")
        channel = await stack.enter_async_context(unix_channel(str(short_path / "node-device-plugin" / socket)))
        return Served(asyncio.get_running_loop(), channel)

    yield loop.run_until_complete(start())
    loop.run_until_complete(stack.aclose())
    loop.close()


@FUZZ
@given(containers=st.lists(IDS, max_size=3))
def test_allocate(served: Served, containers: list[list[str]]) -> None:
    code = served.allocate(containers)
    assert code in CLEAR
    known = all(device in ("d0", "d1") for ids in containers for device in ids)
    assert (code == grpc.StatusCode.OK) == (known and all(len(ids) <= 2 for ids in containers))
    assert served.allocate([["d1", "d0"]]) == grpc.StatusCode.OK


@FUZZ
@given(available=IDS, must=IDS, size=st.integers(-(2**31), 2**31 - 1))
def test_a_preference_is_never_an_error(served: Served, available: list[str], must: list[str], size: int) -> None:
    """An error would cost the pod its admission."""
    asked = api.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
    )
    request = api.PreferredAllocationRequest(container_requests=[asked])
    assert served.code(lambda: served.stub.GetPreferredAllocation(request)) == grpc.StatusCode.OK


@FUZZ
@given(ids=IDS)
def test_before_a_container_starts(served: Served, ids: list[str]) -> None:
    request = api.PreStartContainerRequest(devices_ids=ids)
    assert served.code(lambda: served.stub.PreStartContainer(request)) in CLEAR


@FUZZ
@given(
    method=st.sampled_from(["Allocate", "GetPreferredAllocation", "PreStartContainer", "GetDevicePluginOptions", "No"]),
    content=st.binary(max_size=40),
)
def test_bytes_that_are_no_request(served: Served, method: str, content: bytes) -> None:
    code = served.raw(method, content)
    # UNKNOWN is what grpc.aio itself says of bytes that are no message.
    assert code in {*CLEAR, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNIMPLEMENTED}
    assert served.allocate([["d0"]]) == grpc.StatusCode.OK
