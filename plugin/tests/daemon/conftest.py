"""A node, and its kubelet, for the tests of held devices."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.daemon import reconcile, resource_manager
from node_device_plugin.kubelet import queries

from .held_node import Links, Node


@pytest.fixture
async def node(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(reconcile, "HOLDERS_PERIOD", 0.05)
    monkeypatch.setattr(resource_manager, "SWEEP", 0.1)
    monkeypatch.setattr(queries, "_last_known", {})
    # The stand-in knows its pods from the start on.
    monkeypatch.setattr(queries, "_STARTING", 0.0)
    made = Node(short_path)
    yield made
    await made.stop()


@pytest.fixture
async def kubelet(short_path: Path) -> AsyncIterator[StandInKubelet]:
    async with StandInKubelet(str(short_path / "dp")) as running:
        yield running


@pytest.fixture
def links(node: Node) -> Links:
    return Links(node.folder)
