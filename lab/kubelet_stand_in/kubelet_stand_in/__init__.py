"""A stand-in kubelet, and the transcripts that compare it with the real kubelet.

In a test of a plugin, in the same process and at any directory::

    async with StandInKubelet(str(tmp_path / "device-plugins")) as kubelet:
        ...                                              # start the plugin on kubelet.directory
        devices = await kubelet.registered("example.com/serial")      # {"serial0": "Healthy"}
        pod = await kubelet.allocate_pod("test", {"main": {"example.com/serial": 1}})
        pod.containers["main"].envs                      # the request to CRI: envs, devices, CDI_devices ...
        await kubelet.restart()                          # replays the checkpoint; plugins must register again

``allocate_pod`` raises PodRejected with the reason and message of the pod's status. ``stop`` breaks all streams and
leaves the registration socket behind, and ``start`` removes this socket. ``manager`` is the device manager,
``capacity()`` returns the node's capacity, and ``checkpoint()`` returns the content of the checkpoint file.

RecordingPlugin is a scripted device plugin that records each call, with its arguments, outcome and order.

The command ``python -m kubelet_stand_in.kubelet --config FILE`` serves as the kubelet of a lab node, with static pods
through CRI, PodResources and device plugins. ``python -m kubelet_stand_in.transcripts`` records the behaviour of a
kubelet, or compares a kubelet with the recorded transcripts.

The stand-in treats plugins as the real kubelet does, including its bugs (see the tests). The stand-in does not support
cgroups, probes, init containers, NUMA hints, eviction, volumes other than hostPath, or node objects.
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
    """Import lazily: the imports load gRPC, which ``--version`` of the command does not need."""
    if name not in _WHERE:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return getattr(importlib.import_module("." + _WHERE[name], __name__), name)
