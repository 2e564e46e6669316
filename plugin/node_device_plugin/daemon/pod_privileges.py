"""Whether this process may open the host's devices at all.

Only the process that serves can say so: ``validate`` gives the same answer to everybody.
"""

from __future__ import annotations

import os
from typing import Iterator, Mapping

from ..declaration import Configuration, DeclarationError, Problem

_CAP_SYS_ADMIN = 21
#: Kubernetes sets it in every container of a pod.
_POD_VARIABLE = "KUBERNETES_SERVICE_HOST"


def refuse_open_probes(configuration: Configuration) -> None:
    """Raise DeclarationError where this process could open no device that the configuration wants opened."""
    problems = list(open_probe_problems(configuration))
    if problems:
        raise DeclarationError(problems)


def open_probe_problems(
    configuration: Configuration, environ: Mapping[str, str] = os.environ, status: str = "/proc/self/status"
) -> Iterator[Problem]:
    """Resources with an open probe, where this is a pod that is not privileged.

    The device cgroup of such a pod lets it open none of the host's devices: every device would be unhealthy, for a
    reason that has nothing to do with it. A privileged pod can, and so can a service. status: as proc(5) says.
    """
    if _POD_VARIABLE not in environ or _is_privileged(status):
        return
    for position, resource in enumerate(configuration.resources):
        if resource.health.open:
            yield Problem(
                "resources[%d] (%s).health.open" % (position, resource.name),
                "an unprivileged pod may open no device of its host, so every device would be unhealthy: leave it out, "
                "or run the plugin as a service",
            )


def _is_privileged(status: str) -> bool:
    """By the effective capabilities: only a privileged container has CAP_SYS_ADMIN and the device cgroup open."""
    with open(status) as file:
        for line in file:
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False
