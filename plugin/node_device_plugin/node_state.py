"""What this node says of itself, as the roles read it: plain data for ``-o json``."""

from __future__ import annotations

import os
from typing import Any, Dict

from .cri import CriClient
from .pod_resources import CHECKPOINT, PodResourcesClient, PodResourcesError, read_checkpoint

POD_RESOURCES_SOCKET = "pod-resources/kubelet.sock"


async def runtime(socket: str) -> Dict[str, Any]:
    """What the running container runtime believes. CriError where it does not answer."""
    async with CriClient(socket) as cri:
        version = await cri.version()
        status = await cri.status()
        return {
            "name": version.name,
            "version": version.version,
            "cdi": {
                "enabled": status.cdi_enabled,
                "spec_dirs": None if status.cdi_spec_dirs is None else list(status.cdi_spec_dirs),
            },
            "sandbox_image": await cri.sandbox_image(),
            "conditions": {condition.type: condition.status for condition in status.conditions},
        }
