"""Compares the plugin's running container with its pod's manifest: hold_pod.py <MANIFEST

MANIFEST: JSON with the pod's ``spec``. The sources are the kernel's state of the process and its mounts, and the mounts
in the runtime's status. Prints the observations. Exits with 1 and a sentence for each difference. Runs on a node with
the environment of role node_tools.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, NamedTuple

from node_device_plugin.runtime.client import CriClient
from node_device_plugin.wire import cri_v1_pb2 as api

_SOCKET = "/run/containerd/containerd.sock"
_LABELS = {"io.kubernetes.pod.namespace": "node-devices", "io.kubernetes.container.name": "plugin"}
# Mounts that a kubelet adds to each container, in addition to the manifest's termination log.
_OF_KUBELET = {"/etc/hosts"}
# Mount points of a runtime's mounts in all containers.
_OF_RUNTIME = {"/", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf"}
_BELOW_OF_RUNTIME = ("/proc", "/sys", "/dev")
# All capability sets of a process, see proc(5).
_CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


class Running(NamedTuple):
    """The plugin's container. mounts: as the kubelet requested them. pid: of the first process."""

    pid: int
    mounts: list[api.Mount]
    runtime: str


async def find() -> Running:
    async with CriClient(_SOCKET) as runtime:
        name, version = await runtime.version()
        found = [each for each in await runtime.containers(_LABELS) if each.state == api.CONTAINER_RUNNING]
        assert len(found) == 1, "%d containers of the plugin run" % len(found)
        pid = await runtime.container_pid(found[0].id)
        assert pid, "its container has no process"
        mounts = list((await runtime.container_status(found[0].id)).mounts)
        return Running(pid, mounts, "%s %s" % (name, version))


def status(pid: int) -> dict[str, str]:
    """Return the fields of /proc/PID/status by name."""
    with open("/proc/%d/status" % pid, encoding="utf-8") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def mounted(pid: int) -> dict[str, bool]:
    """Return whether each mount point of the process is read-only. The topmost mount counts."""
    with open("/proc/%d/mountinfo" % pid, encoding="utf-8") as file:
        fields = [line.split() for line in file]
    return {each[4]: "ro" in each[5].split(",") for each in fields}


def differences(spec: dict[str, Any], running: Running) -> list[str]:
    """Return one line for each difference between the container and the manifest."""
    (container,) = spec["containers"]
    wrong: list[str] = []

    def hold(what: str, seen: object, wanted: object) -> None:
        if seen != wanted:
            wrong.append("%s: %s, not %s" % (what, seen, wanted))

    seen = status(running.pid)
    # Also check the manifest itself.
    security = {**spec["securityContext"], **container["securityContext"]}
    hold("capabilities of the manifest", security["capabilities"], {"drop": ["ALL"]})
    for each in _CAPABILITIES:
        hold(each, int(seen[each], 16), 0)
    hold("allowPrivilegeEscalation", security["allowPrivilegeEscalation"], False)
    hold("NoNewPrivs", seen["NoNewPrivs"], "1")
    hold("seccompProfile", security["seccompProfile"], {"type": "RuntimeDefault"})
    hold("Seccomp", seen["Seccomp"], "2")
    hold("Uid", seen["Uid"].split(), [str(security["runAsUser"])] * 4)
    hold("Gid", seen["Gid"].split(), [str(security["runAsGroup"])] * 4)
    there = mounted(running.pid)
    hold("readOnlyRootFilesystem", security["readOnlyRootFilesystem"], True)
    hold("read-only /", there["/"], True)
    wanted = {each["mountPath"]: bool(each.get("readOnly")) for each in container["volumeMounts"]}
    added = _OF_KUBELET | {container["terminationMessagePath"]}
    asked = {each.container_path: each.readonly for each in running.mounts if each.container_path not in added}
    hold("mounts that the runtime was asked for, and whether they are read-only", asked, wanted)
    host_paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    sources = {each.container_path: each.host_path for each in running.mounts}
    for each in container["volumeMounts"]:
        if each["name"] in host_paths:
            hold("source of %s" % each["mountPath"], sources.get(each["mountPath"]), host_paths[each["name"]])
    others = {
        path
        for path in there
        if path not in _OF_RUNTIME | added and not path.startswith(tuple(each + "/" for each in _BELOW_OF_RUNTIME))
    }
    others -= set(_BELOW_OF_RUNTIME) - set(wanted)
    # The runtime resolves links such as /var/run inside the image.
    resolved = {path: path if path in there else path.replace("/var/run/", "/run/") for path in wanted}
    hold("mounts that the process has", sorted(others), sorted(resolved.values()))
    for path, read_only in wanted.items():
        hold("read-only %s" % path, there.get(resolved[path]), read_only)
    return wrong


def main() -> None:
    spec = json.load(sys.stdin)["spec"]
    running = asyncio.run(find())
    wrong = differences(spec, running)
    if wrong:
        sys.exit("\n".join(wrong))
    mounts = ", ".join(
        "%s %s" % (each["mountPath"], "ro" if each.get("readOnly") else "rw")
        for each in spec["containers"][0]["volumeMounts"]
    )
    print("%s: capabilities 0, NoNewPrivs 1, Seccomp 2, / ro; of its host: %s" % (running.runtime, mounts))


main()
