"""One container for each containerd, for as long as the tests run."""

from __future__ import annotations

from pathlib import Path

import pytest
from containerds import RELEASES, Containerd, bin_dirs


# lab/programs/build names a directory by its containerd: containerd-2.4-2.4.2-cd466409608e.
@pytest.fixture(scope="session", params=[*RELEASES, *bin_dirs()], ids=lambda where: Path(where).name)
def containerd(request):
    node = Containerd(request.param)
    yield node
    node.close()
