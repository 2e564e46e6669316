# SPDX-License-Identifier: Apache-2.0
"""Decides from facts whether a node is ready. Asks nobody.

Each message has the problem, the reason and the fix, without the host's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ...plugin.node_device_plugin.declaration import cdi as cdi_versions
from ...plugin.node_device_plugin.declaration import dra_api
from ...plugin.node_device_plugin.support import directory_names
from . import host_devices
from .asked import Asked
from .kubernetes import drain

# Matches a shell's error for a missing program.
_MISSING = re.compile("not found|no such file")
# Matches an error of a Python older than 3.9, in lower case. The last one is the error of Python 3.8.
_TOO_OLD = re.compile(
    "syntaxerror|requires a minimum of python|future feature annotations|'type' object is not subscriptable"
)


def problems(asked: Asked, facts: Mapping[str, Any], present: Mapping[str, Any], runs_units: bool) -> list[str]:
    """Return unmet requirements, what a module on the node would refuse, and what others do with the node's devices.

    present: the facts without missing paths that a role will create. runs_units: whether systemd will run the plugin.
    """
    found = unmet(asked.requires, present, asked.device_paths, asked.cdi, asked.host_paths)
    # Without root, the modules' answers are unreliable.
    if facts["uid"] == 0:
        for module in facts.get("converged") or {}:
            found += [problem for answer in _answers(facts, module) for problem in answer.get("problems") or ()]
        found += not_for_service(facts["python"]) if runs_units else ()
        # A run without a mode, such as an uninstall, has a check of its own.
        if asked.declared and asked.mode:
            found += without_dra(asked.declared.get("dra"), facts, asked.dynamic_cdi_dir)
    if asked.cdi and "runtime" in asked.requires:
        found += [problem for answer in _answers(facts, "cdi_specs") for problem in answer.get("crashing", ())]
    if asked.declared and asked.mode:
        driver = (asked.declared.get("dra") or {}).get("name", "")
        found += same_driver(facts["device_plugins"]["drivers"], driver)
    if asked.declared and asked.mode and not asked.takeover:
        names = [resource["name"] for resource in asked.declared["resources"]]
        found += taken(facts["device_plugins"], names, asked.mode, asked.declared["foreign_kinds"])
    return found + (list(drain.obstacles(asked.drain, bool(asked.kubeconfig))) if asked.drain else [])


def warnings(asked: Asked, facts: Mapping[str, Any], in_cluster: set[str]) -> list[str]:
    """Return other owners' CDI specs that runtimes do not load, resources that the run removes, and untested versions.

    in_cluster: resources of an earlier run that only the cluster has.
    """
    found = untested(asked.requires, facts)
    if asked.declared and facts["runtime"].get("version"):
        found += [problem for answer in _answers(facts, "cdi_specs")[:1] for problem in answer.get("broken", ())]
    if asked.declared and asked.mode:
        served = set((facts["device_plugins"]["instance"] or {}).get("resources", ()))
        declared = {resource["name"] for resource in asked.declared["resources"]}
        found += removed((served - declared) | in_cluster)
    return found


def without_awaited(facts: Mapping[str, Any], makers: Mapping[str, Any], skip_tags: Sequence[str]) -> Mapping[str, Any]:
    """Return the facts without the missing paths that role host_devices will create.

    If the run skips the role, or the role's module would change nothing, the role creates nothing.
    """
    # The first answer is for the task that creates, and a later one for the task that prunes.
    keys = ("changed", "problems", "in_use")
    creates_nothing = any(not any(answer.get(key) for key in keys) for answer in _answers(facts, "host_devices")[:1])
    if "host_devices" in skip_tags or not any(makers.values()) or creates_nothing:
        return facts
    awaited = {
        key: [path for path in facts[key] if not host_devices.may_make(path, **makers)]
        for key in ("missing_devices", "missing_host_paths")
    }
    return {**facts, **awaited}


def _answers(facts: Mapping[str, Any], module: str) -> list[dict[str, Any]]:
    """Return a module's answers in check mode."""
    return [found["answer"] for found in (facts.get("converged") or {}).get(module, ())]


