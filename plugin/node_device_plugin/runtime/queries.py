"""Queries to the container runtime: whether it honours CDI, which containers run, and how containers ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ..declaration.cdi import names_in, version_tuple
from ..support.bounded_reads import beginning_of
from ..support.channels import grpc
from ..support.node_process import unit_in
from ..wire import cri_v1_pb2 as api
from .client import CriClient
from .errors import CriError

_Answer = TypeVar("_Answer")

#: From this version on, containerd with CDI off refuses containers with CDI devices. Earlier versions drop the devices.
_FAILS_WITHOUT_CDI = (2, 3, 0)


async def runtime(socket: str) -> dict[str, Any]:
    """The effective settings of the running container runtime, in JSON types. Raises CriError if a call fails."""
    async with CriClient(socket) as cri:
        name, version = await cri.version()
        conditions, settings = await cri.status()
        return {
            "name": name,
            "version": version,
            "cdi": _cdi(name, settings),
            "sandbox_image": await cri.sandbox_image(),
            "conditions": conditions,
        }


def _cdi(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The CDI settings among a daemon's settings; None if it does not report them (containerd 1.6, CRI-O before 1.33).

    always_on: the runtime has no setting that turns CDI off (containerd from 2.4 on, CRI-O).
    """
    # From 1.33 on, CRI-O reports its whole configuration under Go's field names.
    crio = config.get("crio")
    settings, key = (crio, "CDISpecDirs") if isinstance(crio, dict) else (config, "cdiSpecDirs")
    # Go prints an empty list as null.
    directories = (settings[key] or []) if key in settings else None
    spec_dirs = list(map(str, directories)) if isinstance(directories, list) else None
    always_on = name == "cri-o" or (spec_dirs is not None and "enableCDI" not in config)
    enabled = True if always_on else config.get("enableCDI")
    return {"enabled": enabled if isinstance(enabled, bool) else None, "always_on": always_on, "spec_dirs": spec_dirs}


def fails_without_cdi(name: str, version: str) -> bool:
    """Whether a runtime with CDI off refuses a container with CDI devices, instead of dropping the devices."""
    return name == "containerd" and version_tuple(version) >= _FAILS_WITHOUT_CDI


class RequestedCdi(NamedTuple):
    """A container, and the CDI names that it was created with.

    uid: the pod's. may_run: whether it runs, or its pod's sandbox is ready, so that the kubelet may start it again.
    is_complete: whether the runtime tells all names. CRI-O tells only the names in annotations.
    """

    namespace: str
    pod: str
    uid: str
    container: str
    names: frozenset[str]
    may_run: bool
    is_complete: bool


async def requested_cdi(socket: str) -> list[RequestedCdi]:
    """The CDI names of each of the runtime's containers, in any state. Raises CriError if a call fails."""
    async with CriClient(socket) as cri:
        ready = {each.id for each in await cri.pod_sandboxes() if each.state == api.SANDBOX_READY}
        listed = await cri.containers()
        infos = await asyncio.gather(*(_unless_gone(cri.container_info(each.id)) for each in listed))
    found = []
    for each, info in zip(listed, infos):
        if info is None:
            continue
        # Empty if the runtime does not tell it.
        config = info["config"] if isinstance(info.get("config"), dict) else {}
        devices, annotations = config.get("CDI_devices") or (), config.get("annotations") or {}
        names = {str(device.get("name")) for device in devices} | names_in(annotations) | names_in(each.annotations)
        namespace, pod, uid = [
            each.labels.get(f"io.kubernetes.pod.{part}", "") for part in ("namespace", "name", "uid")
        ]
        may_run = each.state != api.CONTAINER_EXITED or each.pod_sandbox_id in ready
        found.append(RequestedCdi(namespace, pod, uid, each.metadata.name, frozenset(names), may_run, bool(config)))
    return found


async def _unless_gone(answer: Awaitable[_Answer]) -> _Answer | None:
    """The answer about a container; None if the container was removed after it was listed."""
    try:
        return await answer
    except CriError as error:
        if error.code is grpc.StatusCode.NOT_FOUND:
            return None
        raise


async def running_containers(socket: str) -> list[dict[str, Any]]:
    """The running containers. Raises CriError if a call fails.

    pid: the container's first process. unit: the systemd unit of that process's parent (a shim or conmon); None if
    the parent has no unit. A restart of the unit may end the container.
    """
    async with CriClient(socket) as cri:
        listed = [each.id for each in await cri.containers() if each.state == api.CONTAINER_RUNNING]
        pids = await asyncio.gather(*(_unless_gone(cri.container_pid(identity)) for identity in listed))
    return [
        {"id": identity, "pid": pid, "unit": _unit_of_parent(pid)}
        for identity, pid in zip(listed, pids)
        if pid is not None
    ]


async def ended_containers(socket: str, identities: Sequence[str]) -> list[dict[str, Any]]:
    """The given containers that the runtime knows and that have ended. Raises CriError if a call fails.

    exit_code: 255 if the runtime did not see the end. After a signal, usually 128 plus the signal's number.
    reason: from the runtime, e.g. ``Completed``, ``Error`` or ``OOMKilled``. finished_at: seconds since the epoch.
    """
    async with CriClient(socket) as cri:
        known = {each.id for each in await cri.containers()}
        states = [await _unless_gone(cri.container_status(identity)) for identity in identities if identity in known]
    return [
        {"id": state.id, "exit_code": state.exit_code, "reason": state.reason, "finished_at": state.finished_at / 1e9}
        for state in states
        if state is not None and state.state == api.CONTAINER_EXITED
    ]


def _unit_of_parent(pid: int, proc: str = "/proc") -> str | None:
    """The systemd unit of a process's parent, by the parent's cgroup; None if unknown. See proc(5)."""
    # The process name, in parentheses, may contain any character.
    fields = beginning_of("%s/%d/stat" % (proc, pid)).rpartition(")")[2].split()
    return unit_in(beginning_of(f"{proc}/{fields[1]}/cgroup"), "service|scope") if fields else None
