"""A node as a verification meets it: its kubelet's lists, its runtime's containers, and proofs that end well."""

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from node_device_plugin.cluster.pods import Slots
from node_device_plugin.declaration import Device, Resource, parse_configuration
from node_device_plugin.kubelet import queries as kubelet_queries
from node_device_plugin.kubelet.pod_resources import Holder, Listing
from node_device_plugin.runtime import queries as runtime_queries
from node_device_plugin.runtime.errors import CriError
from node_device_plugin.status_api import client
from node_device_plugin.verification import device_plugins, listed, looking, proof_by_kubelet, without_lists
from node_device_plugin.verification.looking import Outcome
from node_device_plugin.verification.report import Report
from node_device_plugin.verification.scope import Scope
from node_device_plugin.verification.verify import verify
from node_device_plugin.wire import cri_v1_pb2 as cri

#: The module, whose name in its package is its function.
VERIFY = importlib.import_module("node_device_plugin.verification.verify")


class FakeNode:
    """A kubelet's lists, a runtime's containers, and proofs that see what they ask for.

    shows: pid of a container to what it lacks of its devices. slots: how many are free, of 10.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path, allocatable: Mapping[str, Sequence[str]]) -> None:
        self.path = path
        self.allocatable = {name: tuple(ids) for name, ids in allocatable.items()}
        #: Resources that the kubelet knows, and that its checkpoint misses until its next write.
        self.unwritten: set[str] = set()
        self.holders: list[Holder] = []
        #: What is held, as ``holders`` tells it.
        self.held: list[kubelet_queries.HeldDevice] = []
        self.running: list[cri.Container] = []
        self.shows: dict[int, list[str]] = {}
        self.slots: Any = Slots(10, 10)
        self.asked: list[str] = []
        self.at_once = self.most_at_once = self.lists = 0
        self.outcome: Optional[Outcome] = None
        #: What the plugin says of its resources; None without a plugin.
        self.plugin: Optional[dict[str, Any]] = None
        self.cri_error: Optional[CriError] = None
        #: Manifest to how often it is still asked for once the manifest is gone; None is for ever.
        self.static_pods: dict[Path, Optional[int]] = {}
        monkeypatch.setattr(kubelet_queries, "listing", self._listing)
        monkeypatch.setattr(kubelet_queries, "holders", self._holders)
        monkeypatch.setattr(runtime_queries, "runtime", self._runtime)
        monkeypatch.setattr(client, "ask", self._ask_plugin)
        monkeypatch.setattr(proof_by_kubelet, "prove", self._prove)
        monkeypatch.setattr(proof_by_kubelet, "PodResourcesClient", lambda _socket: PodResources(self))
        monkeypatch.setattr(looking, "look", self._look)
        for module in (VERIFY, listed, without_lists):
            monkeypatch.setattr(module, "CriClient", lambda _socket: self)
        monkeypatch.setattr(device_plugins, "SlotCounter", lambda *_: self)

    def holds(
        self,
        pod: str,
        lacks: Sequence[str],
        *ids: str,
        resource: str = "example.com/lamp",
        namespace: str = "default",
    ) -> None:
        """A pod whose container runs, holds these and shows them but for what it lacks."""
        self.holders.append(Holder(namespace, pod, "main", resource, ids))
        labels = {"pod.namespace": namespace, "pod.name": pod, "container.name": "main"}
        self.running.append(
            cri.Container(
                id=str(len(self.running) + 100),
                state=cri.CONTAINER_RUNNING,
                labels={"io.kubernetes." + label: value for label, value in labels.items()},
            )
        )
        self.shows[int(self.running[-1].id)] = list(lacks)

    def left_over(self, *ids: str, stays: Optional[int] = 0) -> Path:
        """The manifest of a proof that was killed, and its pod; stays: see static_pods."""
        manifest = self.path / "node-device-proof-0badcafe.json"
        manifest.touch()
        self.holds("node-device-proof-0badcafe-node1", [], *ids, namespace="kube-system")
        self.static_pods[manifest] = stays
        return manifest

    def sync(self) -> None:
        """Let go of the static pods whose manifests are gone."""
        for manifest, stays in list(self.static_pods.items()):
            if manifest.exists() or stays is None:
                continue
            self.static_pods[manifest] = stays - 1
            if not stays:
                del self.static_pods[manifest]
                self.holders = [each for each in self.holders if not each.pod.startswith(manifest.stem)]

    async def verify(self, *resources: Mapping[str, Any], **scope: Any) -> Report:
        """What is found of these, as the command does it. scope: other than the defaults here."""
        configuration = parse_configuration({"resources": list(resources)})
        defaults: dict[str, Any] = {
            "runtime_socket": "/none.sock",
            "kubelet_root": str(self.path),
            "static_pod_dir": str(self.path),
            "kubelet_kubeconfig": "/kubelet.conf",
            "max_pods": 10,
            "image": None,
            "devices": "one",
            "unproven_only": False,
            "record": None,
            "timeout": 0.0,
        }
        return await verify(configuration, Scope(**{**defaults, **scope}))

    # What the code under test asks: the kubelet, then the runtime.

    async def _listing(self, *_: object) -> Listing:
        self.lists += 1
        # Like the kubelet, list no resource without devices.
        listed = {name: ids for name, ids in self.allocatable.items() if ids}
        checkpointed = frozenset(self.allocatable) - self.unwritten
        return Listing(3, self.holders, allocatable=listed, checkpointed=checkpointed)

    async def _holders(self, *_: object) -> kubelet_queries.Holders:
        return kubelet_queries.Holders("kubelet", tuple(self.held))

    async def _ask_plugin(self, *_: object) -> dict[str, Any]:
        if self.plugin is None:
            raise client.NotAnswering("no plugin answers")
        return self.plugin

    async def count(self, pods: int) -> Any:
        assert pods == 3
        return self.slots

    async def _runtime(self, _socket: str) -> dict[str, Any]:
        return {"name": "containerd", "version": "2.1.9", "cdi": {"enabled": True}, "sandbox_image": "pause"}

    async def __aenter__(self) -> "FakeNode":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def containers(self) -> list[cri.Container]:
        if self.cri_error:
            raise self.cri_error
        return self.running

    async def pod_sandboxes(self, _labels: object) -> list[cri.PodSandbox]:
        """Those of static pods end with what they hold."""
        return []

    async def container_pid(self, container: str) -> int:
        return int(container)

    async def container_status(self, container: str) -> cri.ContainerStatus:
        return cri.ContainerStatus(id=container)

    async def image(self, _name: str) -> None:
        """The node has none but its own."""

    async def _look(
        self, pid: int, _annotations: object, resource: Resource, devices: Sequence[Device], settle: float
    ) -> Outcome:
        if self.shows[pid]:
            return Outcome((), tuple(self.shows[pid]))
        return Outcome(tuple(device.id for device in devices), ())

    async def _prove(self, resource: Resource, shares: int, *_: object) -> Outcome:
        self.asked.append("%s %d" % (resource.name, shares))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return self.outcome or Outcome(tuple(device.id for device in resource.devices[:shares]), ())


class PodResources:
    """The kubelet's list of who holds what, for those who ask for it alone."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node

    async def __aenter__(self) -> "PodResources":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def holders(self) -> list[Holder]:
        self._node.sync()
        return self._node.holders
