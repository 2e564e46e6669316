"""A stand-in kubelet, and what holds it to the real one.

In a test of a plugin, in the same process and at any directory::

    async with StandInKubelet(str(tmp_path / "device-plugins")) as kubelet:
        ...                                              # start the plugin on kubelet.directory
        devices = await kubelet.registered("example.com/serial")      # {"serial0": "Healthy"}
        pod = await kubelet.allocate_pod("test", {"main": {"example.com/serial": 1}})
        pod.containers["main"].envs                      # what CRI would be asked for: envs, devices, CDI_devices ...
        await kubelet.restart()                          # the checkpoint is replayed, every plugin has to come back

``allocate_pod`` raises PodRejected with the reason and the message that the pod's status would show. ``stop`` and
``start`` are two lives of one kubelet: streams break, the registration socket stays behind, dead, and is swept.
``manager`` is the device manager itself, ``capacity()`` what the node's status would show, ``checkpoint()`` the file.

RecordingPlugin is a device plugin that does as it is told, and records each call (its order, arguments and outcome).

As a command, ``python -m kubelet_stand_in.kubelet --config FILE`` is a kubelet for a node without one: static
pods through CRI, PodResources, device plugins. ``python -m kubelet_stand_in.transcripts`` records what any
kubelet does, or holds it to what was recorded.

It keeps what the real one does to plugins, its bugs included (see its tests). It leaves out cgroups, probes,
init containers, NUMA hints, eviction, volumes other than hostPath, and node objects.
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
    """Import what is asked for, and gRPC with it: the command says its version without."""
    if name not in _WHERE:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return getattr(importlib.import_module("." + _WHERE[name], __name__), name)
