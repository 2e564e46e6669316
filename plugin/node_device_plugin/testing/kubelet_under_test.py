"""A kubelet as scenarios see it: one in this process, or any command that is a kubelet, on a node with a runtime."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
import urllib.error
import urllib.request
from typing import Any, Dict, List, NamedTuple, Optional, Protocol

from ..cri import CriClient
from .memory_runtime import MemoryRuntime
from .pods import parse_pod
from .pods_http import PodsHttpServer
from .stand_in import StandInKubelet


class Given(NamedTuple):
    """What the runtime was asked for on behalf of a container, as far as plugins have a say in it."""

    env: Dict[str, str]
    devices: List[List[str]]
    mounts: List[List[str]]
    annotations: Dict[str, str]
    cdi_devices: List[str]


class KubeletUnderTest(Protocol):
    """What a scenario needs of a kubelet. quiet: seconds without any change after which nothing more will come."""

    directory: str
    pod_resources_socket: str
    node_name: str
    quiet: float

    async def fresh(self) -> None:
        """Start as on a new node: no checkpoint, no pods."""

    async def start(self) -> None:
        """Start, and wait until plugins can register."""

    async def stop(self) -> None:
        """Stop as systemd does."""

    async def place(self, manifest: Dict[str, Any]) -> None:
        """Make a static pod."""

    async def take_away(self, name: str) -> None:
        """Remove a static pod's manifest."""

    async def pods(self) -> List[Dict[str, Any]]:
        """The items of the kubelet's /pods."""

    async def given(self, container_id: str) -> Given:
        """What a container was created with."""

    async def end_container(self, container_id: str) -> None:
        """Let a container end, so that the kubelet has to start it anew."""


class InProcess:
    """The stand-in in this process, with a runtime that runs nothing. folder: an empty one."""

    quiet = 0.06
    node_name = "node"

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lives = 0

    async def fresh(self) -> None:
        self._lives += 1
        root = os.path.join(self._folder, str(self._lives))
        self.directory = os.path.join(root, "device-plugins")
        self._runtime = MemoryRuntime()
        self._kubelet = StandInKubelet(
            self.directory, runtime=self._runtime, node_name=self.node_name, dial_timeout=0.3
        )
        self.pod_resources_socket = self._kubelet.pod_resources_socket
        await self._kubelet.start()

    async def start(self) -> None:
        await self._kubelet.start()
        await self._kubelet.pods.remove_strangers()

    async def stop(self) -> None:
        await self._kubelet.stop()

    async def place(self, manifest: Dict[str, Any]) -> None:
        pod = parse_pod(manifest, "", self.node_name)
        self._kubelet.source[pod.uid] = pod
        await self._kubelet.pods.add(pod)

    async def take_away(self, name: str) -> None:
        for pod in list(self._kubelet.source.values()):
            if pod.name == "%s-%s" % (name, self.node_name):
                await self._kubelet.remove_pod(pod.uid)

    async def pods(self) -> List[Dict[str, Any]]:
        items: List[Dict[str, Any]] = PodsHttpServer(self._kubelet, 0).pod_list()["items"]
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
    """Any kubelet command on this node, as root; nothing else on the node may be one meanwhile.

    command: e.g. /usr/local/bin/kubelet. runtime: path of the container runtime's socket. log: a file for its output.
    """

    quiet = 2.5
    #: Fixed in every kubelet, whatever its root directory.
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
        self._process: Optional[asyncio.subprocess.Process] = None

    async def fresh(self) -> None:
        await self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.rmtree(self._root, ignore_errors=True)
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
        raise RuntimeError("the kubelet does not serve; its log is %s" % self._log)

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()

    async def close(self) -> None:
        """Stop it, and leave no pod, file or folder."""
        await self.stop()
        async with CriClient(self._runtime) as runtime:
            for sandbox in await runtime.pod_sandboxes():
                if sandbox.metadata.name.endswith("-" + self.node_name):
                    await runtime.stop_pod_sandbox(sandbox.id)
                    await runtime.remove_pod_sandbox(sandbox.id)
        shutil.rmtree(self._root, ignore_errors=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    async def place(self, manifest: Dict[str, Any]) -> None:
        path = self._manifest(manifest["metadata"]["name"])
        _write(os.path.join(self._root, "manifest"), json.dumps(manifest))
        os.rename(os.path.join(self._root, "manifest"), path)

    async def take_away(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._manifest(name))

    async def pods(self) -> List[Dict[str, Any]]:
        url = "http://127.0.0.1:%d/pods" % self._port
        try:
            body = await asyncio.get_running_loop().run_in_executor(None, _get, url)
        except urllib.error.URLError:
            return []
        return json.loads(body).get("items") or []

    async def given(self, container_id: str) -> Given:
        async with CriClient(self._runtime) as runtime:
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
        async with CriClient(self._runtime) as runtime:
            await runtime.stop_container(container_id.rpartition("/")[2], 1)

    def _manifest(self, name: str) -> str:
        return os.path.join(self._static_pods, name + ".json")

    @staticmethod
    def _answers(path: str) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(path) == 0


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        body: bytes = answer.read()
        return body
