"""The floor of preparing a claim: a bare grpc.aio server that reads the claim, and gives a prepared answer.

Usage: ``python -m bench.dra_floor SOCKET KUBECONFIG CLAIM ANSWER``. CLAIM: the claim's path in the API. ANSWER: a file.
The server keeps its connection to the API server, and does nothing else meanwhile.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import sys
import urllib.parse
from typing import Any

from node_device_plugin.cluster import kubeconfig
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import dra_v1_pb2 as api
from node_device_plugin.wire import dra_v1_pb2_grpc as api_grpc


class _Bare(api_grpc.DRAPluginServicer):
    def __init__(self, access: kubeconfig.Access, claim: str, answer: bytes) -> None:
        host = urllib.parse.urlsplit(access.server).netloc
        self._connection = http.client.HTTPSConnection(host, context=access.tls)
        self._headers, self._claim = access.headers, claim
        self._answer = api.NodePrepareResourcesResponse.FromString(answer)

    async def NodePrepareResources(
        self, request: api.NodePrepareResourcesRequest, context: Any
    ) -> api.NodePrepareResourcesResponse:
        self._connection.request("GET", self._claim, headers=self._headers)
        json.loads(self._connection.getresponse().read())
        return self._answer


async def _run(socket: str, bare: _Bare) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server = grpc.aio.server()
    api_grpc.add_DRAPluginServicer_to_server(bare, server)
    server.add_insecure_port("unix:" + socket)
    await server.start()
    await stopped.wait()
    await server.stop(None)


if __name__ == "__main__":
    _socket, _kubeconfig, _claim, _path = sys.argv[1:]
    with open(_path, "rb") as file:
        _prepared = _Bare(kubeconfig.read(_kubeconfig), _claim, file.read())  # type: ignore[abstract]
    asyncio.run(_run(_socket, _prepared))
