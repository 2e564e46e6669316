"""Runs one scenario, and records the normalised state after each step."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Callable

from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

from .kubelet_under_test import KubeletUnderTest
from .observation import DOMAIN, Observer, Seen
from .recorder import RecordingPlugin
from .registry_recorder import RegistryPlugin

#: Timeout in seconds for a step's condition. A kubelet's dial takes up to 10 seconds.
_TIMEOUT = 40.0
Answer = Callable[[list[str]], api.ContainerAllocateResponse]


class Story:
    """Runs a scenario on a kubelet. image: the pods' image. seen: the observer."""

    def __init__(self, kubelet: KubeletUnderTest, image: str) -> None:
        self.kubelet = kubelet
        self.steps: list[dict[str, Any]] = []
        self.seen = Observer(kubelet)
        self._image = image
        self._token = secrets.token_hex(8)
        self._before: Seen | None = None

    async def plugin(
        self,
        name: str,
        resource: str,
        devices: Mapping[str, str],
        answer: Answer | None = None,
        prefer: Callable[[list[str], int], list[str]] | None = None,
        pre_start: bool = False,
        folder: str = "transcripts",
    ) -> RecordingPlugin:
        """Create and start a plugin. folder: its socket's directory; empty for the device plugin directory itself."""
        endpoint = os.path.join(folder, name + ".sock")
        plugin = RecordingPlugin(
            self.kubelet.directory, DOMAIN + resource, endpoint, devices, answer, prefer, pre_start
        )
        self.seen.plugins[name] = plugin
        await plugin.start()
        return plugin

    async def found_plugin(
        self, name: str, resource: str, versions: Sequence[str] = ("v1beta1",), kind: str = "DevicePlugin"
    ) -> RegistryPlugin:
        """Create a plugin with one healthy device. After the caller starts the plugin, the kubelet discovers it."""
        devices = {name + "0": "Healthy"}
        root = os.path.dirname(os.path.dirname(self.kubelet.pod_resources_socket))
        plugin = RegistryPlugin(root, DOMAIN + resource, name, devices, list(versions), kind)
        self.seen.plugins[name] = plugin
        return plugin

    async def place(self, name: str, limits: Mapping[str, int], policy: str = "Always") -> None:
        """Create a static pod with one container, ``main``, that requests ``limits``."""
        self.seen.pods.add(name)
        await self.kubelet.place(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                # The label changes the pod's uid, so that no earlier pod of that name has the same uid.
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
        """The container id of a running pod."""
        for item in await self.kubelet.pods():
            if self.seen.own_name(item) == pod:
                return str(item["status"]["containerStatuses"][0]["containerID"])
        raise AssertionError("pod %s does not run" % pod)

    async def step(
        self,
        title: str,
        action: Awaitable[str | None] | None = None,
        until: Callable[[Seen], bool] = lambda seen: True,
    ) -> None:
        """Await ``action``, wait until ``until`` holds and the state is stable, and record the changes.

        Raises AssertionError on a timeout. until: condition for the state, with the calls since the last step.
        """
        step: dict[str, Any] = {"step": title}
        outcome = await action if action is not None else None
        if outcome is not None:
            step["outcome"] = self.seen.normalised(outcome)
        seen = await self._settled(title, until)
        for key, value in seen._asdict().items():
            before = getattr(self._before, key) if self._before is not None else None
            if key == "calls":
                if any(value.values()):
                    step[key] = {name: calls for name, calls in value.items() if calls}
            elif value != before:
                step[key] = value
        self._before = seen
        self.seen.turn_the_page()
        self.steps.append(step)

    async def end(self) -> None:
        """Stop the scenario's plugins, pods and kubelet."""
        for plugin in self.seen.plugins.values():
            await plugin.stop()
        for name in self.seen.pods:
            await self.kubelet.take_away(name)
        await self.kubelet.stop()

    async def _settled(self, title: str, until: Callable[[Seen], bool]) -> Seen:
        deadline = time.monotonic() + _TIMEOUT
        seen, since = await self.seen.look(), time.monotonic()
        while not until(seen) or time.monotonic() - since < self.kubelet.quiet:
            if time.monotonic() > deadline:
                raise AssertionError("%s: not seen in %g s; the last state is %r" % (title, _TIMEOUT, seen))
            await asyncio.sleep(self.kubelet.quiet / 10)
            latest = await self.seen.look()
            if latest != seen:
                seen, since = latest, time.monotonic()
        return seen
