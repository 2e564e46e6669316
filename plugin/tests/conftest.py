"""What tests of sockets need."""

import shutil
import tempfile
from pathlib import Path
from typing import Iterator

import pytest

from node_device_plugin.channels import grpc

# Never shut down again: where the last of its objects goes with the garbage of a session that ends, the poller of
# grpc.aio waits for itself for ever (seen at the end of pytest, after every test had passed).
grpc.aio.init_grpc_aio()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder of the test's own whose path leaves room for a socket's name (107 bytes in all)."""
    path = tempfile.mkdtemp(prefix="ndp-")
    yield Path(path)
    shutil.rmtree(path, ignore_errors=True)
