"""A recording plugin that the kubelet discovers in ``plugins_registry``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import plugin_registration_v1_pb2 as registry
from node_device_plugin.wire import plugin_registration_v1_pb2_grpc as registry_grpc

from .plugin_watcher import DIRECTORY
from .recorder import RecordingPlugin


class RegistryPlugin(RecordingPlugin, registry_grpc.RegistrationServicer):
    """Both services on one socket. root: the kubelet's root directory. versions: the plugin's API versions.

    If a kubelet refuses the plugin, it retries at growing intervals. Repeated calls are recorded once. A kubelet sends
    its notification and opens its stream in random order. The record always has the notification first.
    """

    def __init__(
        self, root: str, resource: str, name: str, devices: Mapping[str, str], versions: list[str], kind: str
    ) -> None:
        super().__init__(os.path.join(root, DIRECTORY), resource, name + ".sock", devices)
        self._versions = versions
        self._kind = kind

    @property
    def socket(self) -> str:
        """The socket's path."""
        return os.path.join(self.directory, self.endpoint)

    async def GetInfo(self, request: registry.InfoRequest, context: Any) -> registry.PluginInfo:
        self._tell({"call": "GetInfo"})
        return registry.PluginInfo(
            type=self._kind, name=self.resource, endpoint=self.socket, supported_versions=self._versions
        )

    async def NotifyRegistrationStatus(
        self, request: registry.RegistrationStatus, context: Any
    ) -> registry.RegistrationStatusResponse:
        self._tell(
            {"call": "NotifyRegistrationStatus", "registered": request.plugin_registered, "error": request.error}
        )
        return registry.RegistrationStatusResponse()

    def _tell(self, call: Any) -> None:
        if call in self.calls[-2:]:
            return
        stream_is_first = call.get("registered") and self.calls[-1:] == [{"call": "ListAndWatch"}]
        self.calls.insert(len(self.calls) - 1 if stream_is_first else len(self.calls), call)

    def _add_services(self, server: grpc.aio.Server) -> None:
        super()._add_services(server)
        registry_grpc.add_RegistrationServicer_to_server(self, server)
