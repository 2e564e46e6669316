"""Registers any API's socket with the kubelet's plugin watcher, which finds sockets in ``plugins_registry``.

The kubelet (k8s.io/kubernetes, pkg/kubelet/pluginmanager) watches the directory and calls GetInfo on a new socket. It
then calls the API at the endpoint in the answer, and reports the outcome. A restarted kubelet finds an existing socket
again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Sequence
from typing import Any, Callable

from ..support.channels import grpc
from ..support.sockets import remove_sockets, socket_name
from ..wire import plugin_registration_v1_pb2 as registry
from ..wire import plugin_registration_v1_pb2_grpc as registry_grpc

#: The directory below the kubelet's root directory.
DIRECTORY = "plugins_registry"
_PREFIX = "node-device-plugin-"


class PluginWatcher(registry_grpc.RegistrationServicer):
    """Answers the plugin watcher for one plugin.

    kind: the API's name, such as ``DevicePlugin``. name: the plugin's, such as a resource. endpoint: the path of the
    socket that serves the API. versions: of the API. refused: called with the kubelet's error; the kubelet then retries
    with growing pauses.
    """

    def __init__(
        self, kind: str, name: str, endpoint: str, versions: Sequence[str], refused: Callable[[str], None]
    ) -> None:
        self._info = registry.PluginInfo(type=kind, name=name, endpoint=endpoint, supported_versions=versions)
        self._refused = refused
        #: Set when the kubelet has registered the plugin.
        self.registered = asyncio.Event()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Answer on a server, which may serve the API, too."""
        registry_grpc.add_RegistrationServicer_to_server(self, server)

    async def GetInfo(self, request: registry.InfoRequest, context: Any) -> registry.PluginInfo:
        """Describe the plugin. Source: k8s.io/kubelet, pkg/apis/pluginregistration/v1, PluginInfo."""
        return self._info

    async def NotifyRegistrationStatus(
        self, request: registry.RegistrationStatus, context: Any
    ) -> registry.RegistrationStatusResponse:
        """Handle the outcome."""
        if request.plugin_registered:
            self.registered.set()
        else:
            self._refused(request.error)
        return registry.RegistrationStatusResponse()


def socket_path(root: str, name: str, instance: str = "") -> str:
    """The path of a plugin's socket. root: the kubelet's root directory (its --root-dir).

    The path is fixed, so that the kubelet sees the old socket disappear before the new one appears.
    instance: six characters for a path that only one instance has. From 1.37 on, the kubelet
    distinguishes sockets.
    """
    tail = instance or hashlib.sha256(name.encode()).hexdigest()[:6]
    return os.path.join(root, DIRECTORY, _PREFIX + socket_name(name, tail))


def remove_stale_sockets(root: str) -> None:
    """Remove the sockets of a killed instance."""
    remove_sockets(os.path.join(root, DIRECTORY), _PREFIX)
