"""Starts a permanent container, and a job that ends with exit code 3 when the file /run/lab-job/end exists.

Runs with the plugin's Python on a node without a kubelet. Argument: the runtime's CRI socket. Prints the ids.
"""

import asyncio
import os
import sys

from node_device_plugin.runtime.client import CriClient
from node_device_plugin.wire import cri_v1_pb2 as api

LASTS = ["sleep", "100000"]
JOB = ["sh", "-c", "until [ -e /job/end ]; do sleep 0.1; done; exit 3"]


async def main():
    os.makedirs("/run/lab-job", exist_ok=True)
    namespaces = api.NamespaceOption(network=api.NODE, pid=api.CONTAINER, ipc=api.POD)
    async with CriClient(sys.argv[1]) as cri:
        for name, command in (("lasts", LASTS), ("job", JOB)):
            pod = api.PodSandboxConfig(
                metadata=api.PodSandboxMetadata(name=name, uid=name, namespace="default"),
                linux=api.LinuxPodSandboxConfig(
                    security_context=api.LinuxSandboxSecurityContext(namespace_options=namespaces)
                ),
            )
            container = api.ContainerConfig(
                metadata=api.ContainerMetadata(name="main"),
                image=api.ImageSpec(image="localhost/node-devices/busybox:lab"),
                command=command,
                mounts=[api.Mount(container_path="/job", host_path="/run/lab-job")],
                linux=api.LinuxContainerConfig(
                    security_context=api.LinuxContainerSecurityContext(namespace_options=namespaces)
                ),
            )
            identity = await cri.create_container(await cri.run_pod_sandbox(pod), container, pod)
            await cri.start_container(identity)
            print(identity)


asyncio.run(main())
