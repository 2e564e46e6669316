"""Observes a kubelet from outside, and removes the values that differ between runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from node_device_plugin.kubelet.checkpoint import Checkpoint, read_checkpoint
from node_device_plugin.kubelet.pod_resources import PodResourcesClient, PodResourcesError

from .kubelet_under_test import Given, KubeletUnderTest
from .recorder import RecordingPlugin

#: Prefix of the scenarios' resources. The observer ignores all other resources of the node.
DOMAIN = "transcripts.example.com/"
#: Prefix of annotations that a kubelet sets itself.
_OWN_ANNOTATIONS = "io.kubernetes."
#: A pod's uid in the name of the annotation with which kubelets up to 1.31 pass CDI names to runtimes.
_OF_A_POD = re.compile(r"(?<=/devicemanager_)[0-9a-f]{32}")
#: Mounts that a kubelet adds to each container.
_OWN_MOUNTS = ("/etc/hosts", "/dev/termination-log")


class Seen(NamedTuple):
    """A kubelet's observable state, normalised. A part is None if the kubelet does not answer."""

    files: dict[str, str]
    allocatable: dict[str, Any] | None
    holders: list[Any] | None
    checkpoint: Any
    pods: dict[str, Any]
    calls: dict[str, list[dict[str, Any]]]


class Observer:
    """Observes a kubelet. plugins, pods: the scenario's. by_chance: resources whose ids the kubelet picks randomly."""

    def __init__(self, kubelet: KubeletUnderTest) -> None:
        self.plugins: dict[str, RecordingPlugin] = {}
        self.pods: set[str] = set()
        self.by_chance: set[str] = set()
        self._kubelet = kubelet
        self._names: dict[str, str] = {}
        self._told: dict[str, int] = {}

    def turn_the_page(self) -> None:
        """Mark all calls up to now as reported."""
        self._told = {name: len(plugin.calls) for name, plugin in self.plugins.items()}

    async def look(self) -> Seen:
        """The current state, with the calls since ``turn_the_page``."""
        pods = await self._look_at_pods()
        allocatable: dict[str, Any] | None = None
        holders: list[Any] | None = None
        try:
            async with PodResourcesClient(self._kubelet.pod_resources_socket) as client:
                held = [holder for holder in await client.holders() if holder.resource.startswith(DOMAIN)]
                holders = [
                    [self.normalised(h.pod), h.container, _short(h.resource), self._ids(h.resource, h.device_ids)]
                    for h in held
                ]
                allocatable = {
                    _short(resource): list(ids)
                    for resource, ids in (await client.allocatable()).items()
                    if resource.startswith(DOMAIN)
                }
        except PodResourcesError:
            pass
        calls = {name: self._calls(plugin, self._told.get(name, 0)) for name, plugin in self.plugins.items()}
        return Seen(self._files(), allocatable, holders, self._checkpoint(), pods, calls)

    async def _look_at_pods(self) -> dict[str, Any]:
        pods = {}
        for item in await self._kubelet.pods():
            name = self.own_name(item)
            if name not in self.pods:
                continue
            self._names[item["metadata"]["uid"]] = name
            status = item["status"]
            pod: dict[str, Any] = {"phase": status.get("phase")}
            for key in ("reason", "message"):
                if status.get(key):
                    pod[key] = self.normalised(status[key])
            for container in status.get("containerStatuses") or ():
                if "running" not in container["state"]:
                    continue
                pod["restarts"] = container["restartCount"]
                pod["health"] = {
                    _short(entry["name"]): {device["resourceID"]: device["health"] for device in entry["resources"]}
                    for entry in container.get("allocatedResourcesStatus") or ()
                    if _short(entry["name"]) not in self.by_chance
                }
                pod["given"] = _plain(await self._kubelet.given(container["containerID"]))
            pods[name] = pod
        return pods

    def _checkpoint(self) -> Any:
        data: Checkpoint | None = read_checkpoint(self._kubelet.directory)
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

    def _files(self) -> dict[str, str]:
        """Names and kinds of the entries directly in the device plugin directory."""
        files = {}
        for entry in os.scandir(self._kubelet.directory):
            if not entry.name.startswith("."):
                kind = "folder" if entry.is_dir() else "file" if entry.is_file() else "socket"
                files[entry.name] = kind
        return dict(sorted(files.items()))

    def _calls(self, plugin: RecordingPlugin, told: int) -> list[dict[str, Any]]:
        calls = []
        for call in plugin.calls[told:]:
            call = dict(call)
            if "devices" in call:
                call["devices"] = self._ids(plugin.resource, call["devices"])
            if "error" in call:
                call["error"] = self.normalised(call["error"])
            calls.append(call)
        return calls

    def _ids(self, resource: str, ids: Sequence[str]) -> list[str] | str:
        return "%d by chance" % len(ids) if _short(resource) in self.by_chance else list(ids)

    def own_name(self, item: Mapping[str, Any]) -> str:
        """The name in the manifest of a pod from /pods."""
        name, suffix = str(item["metadata"]["name"]), "-" + self._kubelet.node_name
        return name[: -len(suffix)] if name.endswith(suffix) else name

    def normalised(self, text: str) -> str:
        """The text without uids, node name and directories."""
        for uid, name in self._names.items():
            text = text.replace(uid, "<uid of %s>" % name)
        text = text.replace("-" + self._kubelet.node_name, "").replace(self._kubelet.directory, "<device-plugins>")
        return text.replace(os.path.dirname(os.path.dirname(self._kubelet.pod_resources_socket)), "<root>")


def _short(resource: str) -> str:
    return resource[len(DOMAIN) :] if resource.startswith(DOMAIN) else resource


def _plain(given: Given) -> dict[str, Any]:
    """The non-empty parts of a container's configuration, without the kubelet's own additions."""
    mounts = [mount for mount in given.mounts if mount[0] not in _OWN_MOUNTS]
    annotations = {
        _OF_A_POD.sub("<uid>", key): value
        for key, value in given.annotations.items()
        if not key.startswith(_OWN_ANNOTATIONS)
    }
    parts = given._replace(mounts=mounts, annotations=dict(sorted(annotations.items())))._asdict()
    return {key: value for key, value in parts.items() if value}
