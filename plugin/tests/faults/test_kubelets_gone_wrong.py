"""Kubelets that do half of what they should."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.kubelet.device_plugin import registration as under_test
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import device_plugin_v1beta1_pb2_grpc as api_grpc

from .in_process import NAME, held, registration, resource


class HalfAKubelet(api_grpc.RegistrationServicer):
    """Takes registrations and never calls back; hangs: it does not even answer."""

    def __init__(self, hangs: bool) -> None:
        self.requests: list[str] = []
        self._hangs = hangs
        self._changed = asyncio.Event()

    async def Register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        self.requests.append(request.endpoint)
        self._changed.set()
        if self._hangs:
            await asyncio.Event().wait()
        return api.Empty()

    async def until_asked(self, times: int) -> None:
        while len(self.requests) < times:
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 20)


@contextlib.asynccontextmanager
async def half_a_kubelet(directory: str, hangs: bool) -> AsyncIterator[HalfAKubelet]:
    os.makedirs(directory, exist_ok=True)
    server, kubelet = grpc.aio.server(), HalfAKubelet(hangs)
    api_grpc.add_RegistrationServicer_to_server(kubelet, server)
    server.add_insecure_port("unix:" + os.path.join(directory, "kubelet.sock"))
    await server.start()
    try:
        yield kubelet
    finally:
        await server.stop(None)


@pytest.mark.parametrize("hangs", [False, True], ids=["accepts and opens no stream", "hangs in Register"])
async def test_a_kubelet_that_does_nothing_is_asked_again_and_the_next_one_gets_everything(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hangs: bool
) -> None:
    """Complaint 1: registered, and no stream: allocatable stays 0 for ever."""
    monkeypatch.setattr(under_test, "_STREAM_DEADLINE", 0.05)
    monkeypatch.setattr(under_test, "_REGISTER_DEADLINE", 0.05)
    monkeypatch.setattr(under_test, "_LAST_RETRY", 0.1)
    directory = str(short_path / "dp")
    with caplog.at_level(logging.INFO):
        async with registration(directory, resource()) as running:
            async with half_a_kubelet(directory, hangs) as kubelet:
                await kubelet.until_asked(2)
                before = await held()
                await kubelet.until_asked(12)
                after = await held()
                assert not running.service.stream.is_open
                assert after.files <= before.files + 2
                assert after.tasks <= before.tasks + 8
            async with StandInKubelet(directory) as healthy:
                await healthy.registered(NAME)
                await healthy.allocate_pod("pod", {"main": {NAME: 1}})
    said = (
        f"the kubelet refused the registration resource={NAME} code=DEADLINE_EXCEEDED"
        if hangs
        else "the kubelet opened no stream"
    )
    assert said in caplog.text


@pytest.mark.parametrize("hangs", [False, True], ids=["accepts and opens no stream", "hangs in Register"])
async def test_nobody_waits_for_a_kubelet_that_is_gone(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """Complaint 3: a kubelet that dies in the middle of a registration is not waited for when the next one is there."""
    monkeypatch.setattr(under_test, "_STREAM_DEADLINE", 600.0)
    monkeypatch.setattr(under_test, "_REGISTER_DEADLINE", 600.0)
    directory = str(short_path / "dp")
    async with registration(directory, resource()):
        async with half_a_kubelet(directory, hangs) as kubelet:
            await kubelet.until_asked(1)
        async with StandInKubelet(directory) as healthy:
            await healthy.registered(NAME)
