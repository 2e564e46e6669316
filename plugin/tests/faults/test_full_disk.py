"""A full file system: the plugin backs off, says it once, and it is the reason of each device that is there."""

import asyncio
import contextlib
import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.status_api import client

from .process import plugin_process

NAMES = ["example.com/dev-%d" % number for number in range(3)]
_LIBC = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def small(directory: Path, options: bytes) -> Iterator[None]:
    """Mount a file system with little room."""
    directory.mkdir()
    if _LIBC.mount(b"none", bytes(directory), b"tmpfs", 0, options):
        pytest.skip("needs the right to mount")
    try:
        yield
    finally:
        _LIBC.umount2(bytes(directory), 2)


def fill(directory: Path) -> None:
    with contextlib.suppress(OSError), (directory / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def configuration(folder: Path, **more: Any) -> dict[str, Any]:
    return {
        "kubelet_device_plugin_dir": str(folder / "dp"),
        "kubelet_root_dir": str(folder),
        "dynamic_cdi_dir": str(folder / "cdi"),
        "cdi_spec_dirs": [str(folder / "cdi")],
        "cdi_owner": "plugin",
        "http_address": "",
        "resources": [
            {
                "name": name,
                "devices": [{"id": "d%d" % number, "required": False, "nodes": [{"path": "/dev/null"}]}],
                "env": {"DEV_%d" % number: "x"},
            }
            for number, name in enumerate(NAMES)
        ],
        **more,
    }


async def resources(folder: Path) -> list[dict[str, Any]]:
    answer = await client.ask(str(folder / "dp"), "GET", "/status")
    return list(answer["resources"])


async def failed_writes(folder: Path) -> float:
    reader, writer = await asyncio.open_unix_connection(str(folder / "dp" / "node-device-plugin" / "status.sock"))
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    lines = [line for line in text.splitlines() if "cdi" in line and '"failed"' in line]
    return sum(float(line.split()[-1]) for line in lines)


async def test_a_full_directory_of_specs(short_path: Path) -> None:
    cdi = short_path / "cdi"
    with small(cdi, b"size=64k"):
        fill(cdi)
        async with (
            StandInKubelet(str(short_path / "dp")) as kubelet,
            plugin_process(short_path, configuration(short_path)) as plugin,
        ):
            for name in NAMES:
                await kubelet.registered(name)
            # Each write is tried again.
            while await failed_writes(short_path) < 2 * len(NAMES):
                await asyncio.sleep(0.1)
            assert plugin.said().count("cannot write a CDI spec") == len(NAMES)
            specs = [cdi / ("node-device-plugin_%s.json" % name.replace("/", "_")) for name in NAMES]
            devices = [device for each in await resources(short_path) for device in each["devices"]]
            full = ["cannot write the CDI spec %s: No space left on device" % spec for spec in specs]
            assert [(each["state"], each["reason"]) for each in devices] == [("absent", why) for why in full]
            (cdi / "filler").unlink()
            for name, spec in zip(NAMES, specs):
                await kubelet.until(lambda name=name: set(kubelet.devices(name).values()) == {"Healthy"})
                assert json.loads(spec.read_text())["devices"]


async def test_sockets_that_cannot_be_bound(short_path: Path) -> None:
    """The plugin's own directory is a mount, as in its sandbox, and has room for two files."""
    sockets = short_path / "dp" / "node-device-plugin"
    sockets.parent.mkdir()
    with small(sockets, b"nr_inodes=3"):
        settings = configuration(short_path, cdi_spec_dirs=[], log_level="debug")
        async with StandInKubelet(str(short_path / "dp")), plugin_process(short_path, settings) as plugin:
            for _ in range(2):
                await plugin.until_said("DEBUG cannot serve resource=")
            said = plugin.said()
            assert "add_port.cc" not in said
            failed = [name for name in NAMES if "ERROR cannot serve resource=%s" % name in said]
            assert failed
            for name in failed:
                assert said.count("ERROR cannot serve resource=%s" % name) == 1
