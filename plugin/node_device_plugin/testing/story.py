"""One scenario while it runs: its plugins and pods, and what is seen after each step, in a comparable form."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from typing import Any, Awaitable, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Union

from ..kubelet_checkpoint import Checkpoint, read_checkpoint
from ..pod_resources import PodResourcesClient, PodResourcesError
from ..wire import device_plugin_v1beta1_pb2 as api
from .kubelet_under_test import Given, KubeletUnderTest
from .recorder import RecordingPlugin

#: Seconds that a step may take until what it waits for is seen; a dial of the kubelet takes 10.
_PATIENCE = 40.0
#: What the names of the scenarios' resources begin with; whatever else the node has is none of their business.
DOMAIN = "transcripts.example.com/"
#: Annotations that a kubelet sets itself.
_OWN_ANNOTATIONS = "io.kubernetes."
#: Mounts that a kubelet adds to each container.
_OWN_MOUNTS = ("/etc/hosts", "/dev/termination-log")

Answer = Callable[[List[str]], api.ContainerAllocateResponse]


class Seen(NamedTuple):
    """What can be seen of a kubelet, normalised. None: it does not answer."""

    files: Dict[str, str]
    allocatable: Optional[Dict[str, Any]]
    holders: Optional[List[Any]]
    checkpoint: Any
    pods: Dict[str, Any]
    calls: Dict[str, List[Dict[str, Any]]]


class Story:
    """Runs a scenario on a kubelet. image: what pods run. by_chance: the resources of which the kubelet picks ids."""

    def __init__(self, kubelet: KubeletUnderTest, image: str) -> None:
        self.kubelet = kubelet
        self.steps: List[Dict[str, Any]] = []
        self.by_chance: Set[str] = set()
        self._image = image
        self._token = secrets.token_hex(8)
        self._plugins: Dict[str, RecordingPlugin] = {}
        self._told: Dict[str, int] = {}
        self._pods: Set[str] = set()
        self._names: Dict[str, str] = {}
        self._before: Optional[Seen] = None

    async def plugin(
        self,
        name: str,
        resource: str,
        devices: Mapping[str, str],
        answer: Optional[Answer] = None,
        prefer: Optional[Callable[[List[str], int], List[str]]] = None,
        pre_start: bool = False,
        folder: str = "transcripts",
    ) -> RecordingPlugin:
        """A plugin that serves; folder: of its socket, empty for the top of the device plugin directory."""
        endpoint = os.path.join(folder, name + ".sock")
        plugin = RecordingPlugin(
            self.kubelet.directory, DOMAIN + resource, endpoint, devices, answer, prefer, pre_start
        )
        self._plugins[name] = plugin
        await plugin.start()
        return plugin

    async def place(self, name: str, limits: Mapping[str, int], policy: str = "Always") -> None:
        """A static pod with one container, ``main``, that asks for ``limits``."""
        self._pods.add(name)
        await self.kubelet.place(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                # The label makes it another pod than one of this name that the node has had before.
                "metadata": {"name": name, "namespace": "default", "labels": {"story": self._token}},
                "spec": {
                    "hostNetwork": True,
                    "restartPolicy": policy,
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": False,
                    "containers": [
                        {
                            "name": "main",
                            "image": self._image,
                            "imagePullPolicy": "Never",
                            "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep 86400 & wait"],
                            "env": [{"name": "OF_THE_POD", "value": "yes"}],
                            "resources": {"limits": {DOMAIN + key: str(value) for key, value in limits.items()}},
                        }
                    ],
                },
            }
        )

    async def container_id(self, pod: str) -> str:
        """The container of a pod that runs."""
        for item in await self.kubelet.pods():
            if self._own_name(item) == pod:
                return str(item["status"]["containerStatuses"][0]["containerID"])
        raise AssertionError("pod %s does not run" % pod)

    async def step(
        self,
        title: str,
        action: Optional[Awaitable[Optional[str]]] = None,
        until: Callable[[Seen], bool] = lambda seen: True,
    ) -> None:
        """Do something, wait until a thing is seen and nothing changes any more, and write down what has changed.

        Raises AssertionError where it is not seen. until: given what is seen, calls since the last step only.
        """
        step: Dict[str, Any] = {"step": title}
        outcome = await action if action is not None else None
        if outcome is not None:
            step["outcome"] = self._normalised(outcome)
        seen = await self._settled(title, until)
        for key, value in seen._asdict().items():
            before = getattr(self._before, key) if self._before is not None else None
            if key == "calls":
                if any(value.values()):
                    step[key] = {name: calls for name, calls in value.items() if calls}
            elif value != before:
                step[key] = value
        self._before = seen
        self._told = {name: len(plugin.calls) for name, plugin in self._plugins.items()}
        self.steps.append(step)

    async def end(self) -> None:
        """Stop what the scenario started."""
        for plugin in self._plugins.values():
            await plugin.stop()
        for name in self._pods:
            await self.kubelet.take_away(name)
        await self.kubelet.stop()

    async def _settled(self, title: str, until: Callable[[Seen], bool]) -> Seen:
        deadline = time.monotonic() + _PATIENCE
        seen, since = await self._look(), time.monotonic()
        while not until(seen) or time.monotonic() - since < self.kubelet.quiet:
            if time.monotonic() > deadline:
                raise AssertionError("%s: not seen in %g s; there is %r" % (title, _PATIENCE, seen))
            await asyncio.sleep(self.kubelet.quiet / 10)
            latest = await self._look()
            if latest != seen:
                seen, since = latest, time.monotonic()
        return seen

    async def _look(self) -> Seen:
        pods = await self._look_at_pods()
        allocatable: Optional[Dict[str, Any]] = None
        holders: Optional[List[Any]] = None
        try:
            async with PodResourcesClient(self.kubelet.pod_resources_socket) as client:
                held = [holder for holder in await client.holders() if holder.resource.startswith(DOMAIN)]
                holders = [
                    [self._normalised(h.pod), h.container, _short(h.resource), self._ids(h.resource, h.device_ids)]
                    for h in held
                ]
                allocatable = {
                    _short(resource): list(ids)
                    for resource, ids in (await client.allocatable()).items()
                    if resource.startswith(DOMAIN)
                }
        except PodResourcesError:
            pass
        calls = {name: self._calls(plugin, self._told.get(name, 0)) for name, plugin in self._plugins.items()}
        return Seen(self._files(), allocatable, holders, self._checkpoint(), pods, calls)

    async def _look_at_pods(self) -> Dict[str, Any]:
        pods = {}
        for item in await self.kubelet.pods():
            name = self._own_name(item)
            if name not in self._pods:
                continue
            self._names[item["metadata"]["uid"]] = name
            status = item["status"]
            pod: Dict[str, Any] = {"phase": status.get("phase")}
            for key in ("reason", "message"):
                if status.get(key):
                    pod[key] = self._normalised(status[key])
            for container in status.get("containerStatuses") or ():
                if "running" not in container["state"]:
                    continue
                pod["restarts"] = container["restartCount"]
                pod["health"] = {
                    _short(entry["name"]): {device["resourceID"]: device["health"] for device in entry["resources"]}
                    for entry in container.get("allocatedResourcesStatus") or ()
                    if _short(entry["name"]) not in self.by_chance
                }
                pod["given"] = _plain(await self.kubelet.given(container["containerID"]))
            pods[name] = pod
        return pods

    def _checkpoint(self) -> Any:
        data: Optional[Checkpoint] = read_checkpoint(self.kubelet.directory)
        if data is None:
            return None
        return {
            "registered": {_short(name): list(ids) for name, ids in sorted(data.registered.items())},
            "pod_devices": sorted(
                [
                    self._names.get(entry.pod_uid, "?"),
                    entry.container,
                    _short(entry.resource),
                    self._ids(entry.resource, entry.device_ids),
                    "answer of %d bytes" % len(entry.allocate_response),
                ]
                for entry in data.pod_devices
            ),
        }

    def _files(self) -> Dict[str, str]:
        """What lies at the top of the device plugin directory."""
        files = {}
        for entry in os.scandir(self.kubelet.directory):
            if not entry.name.startswith("."):
                kind = "folder" if entry.is_dir() else "file" if entry.is_file() else "socket"
                files[entry.name] = kind
        return dict(sorted(files.items()))

    def _calls(self, plugin: RecordingPlugin, told: int) -> List[Dict[str, Any]]:
        calls = []
        for call in plugin.calls[told:]:
            call = dict(call)
            if "devices" in call:
                call["devices"] = self._ids(plugin.resource, call["devices"])
            calls.append(call)
        return calls

    def _ids(self, resource: str, ids: Sequence[str]) -> Union[List[str], str]:
        return "%d by chance" % len(ids) if _short(resource) in self.by_chance else list(ids)

    def _own_name(self, item: Mapping[str, Any]) -> str:
        name, suffix = str(item["metadata"]["name"]), "-" + self.kubelet.node_name
        return name[: -len(suffix)] if name.endswith(suffix) else name

    def _normalised(self, text: str) -> str:
        for uid, name in self._names.items():
            text = text.replace(uid, "<uid of %s>" % name)
        return text.replace("-" + self.kubelet.node_name, "").replace(self.kubelet.directory, "<device-plugins>")


def _short(resource: str) -> str:
    return resource[len(DOMAIN) :] if resource.startswith(DOMAIN) else resource


def _plain(given: Given) -> Dict[str, Any]:
    """What came from plugins and the pod, without what each kubelet adds by itself; empty parts left out."""
    mounts = [mount for mount in given.mounts if mount[0] not in _OWN_MOUNTS]
    annotations = {key: value for key, value in given.annotations.items() if not key.startswith(_OWN_ANNOTATIONS)}
    parts = given._replace(mounts=mounts, annotations=dict(sorted(annotations.items())))._asdict()
    return {key: value for key, value in parts.items() if value}
