"""The proof on a node without a kubelet: a container requests devices from the runtime by CDI name.

No kubelet calls Allocate, so the proof does not cover variables and annotations from Allocate. Do not run the proof on
a node with a kubelet, because a kubelet ends every sandbox that it did not create.
"""

from __future__ import annotations

import contextlib

from ..declaration import Resource
from ..devices.health import CdiNames, problem_of
from ..runtime.client import CriClient
from ..runtime.errors import CriError
from ..wire import cri_v1_pb2 as api
from . import static_pod
from .looking import look
from .report import Outcome


async def prove(resource: Resource, cri: CriClient, image: str, names: CdiNames) -> Outcome:
    """Start a container with the healthy devices of ``resource``, inspect the container, and remove it.

    Uses at most container_limit devices, because the paths of more devices may collide in the container.
    """
    there = [d for d in resource.devices if resource.cdi_names(d) and problem_of(resource, d, names) is None]
    devices = there[: resource.container_limit]
    name = static_pod.new_name()
    namespaces = api.NamespaceOption(network=api.NODE, pid=api.CONTAINER, ipc=api.POD)
    pod = api.PodSandboxConfig(
        metadata=api.PodSandboxMetadata(name=name, uid=name, namespace=static_pod.NAMESPACE),
        linux=api.LinuxPodSandboxConfig(security_context=api.LinuxSandboxSecurityContext(namespace_options=namespaces)),
    )
    container = api.ContainerConfig(
        metadata=api.ContainerMetadata(name=static_pod.CONTAINER),
        image=api.ImageSpec(image=image),
        linux=api.LinuxContainerConfig(
            security_context=api.LinuxContainerSecurityContext(namespace_options=namespaces)
        ),
        CDI_devices=[api.CDIDevice(name=name) for name in resource.cdi_names(*devices)],
    )
    try:
        sandbox = await cri.run_pod_sandbox(pod)
        try:
            started = await cri.create_container(sandbox, container, pod)
            await cri.start_container(started)
            pid = await cri.container_pid(started)
            if pid is None:
                return Outcome(mismatches=("expected a running container, but the container has ended",))
            return await look(pid, {}, resource._replace(env={}, annotations={}), devices)
        finally:
            with contextlib.suppress(CriError):
                await cri.stop_pod_sandbox(sandbox)
            await cri.remove_pod_sandbox(sandbox)
    except (CriError, ProcessLookupError) as error:
        return Outcome(mismatches=(str(error),))
