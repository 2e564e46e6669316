"""What the checkout's conftest.py does for every suite."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal

import grpc.aio


class _Cycle:
    """Only the garbage collector can free it."""

    def __init__(self, *held):
        self.itself = self
        self.held = held


async def _used():
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    await channel.channel_ready()
    _Cycle(server, channel)
    await channel.close()
    await server.stop(None)


def test_a_fork_that_collects_garbage_leaves_grpc_alone():
    gc.disable()
    try:
        asyncio.run(_used())
        child = os.fork()
        if child == 0:
            gc.collect()
            os._exit(0)
        descriptor = os.pidfd_open(child)
        ended, _, _ = select.select([descriptor], [], [], 20)
        os.close(descriptor)
        if not ended:
            os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        gc.enable()
