# SPDX-License-Identifier: Apache-2.0
"""The container runtimes that a node may have, each an adapter: where, how to edit, how to restart, how to ask.

| adapter | what is written | effective configuration | the running daemon |
|---|---|---|---|
| Containerd | the root file, from --config | config dump | CRI |
| Rancher (k3s, RKE2) | a drop-in that the generated file imports, or its template | config dump | CRI |
| Crio | /etc/crio/crio.conf.d/99-node-devices.conf | crio config | CRI; before 1.33 it does not tell its directories |
| Microk8s, K0s | nothing: where CDI is not effective, they say what to do by hand | config dump | CRI |
| CriDockerd, Unknown | nothing: they say what to do by hand | - | - |

Adapters work on texts alone, on the controller. `adapter.Adapter` says what each of them can be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .adapter import Adapter
from .by_hand import CriDockerd, K0s, Microk8s, Unknown
from .containerd import Containerd
from .crio import Crio
from .rancher import Rancher

#: The first that claims a runtime has it: what is special stands before what is general.
ADAPTERS: tuple[type[Adapter], ...] = (Rancher, Microk8s, K0s, Containerd, Crio, CriDockerd, Unknown)


def of(runtime: Mapping[str, Any]) -> Adapter:
    """The adapter for a runtime, as module node_preflight returned it."""
    return next(adapter for adapter in ADAPTERS if adapter.claims(runtime))(runtime)
