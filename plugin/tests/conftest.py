"""What tests of sockets need."""

import shutil
import tempfile
from pathlib import Path
from typing import Iterator

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder of the test's own whose path leaves room for a socket's name (107 bytes in all)."""
    path = tempfile.mkdtemp(prefix="ndp-")
    yield Path(path)
    shutil.rmtree(path, ignore_errors=True)
