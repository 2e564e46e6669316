"""Judges and proves resources through the kubelet's device plugin API."""

from __future__ import annotations

import os

from ..declaration import Configuration, Resource
from ..kubelet import queries as kubelet_queries
from ..kubelet.checkpoint import CheckpointError
from ..kubelet.pod_resources import Listing, PodResourcesError
from ..runtime.client import CriClient
from . import proof_by_kubelet
from .listed import Listed, free_shares, held_by
from .report import Outcome
from .scope import Runtime, Scope
from .slots import NEEDED, SlotCounter


class DevicePlugins(Listed):
    """The device plugin API. New pods are static pods. listing: the kubelet's lists."""

    where = "with the kubelet"

    def __init__(self, listing: Listing, configuration: Configuration, runtime: Runtime, scope: Scope) -> None:
        super().__init__(listing, scope)
        self._configuration = configuration
        self._runtime = runtime
        self._slots = SlotCounter(scope.kubelet_kubeconfig, scope.max_pods)

    async def by_new_pod(self, resource: Resource, cri: CriClient) -> Outcome:
        directory, image = self._scope.static_pod_dir, self._runtime.image
        if image is None:
            return Outcome(unproven=self._runtime.no_image)
        if not self._scope.makes_static_pods:
            return Outcome(unproven="static pods are turned off (--no-static-pods)")
        if directory is None:
            return Outcome(
                unproven="the proof's pod needs a place: set --static-pod-dir to the kubelet's staticPodPath"
            )
        if not directory:
            return Outcome(unproven="the kubelet runs no static pods: set staticPodPath in its configuration")
        if not os.path.isdir(directory):
            return Outcome(unproven=f"the kubelet's static pod directory {directory} does not exist")
        try:
            # Count the free shares again, because a static pod that requests more than is free ends another pod.
            now = await kubelet_queries.listing(self._scope.kubelet_root, self._configuration.kubelet_device_plugin_dir)
        except (PodResourcesError, OSError, CheckpointError) as error:
            return Outcome(unproven=str(error))
        shares = free_shares(resource, now, self._scope)
        if not shares:
            return Outcome(unproven=f"no device is free: all are in use {held_by(resource, now)}")
        slots = await self._slots.count(now.pods)
        if isinstance(slots, str):
            return Outcome(unproven=slots)
        if slots.free < NEEDED:
            why = "the node has %d of %d pod slots free, but a static pod needs %d, or the kubelet may end another pod"
            return Outcome(unproven=why % (slots.free, slots.total, NEEDED))
        return await proof_by_kubelet.prove(resource, shares, cri, directory, image, self._scope)
