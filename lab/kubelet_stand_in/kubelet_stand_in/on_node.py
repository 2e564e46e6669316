"""Runs scenarios with any kubelet binary, on a node with a container runtime."""

from __future__ import annotations

import asyncio
import contextlib
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
from typing import Any

from .cri_client import KubeletCriClient
from .kubelet_under_test import Given

_CONFIGURATION = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: {static_pods}
containerRuntimeEndpoint: unix://{runtime}
readOnlyPort: {port}
address: 127.0.0.1
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
evictionHard: {{imagefs.available: "0%", memory.available: "0%", nodefs.available: "0%", nodefs.inodesFree: "0%"}}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
resolvConf: ""
"""


class OnNode:
    """A kubelet on this node. It needs root, and no other kubelet may run on the node at the same time.

    command: e.g. /usr/local/bin/kubelet. runtime: path of the container runtime's socket. log: file for the kubelet's
    output.
    """

    quiet = 2.5
    #: The device plugin directory, which does not depend on the root directory.
    directory = "/var/lib/kubelet/device-plugins"
    _port = 10255

    def __init__(self, command: str, runtime: str, log: str) -> None:
        self._command = command
        self._runtime = runtime
        self._log = log
        self.node_name = socket.gethostname()
        self._root = tempfile.mkdtemp(prefix="transcripts-", dir="/var/lib")
        self._static_pods = os.path.join(self._root, "manifests")
        self.pod_resources_socket = os.path.join(self._root, "pod-resources", "kubelet.sock")
        self._configuration = os.path.join(self._root, "config.yaml")
        self._pods: set[str] = set()
        self._process: asyncio.subprocess.Process | None = None

    async def fresh(self) -> None:
        await self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        _remove_root(self._root)
        os.makedirs(self._static_pods)
        _write(
            self._configuration,
            _CONFIGURATION.format(static_pods=self._static_pods, runtime=self._runtime, port=self._port),
        )
        await self.start()

    async def start(self) -> None:
        log = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            arguments = ["--config", self._configuration, "--root-dir", self._root, "--v=4"]
            self._process = await asyncio.create_subprocess_exec(self._command, *arguments, stdout=log, stderr=log)
        finally:
            os.close(log)
        for _ in range(600):
            if self._answers(os.path.join(self.directory, "kubelet.sock")) and self._answers(self.pod_resources_socket):
                return
            if self._process.returncode is not None:
                break
            await asyncio.sleep(0.1)
        raise RuntimeError("the kubelet did not start to serve; see its log %s" % self._log)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()

    async def close(self) -> None:
        """Stop the kubelet, and remove its pods, files and directories."""
        await self.stop()
        async with KubeletCriClient(self._runtime) as runtime:
            for sandbox in await runtime.pod_sandboxes():
                if sandbox.metadata.name in {self._name(pod) for pod in self._pods}:
                    await runtime.stop_pod_sandbox(sandbox.id)
                    await runtime.remove_pod_sandbox(sandbox.id)
        for pod in self._pods:
            for logs in glob.glob("/var/log/pods/*_%s_*" % self._name(pod)):
                shutil.rmtree(logs)
        _remove_root(self._root)
        shutil.rmtree(self.directory, ignore_errors=True)

    async def place(self, manifest: dict[str, Any]) -> None:
        path = self._manifest(manifest["metadata"]["name"])
        self._pods.add(manifest["metadata"]["name"])
        _write(os.path.join(self._root, "manifest"), json.dumps(manifest))
        os.rename(os.path.join(self._root, "manifest"), path)

    async def take_away(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._manifest(name))

    async def pods(self) -> list[dict[str, Any]]:
        url = "http://127.0.0.1:%d/pods" % self._port
        try:
            body = await asyncio.get_running_loop().run_in_executor(None, _get, url)
        except urllib.error.URLError:
            return []
        return json.loads(body).get("items") or []

    async def given(self, container_id: str) -> Given:
        async with KubeletCriClient(self._runtime) as runtime:
            config = (await runtime.container_info(container_id.rpartition("/")[2])).get("config") or {}
        return Given(
            env={v["key"]: v.get("value", "") for v in config.get("envs") or ()},
            devices=[[d["container_path"], d["host_path"], d["permissions"]] for d in config.get("devices") or ()],
            mounts=[
                [m["container_path"], m["host_path"], "ro" if m.get("readonly") else "rw"]
                for m in config.get("mounts") or ()
            ],
            annotations=config.get("annotations") or {},
            cdi_devices=[device["name"] for device in config.get("CDI_devices") or ()],
        )

    async def end_container(self, container_id: str) -> None:
        async with KubeletCriClient(self._runtime) as runtime:
            await runtime.stop_container(container_id.rpartition("/")[2], 1)

    def _name(self, pod: str) -> str:
        return "%s-%s" % (pod, self.node_name)

    def _manifest(self, name: str) -> str:
        return os.path.join(self._static_pods, name + ".json")

    @staticmethod
    def _answers(path: str) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(path) == 0


def _remove_root(path: str) -> None:
    # Unmount first, because a real kubelet bind-mounts its root directory.
    while subprocess.run(["umount", "-R", path], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        pass
    shutil.rmtree(path, ignore_errors=True)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        body: bytes = answer.read()
        return body
