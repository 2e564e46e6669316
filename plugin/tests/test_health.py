"""Health, on real device nodes."""

import os
import stat
from pathlib import Path

import pytest

from node_device_plugin.declaration import Device, parse_resources
from node_device_plugin.health import unhealthy_reason


def device(path: Path) -> Device:
    (resource,) = parse_resources(
        [{"name": "example.com/dev", "devices": [{"id": "d", "nodes": [{"path": "/dev/d", "host_path": str(path)}]}]}]
    )
    return resource.devices[0]


def test_a_device_node_that_is_there_is_healthy() -> None:
    assert unhealthy_reason(device(Path("/dev/null"))) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="mknod needs root")
def test_a_block_device_is_one_too(tmp_path: Path) -> None:
    os.mknod(tmp_path / "block", stat.S_IFBLK | 0o600, os.makedev(7, 250))
    assert unhealthy_reason(device(tmp_path / "block")) is None


def test_the_reason_names_the_path(tmp_path: Path) -> None:
    assert unhealthy_reason(device(tmp_path / "none")) == "%s: No such file or directory" % (tmp_path / "none")
    (tmp_path / "file").touch()
    assert unhealthy_reason(device(tmp_path / "file")) == "%s: not a device node" % (tmp_path / "file")
