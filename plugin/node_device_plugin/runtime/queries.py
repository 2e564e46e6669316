"""Questions to the container runtime: whether it honours CDI, and which containers run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ..declaration.cdi import version_tuple
from ..support.channels import grpc
from ..wire import cri_v1_pb2 as api
from .client import CriClient
from .errors import CriError

#: From here on containerd fails to create a container whose CDI devices it may not give; before, it drops them.
_FAILS_WITHOUT_CDI = (2, 3, 0)


async def runtime(socket: str) -> dict[str, Any]:
    """What the running container runtime believes, as JSON takes it. Raises CriError where it does not answer."""
    async with CriClient(socket) as cri:
        version = await cri.version()
        status = await cri.status()
        # CRI-O before 1.33 tells nothing of CDI, and has no setting that turns it off either.
        always_on = status.cdi_always_on or version.name == "cri-o"
        return {
            "name": version.name,
            "version": version.version,
            "cdi": {
                "enabled": True if always_on else status.cdi_enabled,
                "always_on": always_on,
                "spec_dirs": None if status.cdi_spec_dirs is None else list(status.cdi_spec_dirs),
            },
            "sandbox_image": await cri.sandbox_image(),
            "conditions": status.conditions,
        }


def fails_without_cdi(name: str, version: str) -> bool:
    """Whether a runtime with CDI off refuses to create a container with CDI devices; if not, it drops the devices."""
    return name == "containerd" and version_tuple(version) >= _FAILS_WITHOUT_CDI


async def running_containers(socket: str) -> list[dict[str, Any]]:
    """The containers that run. Raises CriError.

    pid: of its first process. unit: the systemd unit of the process that watches that one (a shim, conmon), which a
    restart of that unit may end; None where it is in none.
    """
    async with CriClient(socket) as cri:
        listed = [each.id for each in await cri.containers() if each.state == api.CONTAINER_RUNNING]
        pids = await asyncio.gather(*(_pid(cri, identity) for identity in listed))
    return [
        {"id": identity, "pid": pid, "unit": _unit_of_parent(pid)}
        for identity, pid in zip(listed, pids)
        if pid is not None
    ]


async def ended_containers(socket: str, identities: Sequence[str]) -> list[dict[str, Any]]:
    """How those of the named containers ended that the runtime knows, and knows to have ended. Raises CriError.

    exit_code: 255 where nobody saw the end, and 128 and the signal's number for one that a signal ended, as a rule.
    reason: the runtime's, e.g. ``Completed``, ``Error`` or ``OOMKilled``.
    """
    async with CriClient(socket) as cri:
        known = {each.id for each in await cri.containers()}
        states = [await cri.container_status(identity) for identity in identities if identity in known]
    return [
        {"id": state.id, "exit_code": state.exit_code, "reason": state.reason}
        for state in states
        if state.state == api.CONTAINER_EXITED
    ]


def _unit_of_parent(pid: int, proc: str = "/proc") -> str | None:
    """The systemd unit that has the parent of a process, by its cgroup; None where there is no saying. See proc(5)."""
    try:
        with open("%s/%d/stat" % (proc, pid), encoding="utf-8", errors="replace") as file:
            # The name, in parentheses, may hold anything.
            parent = int(file.read().rpartition(")")[2].split()[1])
        with open("%s/%d/cgroup" % (proc, parent), encoding="utf-8") as file:
            folders = [folder for line in file for folder in line.rstrip("\n").split("/")]
    except OSError:
        return None
    return next((folder for folder in reversed(folders) if folder.endswith((".service", ".scope"))), None)


async def _pid(cri: CriClient, container: str) -> int | None:
    try:
        return await cri.container_pid(container)
    except CriError as error:
        if error.code is grpc.StatusCode.NOT_FOUND:
            # It ended since it was listed.
            return None
        raise
