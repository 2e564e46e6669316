"""A stand-in kubelet, and the transcripts that compare it with the real kubelet.

In a test of a plugin, in the same process and at any directory::

    async with StandInKubelet(str(tmp_path / "device-plugins")) as kubelet:
        ...                                              # start the plugin on kubelet.directory
        devices = await kubelet.registered("example.com/serial")      # {"serial0": "Healthy"}
        pod = await kubelet.allocate_pod("test", {"main": {"example.com/serial": 1}})
        pod.containers["main"].envs                      # the request to CRI: envs, devices, CDI_devices ...
        await kubelet.restart()                          # replays the checkpoint; plugins must register again

``allocate_pod`` raises PodRejected with the reason and message of the pod's status. ``stop`` ends one life of the
kubelet and ``start`` begins the next: streams break, and the dead registration socket stays until ``start`` removes it.
``manager`` is the device manager, ``capacity()`` the node's status, ``checkpoint()`` the checkpoint file.

RecordingPlugin is a scripted device plugin that records each call, with its arguments, outcome and order.

As a command, ``python -m kubelet_stand_in.kubelet --config FILE`` is the kubelet of a node that has none: static pods
through CRI, PodResources, device plugins. ``python -m kubelet_stand_in.transcripts`` records what a kubelet does, or
compares a kubelet with the recorded transcripts.

It treats plugins as the real kubelet does, bugs included (see its tests). It does not have cgroups, probes, init
containers, NUMA hints, eviction, volumes other than hostPath, or node objects.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .recorder import RecordingPlugin, healthy
    from .stand_in import AllocatedPod, PodRejected, StandInKubelet

__all__ = ["AllocatedPod", "PodRejected", "RecordingPlugin", "StandInKubelet", "healthy"]

_WHERE = {
    "AllocatedPod": "stand_in",
    "PodRejected": "stand_in",
    "RecordingPlugin": "recorder",
    "StandInKubelet": "stand_in",
    "healthy": "recorder",
}


def __getattr__(name: str) -> Any:
    """Import lazily, because the imports load gRPC, which the command's --version does not need."""
    if name not in _WHERE:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return getattr(importlib.import_module("." + _WHERE[name], __name__), name)
