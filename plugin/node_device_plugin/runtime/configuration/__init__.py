"""Provides one adapter for each container runtime. An adapter knows how to edit, restart and query its runtime.

| adapter | changed file | source of the effective configuration | source of the running daemon's state |
|---|---|---|---|
| Containerd | the root file, from --config | config dump | CRI |
| Rancher (k3s, RKE2) | a drop-in that the root file imports, or its template | config dump | CRI |
| Crio | /etc/crio/crio.conf.d/99-node-devices.conf | crio config | CRI, directories since 1.33 |
| Microk8s, K0s | none; if CDI is not effective, a message has the fix | config dump | CRI |
| CriDockerd, Unknown | none; a message has the fix | - | - |

Adapters run on the node and edit only texts, which never leave the node. `adapter.Adapter` has their methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .adapter import Adapter
from .by_hand import CriDockerd, K0s, Microk8s, Unknown
from .cdi import without_credentials
from .containerd import Containerd
from .crio import Crio
from .rancher import Rancher

#: The first adapter that claims a runtime is used. Therefore special adapters come before general adapters.
ADAPTERS: tuple[type[Adapter], ...] = (Rancher, Microk8s, K0s, Containerd, Crio, CriDockerd, Unknown)


def of(runtime: Mapping[str, Any]) -> Adapter:
    """Return the adapter for a runtime. runtime: its facts, with the texts of its configuration."""
    return next(adapter for adapter in ADAPTERS if adapter.claims(runtime))(runtime)


def obstacles(runtime: Mapping[str, Any], cdi: bool) -> Iterator[str]:
    """Yield one message for each reason why a runtime cannot give devices. cdi: whether devices are injected by CDI."""
    if runtime.get("problem"):
        yield (
            f"no container runtime answers at {runtime['socket']} ({runtime['problem']}): install and start containerd "
            "1.7.2 or later, or set node_devices_cri_socket to the runtime's socket"
        )
    else:
        yield from map(without_credentials, of(runtime).obstacles(cdi))
