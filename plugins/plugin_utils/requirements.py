# SPDX-License-Identifier: Apache-2.0
"""What a node must be, as sentences about what it is not: each says what is wrong, why it matters and what to do."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.cdi import version_tuple

_OLDEST_PYTHON = (3, 9)
_OLDEST_CONTAINERD = (1, 7, 2)
_OLDEST_KUBELET = (1, 29)
#: The names that containerd's CRI plugin has in disabled_plugins, by configuration version.
_CRI_PLUGINS = {
    "cri",
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.runtime",
    "io.containerd.cri.v1.images",
}


def unmet(requires: list[str], node: Mapping[str, Any], device_paths: Mapping[str, Any], cdi: bool = True) -> list[str]:
    """A sentence for each thing that stands in the way.

    node: the result of the module node_facts.
    device_paths: as the declaration gives them.
    cdi: whether devices are given by CDI, which old runtimes and kubelets do not know.
    """
    checks = {
        "python": lambda: _python(node["python"]),
        "systemd": lambda: _systemd(node["init"]),
        "runtime": lambda: _runtime(node["runtime"], cdi),
        "kubelet": lambda: _kubelet(node["kubelet"]) if cdi else (),
        "devices": lambda: _devices(node["missing_devices"], device_paths),
    }
    unknown = set(requires) - set(checks)
    if unknown:
        return [f"requires: {', '.join(sorted(unknown))} is none of {', '.join(checks)}"]
    if node["uid"] != 0:
        # Without root's rights the rest would be guesswork.
        return [
            f"tasks run as user {node['uid']}, not as root: set ansible_become: true (and how, if it needs a password)"
        ]
    sentences = [sentence for name in requires for sentence in checks[name]()]
    if node.get("ledger_problem"):
        sentences.append(node["ledger_problem"])
    return sentences


def disabled_cri(config: Mapping[str, Any]) -> list[str]:
    """Which parts of CRI a containerd configuration turns off."""
    return sorted(set(config.get("disabled_plugins") or ()) & _CRI_PLUGINS)


def _python(python: Mapping[str, Any]) -> Iterator[str]:
    if tuple(python["version"]) < _OLDEST_PYTHON:
        yield (
            f"{python['executable']} is Python {'.'.join(map(str, python['version']))}, and 3.9 is the oldest that the "
            f"plugin runs on: install a later one and name it in ansible_python_interpreter"
        )


def _systemd(init: str) -> Iterator[str]:
    if init != "systemd":
        yield (
            f"the first process is {init or 'unknown'}, not systemd, and the plugin is a systemd service here: on a "
            f"node that only the Kubernetes API reaches, deploy it as a DaemonSet"
        )


def _runtime(runtime: Mapping[str, Any], cdi: bool) -> Iterator[str]:
    place = runtime["socket"]
    if runtime.get("problem"):
        yield (
            f"no container runtime answers at {place} ({runtime['problem']}): install and start containerd 1.7.2 or "
            f"later, or name the runtime's socket in node_devices_cri_socket"
        )
        return
    if runtime["name"] != "containerd":
        yield (
            f"the container runtime at {place} is {runtime['executable']}: only containerd is known so far; name "
            f"another socket in node_devices_cri_socket if the node has a containerd too"
        )
        return
    version = runtime["version"]
    if cdi and version is None:
        yield f"{runtime['executable']} --version does not tell a version, so what it makes of CDI is not known"
    elif cdi and version_tuple(version) < _OLDEST_CONTAINERD:
        yield (
            f"containerd {version} cannot give devices to containers by CDI: below 1.7.2 it drops the CDI names "
            f"that the kubelet passes on, without a word. Upgrade it to 1.7.2 or later (Debian 13 has 1.7.24, "
            f"docker.com's containerd.io packages have 1.7 and 2.x), or give devices with injection: device_nodes"
        )
    yield from _containerd_config(runtime["config"])


def _containerd_config(config: Mapping[str, Any]) -> Iterator[str]:
    if config["exists"] and config["content"] is None:
        yield f"{config['path']} cannot be read as text"
        return
    try:
        data = tomllib.loads((config["content"] or "").replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        yield (f"{config['path']} is not valid TOML ({error}): containerd will not start again with it; mend it first")
        return
    disabled = disabled_cri(data)
    if disabled:
        yield (
            f"{config['path']} turns CRI off (disabled_plugins has {', '.join(disabled)}), so no kubelet can use this "
            f"containerd: take it out of disabled_plugins and restart containerd"
        )


def _kubelet(kubelet: Mapping[str, Any] | None) -> Iterator[str]:
    if kubelet is None:
        return
    version = kubelet["version"]
    if version is None:
        yield f"the kubelet (process {kubelet['pid']}) does not tell its version, so what it makes of CDI is not known"
    elif version_tuple(version)[:2] < _OLDEST_KUBELET:
        yield (
            f"kubelet {version} drops CDI names without a word, so containers would start without their devices: "
            f"upgrade it to 1.29 or later, or give devices with injection: device_nodes"
        )


def _devices(missing: list[str], device_paths: Mapping[str, Any]) -> Iterator[str]:
    for path in missing:
        wanted = device_paths.get(path)
        if wanted and wanted["required"]:
            yield (
                f"{path} is missing, which {wanted['device']} is made of: attach the device or load its driver, or "
                f"declare it with required: false to leave it out until it is there"
            )