def unmet(
    requires: list[str],
    node: Mapping[str, Any],
    device_paths: Mapping[str, Any],
    cdi: bool = True,
    host_paths: Mapping[str, Any] = MappingProxyType({}),
) -> list[str]:
    """Return one message for each requirement that the node does not meet.

    node: the result of the module node_preflight.
    device_paths, host_paths: of the declaration.
    cdi: whether devices are injected by CDI. Old runtimes and kubelets do not support CDI.
    """
    # The module runs with Python 3.9 or later (see `unanswered`), and the facts do not always show the command.
    checks = {
        "systemd": lambda: _systemd(node["init"]),
        "runtime": lambda: node["runtime"]["obstacles"],
        "kubelet": lambda: _kubelet(node["kubelet"]) if cdi else (),
        "devices": lambda: [*_devices(node, device_paths), *_host_paths(node, host_paths)],
    }
    if node["uid"] != 0:
        # Without root, the other checks would be unreliable.
        return [
            f"tasks run as user id {node['uid']}, but the collection needs root: set ansible_become: true (if sudo "
            "asks for a password, add --ask-become-pass)"
        ]
    sentences = [sentence for name, check in checks.items() if name in requires for sentence in check()]
    return [*sentences, *(node[name] for name in ("ledger_problem", "kubelet_problem") if node.get(name))]


def unanswered(facts: Mapping[str, Any], interpreter: str | None) -> str:
    """Return the message for a module node_preflight that returned no facts; empty if it returned them.

    facts: its result. interpreter: the value of ansible_python_interpreter.
    """
    if not facts.get("failed") and "runtime" in facts:
        return ""
    said = str(facts.get("module_stderr") or facts.get("module_stdout") or facts.get("msg") or "").strip()
    text = f"{said}\n{facts.get('msg', '')}".lower()
    interpreter = str(interpreter or "auto")
    where = "on the node" if interpreter.startswith("auto") else f"at {interpreter}"
    missing = any("python" in line and _MISSING.search(line) for line in text.splitlines())
    if missing or "no python interpreters found" in text:
        return (
            f"Python was not found {where}: install Python 3.9 or later (Debian: apt-get install python3), or set "
            "ansible_python_interpreter to the interpreter's path"
        )
    if _TOO_OLD.search(text):
        return (
            f"the Python {where} is too old: install Python 3.9 or later, which the plugin needs, and set "
            "ansible_python_interpreter to its path"
        )
    return f"the preflight module failed on the node (-vvv shows its whole output): {said[-400:] or 'no output'}"


def not_for_service(python: Mapping[str, Any]) -> Iterator[str]:
    """Yield one message if the plugin's service cannot or must not run the node's Python, or cannot see its directory.

    python: the fact of the module node_preflight.
    """
    if python.get("obstacle"):
        yield (
            f"Ansible uses {python['executable']} on this node, but {python['obstacle']}: set "
            "ansible_python_interpreter to a Python that only root can replace, such as /usr/bin/python3"
        )
    if python.get("hidden_root"):
        yield (
            f"node_tools_root is below {python['hidden_root']}, which the sandbox of the plugin's service hides: set "
            "it to another directory, such as /opt/node-devices"
        )


def without_dra(driver: Mapping[str, Any] | None, facts: Mapping[str, Any], cdi_dir: str) -> Iterator[str]:
    """Yield one message if the node cannot have a DRA driver, or cannot lose or rename it.

    driver: the declared one, or none. cdi_dir: the declared directory of the plugin's CDI specs.
    """
    claims = facts["claims_prepared"]
    if not driver:
        if claims:
            yield (
                "pods have devices of this node by ResourceClaims, but no resource has api: dra any more, and without "
                "the DRA driver these pods cannot end: end them first (kubectl drain)"
            )
        return
    yield from _moved(claims, driver["name"], cdi_dir)
    kubelet = facts["kubelet"] or {}
    yield from too_old_for_dra(kubelet.get("version"))
    problem = (facts.get("dra") or {}).get("problem")
    if problem:
        used, hint = kubelet.get("kubeconfig"), ""
        if used and used != driver["kubeconfig"]:
            hint = f"; the running kubelet uses {used}: set dra.kubeconfig in node_devices_settings to it"
        yield f"resources with api: dra cannot use {driver['kubeconfig']}: {problem}{hint}"


