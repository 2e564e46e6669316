"""The stand-in as a process: reads its configuration, and runs until a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Mapping
from typing import Any, Callable, NamedTuple

import yaml

from node_device_plugin.daemon.systemd import notify
from node_device_plugin.runtime.errors import CriError

from . import klog
from .cri_client import KubeletCriClient
from .pods_http import PodsHttpServer
from .stand_in import StandInKubelet
from .static_pods import StaticPods

#: The device plugin directory, which does not depend on the root directory.
_DEVICE_PLUGINS = "/var/lib/kubelet/device-plugins"
_LOGS = "/var/log/pods"
#: Seconds between two checks of the manifests, of the pods' containers, and of unknown sandboxes.
_LOOK, _POD_INTERVAL, _HOUSEKEEPING = 0.3, 0.5, 2.0


class Settings(NamedTuple):
    """The settings that the stand-in uses from a KubeletConfiguration. read_only_port: 0 for no port."""

    static_pods: str
    runtime: str
    read_only_port: int


def read_settings(path: str) -> Settings:
    """Read a KubeletConfiguration, ignoring unused settings. Raises OSError and ValueError."""
    with open(path, "rb") as file:
        try:
            data: Any = yaml.safe_load(file)
        except yaml.YAMLError as error:
            raise ValueError("%s is not valid YAML: %s" % (path, error)) from error
    if not isinstance(data, Mapping) or data.get("kind") != "KubeletConfiguration":
        raise ValueError("%s is not a KubeletConfiguration" % path)
    return Settings(
        static_pods=data.get("staticPodPath") or "",
        runtime=data.get("containerRuntimeEndpoint") or "unix:///run/containerd/containerd.sock",
        read_only_port=data.get("readOnlyPort") or 0,
    )


def run(config: str, root: str) -> int:
    """Run until SIGTERM; containers keep running. config: a KubeletConfiguration's path. Returns the exit code."""
    try:
        asyncio.run(_run(read_settings(config), root))
    except (CriError, OSError, ValueError) as error:
        klog.error("command failed", error)
        return 1
    return 0


async def _run(settings: Settings, root: str) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with KubeletCriClient(settings.runtime) as runtime:
        name, version = await runtime.version()
        klog.info(0, "Container runtime initialized", containerRuntime=name, version=version)
        kubelet = StandInKubelet(
            _DEVICE_PLUGINS,
            root=root,
            runtime=runtime,
            logs=_LOGS,
            node_name=socket.gethostname(),
            interval=_POD_INTERVAL,
        )
        static_pods = StaticPods(settings.static_pods, kubelet)
        static_pods.read_first()
        async with kubelet:
            http = PodsHttpServer(kubelet, settings.read_only_port)
            if settings.read_only_port:
                await http.start()
            notify("READY=1")
            klog.info(0, "Started kubelet")
            tasks = [
                asyncio.ensure_future(_repeat(static_pods.look, _LOOK)),
                asyncio.ensure_future(_repeat(kubelet.pods.remove_unknown_pods, _HOUSEKEEPING)),
                asyncio.ensure_future(stopped.wait()),
            ]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await http.stop()


async def _repeat(work: Callable[[], Awaitable[None]], pause: float) -> None:
    while True:
        await work()
        await asyncio.sleep(pause)
