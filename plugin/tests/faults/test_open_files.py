"""Open files: each resource needs some, so many resources need more than systemd's soft limit of 1,024."""

import os
import resource as limits
from pathlib import Path
from typing import Any

import pytest

from kubelet_stand_in import StandInKubelet

from .process import plugin_process

NAMES = ["example.com/dev-%d" % number for number in range(600)]
#: systemd's default soft limit.
SOFT = 1024
_NULL = {"host_path": "/dev/null"}


def configuration(folder: Path) -> dict[str, Any]:
    return {
        "kubelet_device_plugin_dir": str(folder / "dp"),
        "kubelet_root_dir": str(folder),
        "dynamic_cdi_dir": str(folder / "cdi"),
        "cdi_spec_dirs": [],
        "http_address": "",
        "resources": [
            {"name": name, "devices": [{"id": "d%d" % number, "nodes": [{"path": "/dev/x%d" % number, **_NULL}]}]}
            for number, name in enumerate(NAMES)
        ],
    }


@pytest.fixture
def own_limit() -> Any:
    """Room for the stand-in's own connections."""
    before = limits.getrlimit(limits.RLIMIT_NOFILE)
    limits.setrlimit(limits.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    limits.setrlimit(limits.RLIMIT_NOFILE, before)


async def test_many_resources_under_the_soft_limit_of_systemd(short_path: Path, own_limit: None) -> None:
    async with (
        StandInKubelet(str(short_path / "dp")) as kubelet,
        plugin_process(short_path, configuration(short_path), open_files=SOFT) as plugin,
    ):
        for name in NAMES:
            await kubelet.registered(name)
        assert len(os.listdir("/proc/%d/fd" % plugin.process.pid)) > SOFT
        await kubelet.restart()
        for name in NAMES:
            await kubelet.registered(name)
        assert plugin.process.returncode is None
        assert "Traceback" not in plugin.said()
