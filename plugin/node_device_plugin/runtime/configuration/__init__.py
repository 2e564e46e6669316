"""Provides one adapter for each container runtime. An adapter knows how to edit, restart and query its runtime.

| adapter | changed file | source of the effective configuration | source of the running daemon's state |
|---|---|---|---|
| Containerd | the root file, from --config | config dump | CRI |
| Rancher (k3s, RKE2) | a drop-in that the root file imports, or its template | config dump | CRI |
| Crio | /etc/crio/crio.conf.d/99-node-devices.conf | crio config | CRI, directories since 1.33 |
| Microk8s, K0s | none; if CDI is not effective, a message has the fix | config dump | CRI |
| CriDockerd, Unknown | none; a message has the fix | - | - |

Adapters run on the node, and edit only texts, which stay there. `adapter.Adapter` has their methods.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ...support import directory_names
from .adapter import Adapter
from .by_hand import CriDockerd, K0s, Microk8s, Unknown
from .cdi import SPEC_DIRS, UnsupportedConfig, without_credentials
from .containerd import Containerd
from .crio import Crio
from .rancher import Rancher


def of(runtime: Mapping[str, Any]) -> Adapter:
    """Return the adapter for a runtime. runtime: its facts, with the texts of its configuration."""
    return _kind_of(runtime)(runtime)


def _kind_of(runtime: Mapping[str, Any]) -> type[Adapter]:
    """Return the adapter's class. The directories of a runtime's paths say which distribution has the runtime."""
    name, socket, path = runtime["name"], runtime["socket"], runtime.get("config", {}).get("path", "")
    places = f"{socket} {runtime.get('executable')} {path}"
    if name == "containerd":
        if "/agent/etc/containerd/" in path:
            return Rancher
        if "/microk8s/" in places:
            return Microk8s
        return K0s if "/k0s/" in places else Containerd
    if name == "crio":
        return Crio
    # k3s runs cri-dockerd in its own process.
    return CriDockerd if name == "cri-dockerd" or socket.endswith("/cri-dockerd.sock") else Unknown


def spec_dirs(runtime: Mapping[str, Any]) -> list[str]:
    """Return a runtime's CDI directories and ours, in our spelling. A later directory overrides an earlier directory.

    If the runtime's files tell nothing, the result has only ours.
    """
    its: tuple[str, ...] = ()
    with contextlib.suppress(UnsupportedConfig):
        its = () if runtime.get("problem") else of(runtime).cdi.spec_dirs
    ours = {directory_names.normal(directory): directory for directory in SPEC_DIRS}
    return directory_names.with_ours((ours.get(directory_names.normal(each), each) for each in its), *SPEC_DIRS)


def obstacles(runtime: Mapping[str, Any], cdi: bool) -> Iterator[str]:
    """Yield one message for each reason why a runtime cannot give devices. cdi: whether devices are injected by CDI."""
    if runtime.get("problem"):
        yield (
            f"no container runtime answers at {runtime['socket']} ({runtime['problem']}): install and start containerd "
            "1.7.2 or later, or set node_devices_cri_socket to the runtime's socket"
        )
    else:
        yield from map(without_credentials, of(runtime).obstacles(cdi))
