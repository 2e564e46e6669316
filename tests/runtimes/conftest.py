"""One container for each containerd, for as long as the tests run."""

from __future__ import annotations

import pytest
from containerds import RELEASES, Containerd, bin_dirs


@pytest.fixture(scope="session", params=[*RELEASES, *bin_dirs()])
def containerd(request):
    node = Containerd(request.param)
    yield node
    node.close()
