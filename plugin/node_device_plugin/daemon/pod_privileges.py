"""Checks whether this process may open the host's devices.

Only ``run`` checks this, because ``validate`` must give the same answer on every machine.
"""

from __future__ import annotations

import os

from ..declaration import Configuration, DeclarationError
from ..declaration.injection_rules import open_probes

_CAP_SYS_ADMIN = 21
#: Kubernetes sets this variable in every container of a pod.
_POD_VARIABLE = "KUBERNETES_SERVICE_HOST"


def refuse_open_probes(configuration: Configuration, status: str = "/proc/self/status") -> None:
    """Refuse open probes in an unprivileged pod. Raises DeclarationError with every such probe.

    The device cgroup of such a pod denies access to host devices, so each device would fail its
    probe. A privileged pod and a service can open host devices. status: the path of a status file
    as in proc(5).
    """
    problems = list(open_probes(configuration.resources, "resources"))
    if problems and _POD_VARIABLE in os.environ and not _is_privileged(status):
        raise DeclarationError(problems)


def _is_privileged(status: str) -> bool:
    """Whether CAP_SYS_ADMIN is effective. A privileged container has this capability, and the role's pod does not."""
    with open(status) as file:
        for line in file:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False
