# SPDX-License-Identifier: Apache-2.0
"""Checks what a node must have; each message says what is wrong, why it matters and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import cdi as cdi_versions
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import runtimes

_OLDEST_PYTHON = (3, 9)
# Matches the error of a shell for a missing program.
_MISSING = re.compile("not found|no such file")


def unmet(requires: list[str], node: Mapping[str, Any], device_paths: Mapping[str, Any], cdi: bool = True) -> list[str]:
    """One message for each requirement that the node does not meet.

    node: the result of the module node_preflight.
    device_paths: as the declaration gives them.
    cdi: whether devices are injected by CDI, which old runtimes and kubelets do not support.
    """
    checks = {
        "python": lambda: _python(node["python"]),
        "systemd": lambda: _systemd(node["init"]),
        "runtime": lambda: _runtime(node["runtime"], cdi),
        "kubelet": lambda: _kubelet(node["kubelet"]) if cdi else (),
        "devices": lambda: _devices(node, device_paths),
    }
    unknown = set(requires) - set(checks)
    if unknown:
        return [f"requires: {', '.join(sorted(unknown))} is none of {', '.join(checks)}"]
    if node["uid"] != 0:
        # Without root, the other checks would only guess.
        return [
            f"tasks run as user {node['uid']}, not as root: set ansible_become: true (and how, if it needs a password)"
        ]
    sentences = [sentence for name in requires for sentence in checks[name]()]
    if node.get("ledger_problem"):
        sentences.append(node["ledger_problem"])
    return sentences


def unanswered(facts: Mapping[str, Any], interpreter: str | None) -> str:
    """The message for a module that failed instead of returning facts.

    facts: the failed result. interpreter: the value of ansible_python_interpreter.
    """
    said = str(facts.get("module_stderr") or facts.get("module_stdout") or facts.get("msg") or "").strip()
    text = f"{said}\n{facts.get('msg', '')}".lower()
    interpreter = str(interpreter or "auto")
    where = "on the node" if interpreter.startswith("auto") else f"at {interpreter}"
    missing = any("python" in line and _MISSING.search(line) for line in text.splitlines())
    if missing or "no python interpreters found" in text:
        return (
            f"there is no Python {where}: install Python 3.9 or later (Debian: apt-get install python3), or "
            f"name the interpreter in ansible_python_interpreter"
        )
    if "syntaxerror" in text or "requires a minimum of python" in text or "future feature annotations" in text:
        return f"the Python {where} is too old: 3.9 is the oldest that the plugin runs on"
    return f"the node could not be looked at: {said[-400:] or 'no answer'}"


def taken(plugins: Mapping[str, Any], names: list[str], mode: str) -> Iterator[str]:
    """One message for each plugin on the node that already serves a declared resource or runs in another mode.

    plugins: as the module node_preflight found them. names: the declared resources. mode: service or daemonset.
    """
    instance = plugins["instance"] or {"mode": None, "resources": []}
    there = {"service": "service", "pod": "daemonset"}.get(instance["mode"], mode)
    if there != mode:
        kinds = {"service": "a systemd service", "daemonset": "a DaemonSet's pod"}
        yield (
            f"the plugin runs here as {kinds[there]}, and device_plugin_mode is {mode}: set device_plugin_takeover: "
            f"true to have it switched"
        )
    foreign = [name for name in names if name in plugins["registered"] and name not in instance["resources"]]
    if foreign and plugins["others"]:
        yield (
            f"another device plugin serves {', '.join(foreign)} here (one listens at {', '.join(plugins['others'])}): "
            f"remove it first, or set device_plugin_takeover: true and remove it right after"
        )


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
    yield from runtimes.of(runtime).obstacles(cdi)


def _kubelet(kubelet: Mapping[str, Any] | None) -> Iterator[str]:
    if kubelet is None:
        return
    version = kubelet["version"]
    if version is None:
        yield f"the kubelet (process {kubelet['pid']}) does not tell its version, so what it makes of CDI is not known"
    elif cdi_versions.version_tuple(version)[:2] < cdi_versions.FIRST_KUBELET:
        oldest = ".".join(map(str, cdi_versions.TESTED_KUBELETS[0]))
        yield (
            f"kubelet {version} drops CDI names without a word, so containers would start without their devices: "
            f"upgrade it to {oldest} or later, or give devices with injection: device_nodes"
        )


def untested(requires: list[str], node: Mapping[str, Any]) -> list[str]:
    """One message for each part of a node whose version is untested."""
    version = (node["kubelet"] or {}).get("version") if "kubelet" in requires else None
    why = cdi_versions.untested_kubelet(cdi_versions.version_tuple(version)) if version else ""
    return [f"kubelet {version}: {why}; see docs/compatibility.md"] if why else []


def _devices(node: Mapping[str, Any], device_paths: Mapping[str, Any]) -> Iterator[str]:
    missing = frozenset(node["missing_devices"])
    for path, wanted in device_paths.items():
        if not wanted["required"]:
            continue
        if path in missing:
            yield (
                f"{path} is missing, which {wanted['device']} is made of: attach the device or load its driver, or "
                f"declare it with required: false to leave it out until it is there"
            )
        elif path in node["other_than_devices"]:
            yield (
                f"{path} is {node['other_than_devices'][path]}, not a device node, and {wanted['device']} is made of "
                f"it: name the device nodes themselves (discover takes patterns), or give it as a mount"
            )
