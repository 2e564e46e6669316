"""One container for each containerd, for as long as the tests run."""

from __future__ import annotations

from pathlib import Path

import pytest
from containerds import RELEASES, Containerd, bin_dirs

_judges: list[str] = []


def pytest_terminal_summary(terminalreporter):
    for version in _judges:
        terminalreporter.write_line(f"judged by: containerd {version}")


# lab/programs/build names a directory by its containerd: containerd-2.4-2.4.2-cd466409608e.
@pytest.fixture(scope="session", params=[*RELEASES, *bin_dirs()], ids=lambda where: Path(where).name)
def containerd(request):
    node = Containerd(request.param)
    _judges.append(node.version)
    yield node
    node.close()


# From Debian's 1.7 to its 2.1, and from there to those of CONTAINERD_BIN_DIR.
@pytest.fixture(
    scope="session",
    params=[RELEASES[-2:], *((RELEASES[-1], where) for where in bin_dirs())],
    ids=lambda pair: f"{pair[0]}-to-{Path(pair[1]).name}",
)
def upgrade(request):
    nodes = [Containerd(where) for where in request.param]
    yield nodes
    for node in nodes:
        node.close()
