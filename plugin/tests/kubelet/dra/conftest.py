"""A node with a driver, and the API server of its cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .fake_api import FakeApi, serving
from .node import Node


@pytest.fixture
def cluster() -> Iterator[FakeApi]:
    with serving() as fake:
        yield fake


@pytest.fixture
def node(short_path: Path, cluster: FakeApi) -> Node:
    return Node(short_path, cluster)
