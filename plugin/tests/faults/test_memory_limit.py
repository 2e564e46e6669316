"""The memory limit of the pod: what the plugin needs with 1,000 devices and half of it more, whatever happens.

A process of its own is held to it, by the most that was ever resident: the kernel kills who is above.
"""

import asyncio
import json
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

from kubelet_stand_in import StandInKubelet
from node_device_plugin.cluster.manifests import parse_deployment

from .process import PluginProcess, plugin_process

RESOURCES, DEVICES = 10, 100
NAMES = ["example.com/dev-%d" % number for number in range(RESOURCES)]
MORE = 1.5


def limit() -> float:
    """MiB."""
    text = parse_deployment({"image": "x"}).resources["limits"]["memory"]
    assert text.endswith("Mi")
    return float(text[:-2])


def configuration(folder: Path, port: int, suffix: str = "") -> dict[str, Any]:
    return {
        "kubelet_device_plugin_dir": str(folder / "dp"),
        "cdi_spec_dirs": [],
        "dynamic_cdi_dir": str(folder / "cdi"),
        "cdi_owner": "plugin",
        "http_address": "127.0.0.1:%d" % port,
        "resources": [
            {
                "name": name,
                "env": {"DEV_%d_{index}" % number: "{path}"},
                "devices": [
                    {
                        "id": "device-%d-%d%s" % (number, device, suffix),
                        "nodes": [{"path": "/dev/x-%d" % device, "host_path": "/dev/null"}],
                    }
                    for device in range(DEVICES)
                ],
            }
            for number, name in enumerate(NAMES)
        ],
    }


def most_resident(plugin: PluginProcess) -> float:
    """MiB that it ever had."""
    for line in Path("/proc/%d/status" % plugin.process.pid).read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the plugin has ended:\n%s" % plugin.said())


def scrape(port: int) -> None:
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as answer:
        assert b"node_device_plugin_devices" in answer.read()


async def test_it_is_never_hit(short_path: Path) -> None:
    (short_path / "cdi").mkdir()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    async with (
        StandInKubelet(str(short_path / "dp")) as kubelet,
        plugin_process(short_path, configuration(short_path, port)) as plugin,
    ):
        for name in NAMES:
            assert len(await kubelet.registered(name)) == DEVICES
        for number in range(RESOURCES):
            await kubelet.allocate_pod("pod-%d" % number, {"main": {NAMES[number]: DEVICES}})
            await asyncio.get_running_loop().run_in_executor(None, scrape, port)
        for _ in range(2):
            await kubelet.restart()
            for name in NAMES:
                await kubelet.registered(name)
        # Every device is another one, back and forth: old and new tables are there at the same time.
        for suffix in ("-b", ""):
            # The file that the plugin was started with.
            (short_path / "plugin.yaml").write_text(json.dumps(configuration(short_path, port, suffix)))
            plugin.process.send_signal(signal.SIGHUP)
            wanted = "device-0-0" + suffix
            await kubelet.until(lambda wanted=wanted: kubelet.devices(NAMES[0]).get(wanted) == "Healthy")
        most = most_resident(plugin)
        assert "Traceback" not in plugin.said()
    print("%.1f MiB resident at most, limit %.0f" % (most, limit()))
    assert most * MORE <= limit(), "%.1f MiB were resident, and the limit is %.0f" % (most, limit())
