"""Whether this process may open the host's devices at all.

Only the process that serves can say so: ``validate`` gives the same answer to everybody.
"""

from __future__ import annotations

import os

from ..declaration import Configuration, DeclarationError, Problem

_CAP_SYS_ADMIN = 21
#: Kubernetes sets it in every container of a pod.
_POD_VARIABLE = "KUBERNETES_SERVICE_HOST"


def refuse_open_probes(configuration: Configuration, status: str = "/proc/self/status") -> None:
    """Raise DeclarationError for resources with an open probe, where this is a pod that is not privileged.

    The device cgroup of such a pod lets it open none of the host's devices: every device would be unhealthy, for a
    reason that has nothing to do with it. A privileged pod can, and so can a service. status: as proc(5) says.
    """
    problems = [
        Problem(
            "resources[%d] (%s).health.open" % (position, resource.name),
            "an unprivileged pod may open no device of its host, so every device would be unhealthy: leave it out, "
            "or run the plugin as a service",
        )
        for position, resource in enumerate(configuration.resources)
        if resource.health.open
    ]
    if problems and _POD_VARIABLE in os.environ and not _is_privileged(status):
        raise DeclarationError(problems)


def _is_privileged(status: str) -> bool:
    """By the effective capabilities: only a privileged container has CAP_SYS_ADMIN and the device cgroup open."""
    with open(status) as file:
        for line in file:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False