def too_old_for_dra(kubelet: str | None) -> Iterator[str]:
    """Yield one message if a kubelet does not know DRA drivers. kubelet: its version; None if unknown."""
    if kubelet and cdi_versions.version_tuple(kubelet)[:2] < dra_api.FIRST_KUBELET:
        yield f"kubelet {kubelet} has no DRA API v1, which api: dra needs: upgrade it to 1.34 or later"


def _moved(claims: Iterable[Mapping[str, Any]], driver: str, cdi_dir: str) -> Iterator[str]:
    """Yield one message for each changed setting with which the plugin could not release the prepared claims."""
    # If a record has no driver, nothing shows that the driver was another one.
    for former in sorted({each["driver"] for each in claims} - {None, driver}):
        yield (
            f"dra.driver in node_devices_settings: is {driver}, but pods have devices by ResourceClaims that only the "
            f"driver {former} can release: end these pods first (kubectl drain), or set dra.driver to {former}"
        )
    declared = directory_names.normal(cdi_dir)
    for former in sorted({each["directory"] for each in claims} - {declared}):
        yield (
            f"dynamic_cdi_dir in node_devices_settings: is {cdi_dir}, but pods have devices by ResourceClaims whose "
            f"records are in {former}: end these pods first (kubectl drain), or set dynamic_cdi_dir to {former}"
        )


def same_driver(drivers: Iterable[str], driver: str) -> Iterator[str]:
    """Yield one message if another DRA driver has the name of ours, which no takeover makes right.

    drivers: that listen on the node. driver: the name of our DRA driver; empty if none is declared. Slices that a
    former driver of this name left are in nobody's way: the plugin deletes them.
    """
    if driver in drivers:
        yield (
            f"another DRA driver named {driver} runs on this node, and each of the two would delete the other's "
            "ResourceSlices: end the pods with its claims and remove it, or set another dra.driver in "
            "node_devices_settings"
        )


def taken(plugins: Mapping[str, Any], names: list[str], mode: str, kinds: Iterable[str] = ()) -> Iterator[str]:
    """Yield one message if our plugin runs in another mode, and for other plugins that serve declared devices.

    plugins: the facts of the module node_preflight. names: the declared resources. mode: service or daemonset.
    kinds: the CDI kinds of other programs whose devices are declared.
    """
    yield from other_mode(plugins, mode)
    ours = (plugins["instance"] or {"resources": []})["resources"]
    foreign = [name for name in names if name in plugins["registered"] and name not in ours]
    if foreign and plugins["others"]:
        yield (
            f"another device plugin already serves {', '.join(foreign)} on this node (sockets of other plugins: "
            f"{', '.join(plugins['others'])}): remove that plugin first, or set device_plugin_takeover: true and "
            "remove it right after the run"
        )
    registered = plugins["registered"] if plugins["others"] else ()
    others = [name for name in registered if name not in {*names, *ours}]
    yield from offered_twice(others, plugins["drivers"], kinds)


def other_mode(plugins: Mapping[str, Any], mode: str) -> Iterator[str]:
    """Yield one message if our plugin runs in another mode. plugins, mode: as in ``taken``."""
    there = {"service": "service", "pod": "daemonset"}.get((plugins["instance"] or {}).get("mode"), mode)
    if there != mode:
        modes = {"service": "a systemd service", "daemonset": "a DaemonSet's pod"}
        yield (
            f"the plugin runs on this node as {modes[there]}, but device_plugin_mode is {mode}: set "
            f"device_plugin_mode: {there}, or device_plugin_takeover: true to switch the node"
        )


