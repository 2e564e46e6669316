"""Fixtures of the stand-in's tests."""

import pytest

from kubelet_stand_in import RecordingPlugin, StandInKubelet, healthy
from node_device_plugin.support.channels import grpc

RESOURCE = "example.com/serial"

# Never shut grpc.aio down again (see plugin/tests/conftest.py).
grpc.aio.init_grpc_aio()


@pytest.fixture
def folder(short_path):
    return str(short_path / "device-plugins")


@pytest.fixture
async def kubelet(folder):
    async with StandInKubelet(folder) as kubelet:
        yield kubelet


@pytest.fixture
async def plugins(folder):
    """Create and start plugins, and stop them at the end: ``await plugins(["a0"], name="second")``."""
    made = []

    async def make(ids=("a0",), name="first", resource=RESOURCE, devices=None, **options):
        endpoint = "sub/%s.sock" % name
        plugin = RecordingPlugin(folder, resource, endpoint, healthy(ids) if devices is None else devices, **options)
        await plugin.start()
        made.append(plugin)
        return plugin

    yield make
    for plugin in made:
        await plugin.stop()
