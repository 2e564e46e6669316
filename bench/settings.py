"""The environment of a measurement: a directory, device nodes, a configuration, and a stand-in kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Callable

from kubelet_stand_in import StandInKubelet
from node_device_plugin.declaration.configuration_file import load
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api


class Settings:
    """A configuration of ``resources`` resources with ``devices`` devices each, in a separate directory.

    The device nodes are links to /dev/null, because creating links does not require root. more: of the configuration.
    """

    def __init__(self, directory: str, resources: int, devices: int, more: Mapping[str, Any]) -> None:
        self.directory = directory
        self.resources = ["example.com/dev-%d" % number for number in range(resources)]
        self.devices = devices
        self.device_plugin_dir = os.path.join(directory, "dp")
        self.log = os.path.join(directory, "log")
        self.config = os.path.join(directory, "config.yaml")
        self.answers = os.path.join(directory, "answers")
        os.makedirs(os.path.join(directory, "dev"))
        for path in (self.node(resource, device) for resource in range(resources) for device in range(devices)):
            os.symlink("/dev/null", path)
        with open(self.config, "w") as file:
            json.dump({**self._configuration(), **more}, file, indent=1)
        self._write_answers()

    def node(self, resource: int, device: int) -> str:
        """Return the path of a device's node."""
        return os.path.join(self.directory, "dev", "%d-%d" % (resource, device))

    def id(self, resource: int, device: int) -> str:
        """Return a device's id."""
        return "device-%d-%d" % (resource, device)

    def places(self) -> dict[str, Any]:
        """Return the configuration's directories. All are inside the directory, because the plugin writes into them."""
        return {
            "kubelet_device_plugin_dir": self.device_plugin_dir,
            "kubelet_root_dir": self.directory,
            "dynamic_cdi_dir": os.path.join(self.directory, "cdi"),
            "cdi_spec_dirs": [],
        }

    def _configuration(self) -> dict[str, Any]:
        return {
            **self.places(),
            "resources": [
                {
                    "name": name,
                    "env": {"DEV_%d_{index}" % number: "{path}"},
                    "devices": [
                        {
                            "id": self.id(number, device),
                            "nodes": [{"path": "/dev/bench-%d" % device, "host_path": self.node(number, device)}],
                        }
                        for device in range(self.devices)
                    ],
                }
                for number, name in enumerate(self.resources)
            ],
        }

    def _write_answers(self) -> None:
        """Write the floor's answers: the plugin's answer to Allocate for the first device, and each resource's list."""
        # Import the plugin's internals only here, because no other part of the benchmark needs them.
        from node_device_plugin.devices.table import DeviceTable
        from node_device_plugin.kubelet.device_plugin.allocation import allocate
        from node_device_plugin.kubelet.device_plugin.device_list import DeviceList

        resource = load(self.config).configuration.resources[0]
        table = DeviceTable(resource)
        table.update({device.id: None for device in resource.devices})
        answer = api.AllocateResponse(container_responses=[allocate(DeviceList(table), [self.id(0, 0)])])
        listed: list[str] = []
        for number in range(len(self.resources)):
            devices = [api.Device(ID=self.id(number, device), health="Healthy") for device in range(self.devices)]
            listed.append(api.ListAndWatchResponse(devices=devices).SerializeToString().hex())
        with open(self.answers, "w") as file:
            json.dump({"allocate": answer.SerializeToString().hex(), "lists": listed}, file)

    def kubelet(self) -> StandInKubelet:
        """Return a kubelet for these settings, which runs inside an ``async with`` block."""
        return StandInKubelet(self.device_plugin_dir)

    def log_end(self) -> str:
        """Return the last lines of the log."""
        with open(self.log, errors="replace") as log:
            return "".join(log.readlines()[-30:])

    def any_connected(self, kubelet: StandInKubelet) -> bool:
        """Return whether any resource is connected."""
        endpoints = [kubelet.manager.endpoints.get(name) for name in self.resources]
        return any(endpoint is not None and endpoint.stopped_at is None for endpoint in endpoints)

    def all_connected(self, kubelet: StandInKubelet) -> bool:
        """Return whether every resource is registered and has sent its devices."""
        for name in self.resources:
            endpoint = kubelet.manager.endpoints.get(name)
            if endpoint is None or endpoint.stopped_at is not None or not endpoint.has_sent:
                return False
        return True


@contextlib.contextmanager
def settings(
    resources: int, devices: int, more: Mapping[str, Any] = MappingProxyType({}), place: str | None = None
) -> Iterator[Settings]:
    """Yield Settings in a temporary directory, whose short path leaves room for socket names.

    more: of the plugin's configuration. place: the parent of the directory.
    """
    directory = tempfile.mkdtemp(prefix="bench-", dir=place)
    try:
        yield Settings(directory, resources, devices, more)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def until(condition: Callable[[], bool], timeout: float = 30.0) -> float:
    """Check a condition every millisecond until it is true. Returns the monotonic time. Raises RuntimeError."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("the expected state was not reached in %g s" % timeout)
        await asyncio.sleep(0.001)
    return time.monotonic()
