"""Starts two idle pods on a node without a kubelet."""

import asyncio

from node_device_plugin.runtime.client import CriClient
from node_device_plugin.wire import cri_v1_pb2 as api


async def main():
    async with CriClient("/run/containerd/containerd.sock") as cri:
        for there in await cri.pod_sandboxes():
            await cri.remove_pod_sandbox(there.id)
        for name in ("one", "two"):
            namespaces = api.NamespaceOption(network=api.NODE, pid=api.CONTAINER, ipc=api.POD)
            security = api.LinuxSandboxSecurityContext(namespace_options=namespaces)
            pod = api.PodSandboxConfig(
                metadata=api.PodSandboxMetadata(name=name, uid=name, namespace="default"),
                linux=api.LinuxPodSandboxConfig(security_context=security),
            )
            container = api.ContainerConfig(
                metadata=api.ContainerMetadata(name="main"),
                image=api.ImageSpec(image="localhost/node-devices/busybox:lab"),
                command=["sleep", "100000"],
                linux=api.LinuxContainerConfig(
                    security_context=api.LinuxContainerSecurityContext(namespace_options=namespaces)
                ),
            )
            sandbox = await cri.run_pod_sandbox(pod)
            await cri.start_container(await cri.create_container(sandbox, container, pod))


asyncio.run(main())
