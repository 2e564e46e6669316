"""Judges resources without the kubelet's lists: they are pending. Without a kubelet, the runtime proves its part."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from ..declaration import Resource
from ..devices.health import CdiNames, problem_of
from ..kubelet.losses import Loss, Offer
from ..runtime.client import CriClient
from ..runtime.errors import CriError
from ..wire import cri_v1_pb2 as api
from . import static_pod
from .expected import Expected
from .looking import look
from .report import FAILED, PENDING, Outcome, Row
from .scope import Runtime, Scope


class NoLists:
    """A kubelet whose lists are missing.

    problem: a sentence for the report. why: text for each row. kubelet: the kubelet's state for the report.
    """

    warnings: Sequence[str] = ()

    def __init__(self, problem: str, why: str, kubelet: str) -> None:
        self.problem, self._why, self.kubelet = problem, why, kubelet

    def is_settled(self, wanted: Sequence[Expected]) -> bool:
        return False

    def offer(self, wanted: Expected) -> Offer:
        return wanted.offer(None)

    def judge(self, wanted: Expected, lost: Sequence[Loss]) -> Row:
        row = Row(wanted.resource.name, len(wanted.ids), 0, (), PENDING, self._why, absent=wanted.absent)
        return row._replace(state=FAILED, detail="; ".join(loss.text for loss in lost)) if lost else row

    async def prove(self, resources: Sequence[Resource], rows: Mapping[str, Row]) -> Mapping[str, Outcome]:
        # Do not prove by the runtime here: a kubelet that recovers would end our unknown sandboxes.
        return {}


class NoKubelet(NoLists):
    """A node without a kubelet."""

    def __init__(self, runtime: Runtime, scope: Scope, names: CdiNames) -> None:
        super().__init__("", "no kubelet yet", "none")
        self._runtime, self._scope, self._names = runtime, scope, names

    def is_settled(self, wanted: Sequence[Expected]) -> bool:
        return True

    async def prove(self, resources: Sequence[Resource], rows: Mapping[str, Row]) -> Mapping[str, Outcome]:
        image = self._runtime.image
        if image is None or not self._runtime.gives_cdi:
            return {}
        async with CriClient(self._scope.runtime_socket) as cri:
            proofs = {r.name: prove_by_runtime(r, cri, image, self._names) for r in resources if r.uses_cdi}
            return dict(zip(proofs, await asyncio.gather(*proofs.values())))


async def prove_by_runtime(resource: Resource, cri: CriClient, image: str, names: CdiNames) -> Outcome:
    """Start a container with the healthy devices of ``resource``, inspect the container, and remove it.

    No kubelet calls Allocate, so the proof does not cover variables and annotations from Allocate. Do not run the proof
    on a node with a kubelet, because a kubelet ends every sandbox that it did not create.

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
