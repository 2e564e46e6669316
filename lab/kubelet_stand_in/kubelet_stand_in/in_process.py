"""Runs scenarios on a stand-in in this process, with an in-memory runtime."""

from __future__ import annotations

import os
from typing import Any

from .kubelet_under_test import Given
from .memory_runtime import MemoryRuntime
from .pods import parse_pod
from .pods_http import PodsHttpServer
from .stand_in import StandInKubelet


class InProcess:
    """The stand-in in this process. folder: an empty directory. minor: see StandInKubelet."""

    quiet = 0.06
    node_name = "node"

    def __init__(self, folder: str, minor: tuple[int, int] = (1, 36)) -> None:
        self._folder = folder
        self._minor = minor
        self._lives = 0

    async def fresh(self) -> None:
        self._lives += 1
        root = os.path.join(self._folder, str(self._lives))
        self.directory = os.path.join(root, "device-plugins")
        self._runtime = MemoryRuntime()
        self._kubelet = StandInKubelet(
            self.directory,
            runtime=self._runtime,
            node_name=self.node_name,
            dial_timeout=0.3,
            registry_interval=0.02,
            minor=self._minor,
        )
        self.pod_resources_socket = self._kubelet.pod_resources_socket
        await self._kubelet.start()

    async def start(self) -> None:
        await self._kubelet.start()
        await self._kubelet.pods.remove_unknown_pods()

    async def stop(self) -> None:
        await self._kubelet.stop()

    async def place(self, manifest: dict[str, Any]) -> None:
        pod = parse_pod(manifest, "", self.node_name)
        self._kubelet.source[pod.uid] = pod
        await self._kubelet.pods.add(pod)

    async def take_away(self, name: str) -> None:
        for pod in list(self._kubelet.source.values()):
            if pod.name == "%s-%s" % (name, self.node_name):
                await self._kubelet.remove_pod(pod.uid)

    async def pods(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = PodsHttpServer(self._kubelet, 0).pod_list()["items"]
        return items

    async def given(self, container_id: str) -> Given:
        config = self._runtime.configs[container_id.rpartition("/")[2]]
        return Given(
            env={variable.key: variable.value.decode() for variable in config.envs},
            devices=[[d.container_path, d.host_path, d.permissions] for d in config.devices],
            mounts=[[m.container_path, m.host_path, "ro" if m.readonly else "rw"] for m in config.mounts],
            annotations=dict(config.annotations),
            cdi_devices=[device.name for device in config.CDI_devices],
        )

    async def end_container(self, container_id: str) -> None:
        self._runtime.exit(container_id.rpartition("/")[2])