def removed(names: Iterable[str]) -> list[str]:
    """Return one message if a run removes resources from a node. names: the resources."""
    shown = ", ".join(sorted(names))
    return [f"this run removes {shown} from the node, because the declaration no longer has it"] if shown else []


def offered_twice(resources: Iterable[str], drivers: Iterable[str], kinds: Iterable[str]) -> Iterator[str]:
    """Yield one message for each kind if another program serves devices of the kind's vendor.

    resources: of other device plugins. drivers: names of DRA drivers.
    """
    for kind in kinds:
        vendor = kind.partition("/")[0]
        found = []
        for who, names in (("another device plugin serves", resources), ("a DRA driver serves", drivers)):
            its = [name for name in sorted(names) if f".{name.partition('/')[0]}".endswith("." + vendor)]
            found += [f"{who} {', '.join(its)}"] if its else []
        if found:
            yield (
                f"{' and '.join(found)} on this node, and the declaration offers devices of the CDI kind {kind}; the "
                "same device would go to two containers: remove the other program from the node, or the devices from "
                "the declaration"
            )


def _systemd(init: str) -> Iterator[str]:
    if init != "systemd":
        yield (
            f"the first process is {init or 'unknown'}, not systemd, which this collection needs on a node: if only "
            "the Kubernetes API should reach this node, set node_devices_api_only: true and device_plugin_mode: "
            "daemonset"
        )


def _kubelet(kubelet: Mapping[str, Any] | None) -> Iterator[str]:
    if kubelet is None:
        return
    version = kubelet["version"]
    if version is None:
        yield (
            f"the kubelet (process {kubelet['pid']}) prints no version with --version, so its CDI support is unknown: "
            "reinstall the kubelet, or set injection: device_nodes for the resources"
        )
    elif cdi_versions.version_tuple(version)[:2] < cdi_versions.FIRST_KUBELET:
        oldest = ".".join(map(str, cdi_versions.TESTED_KUBELETS[0]))
        yield (
            f"kubelet {version} silently drops CDI device names, so containers would start without their devices: "
            f"upgrade it to {oldest} or later, or set injection: device_nodes for the resources"
        )


def untested(requires: list[str], node: Mapping[str, Any]) -> list[str]:
    """Return one message if the kubelet's version is untested."""
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
                f"{path} does not exist, but device {wanted['device']} needs it: attach the device or load its "
                "driver, or set required: false to leave it out until it exists"
            )
        elif path in node["other_than_devices"]:
            yield (
                f"{path} is {node['other_than_devices'][path]}, not a device node, as device {wanted['device']} "
                "needs: declare the device nodes themselves (discover accepts patterns), or declare the path as a "
                "mount"
            )
    yield from _meeting(node["device_links"], device_paths)


def _meeting(links: Mapping[str, str], device_paths: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each exclusive device whose link leads to the node of an earlier one."""
    first: dict[str, tuple[str, str]] = {}
    for path, wanted in device_paths.items():
        if wanted["exclusive"]:
            target = links.get(path, path)
            other, device = first.setdefault(target, (path, wanted["device"]))
            if device != wanted["device"]:
                yield (
                    f"{path} of device {wanted['device']} and {other} of device {device} both lead to {target}, so two "
                    "containers would get one device: declare one device, or correct a link"
                )


def _host_paths(node: Mapping[str, Any], host_paths: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each missing path that a required device needs, or every device of a working resource."""
    missing, working = frozenset(node["missing_host_paths"]), frozenset(node["device_plugins"]["registered"])
    for path, wanted in host_paths.items():
        emptied = sorted(working.intersection(wanted["all_of"]))
        if path not in missing or not (wanted["required"] or emptied):
            continue
        harm = f": this would take all devices of {', '.join(emptied)} away" if emptied else ""
        optional = "" if emptied else ", or set required: false to leave the device out until the path exists"
        yield (
            f"{path} does not exist, but {wanted['who']} needs it ({wanted['field']}), so no container with the device "
            f"would start{harm}: create the path on the node, or change the declaration{optional}"
        )
