# SPDX-License-Identifier: Apache-2.0
"""Compares a node with what site.yml would write there, without any command on the node.

The ledger has the content of each file as a run wrote it, and whether the file still has this content.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment import environments
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.host_device_files import NODES
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import host_devices, role_files

#: Roles whose files on a node no one else changes.
_OWNERS = ("cdi_specs", "device_plugin", "extended_resources", "host_devices")
_KINDS = ("file", "link")


class Wanted(NamedTuple):
    """What site.yml would write on a node.

    files: the sha256 of each file, by role and path; a role that is missing is not compared.
    paths: other paths that the ledger must have. environment: name of the plugin's environment. root: node_tools_root.
    """

    files: Mapping[str, Mapping[str, str]]
    paths: Iterable[str]
    environment: str
    root: str


def wanted(
    action: Any, task_vars: Mapping[str, Any], declared: Mapping[str, Any], facts: Mapping[str, Any], environment: str
) -> Wanted:
    """Return what site.yml would write. Raises any exception of an expression.

    declared: the result of module declaration. facts: of module node_preflight. environment: name of the service's
    environment; empty if the plugin is no service.
    """
    # Devices that a pod may still hold stay in the specs.
    looked = (facts.get("converged") or {}).get("cdi_specs") or [None]
    specs = (looked[0] or {}).get("answer", {}).get("files")
    files: dict[str, Mapping[str, str]] = {} if specs is None else {"cdi_specs": specs}
    if environment:
        rendered = role_files.service(action, task_vars, declared)
        files["device_plugin"] = {path: _digest(text.encode()) for path, text in rendered.items()}
    names = ("modules", "udev_rules", "nodes")
    makers = {name: role_files.value(action, task_vars, f"host_devices_{name}") or [] for name in names}
    if not host_devices.problems(**makers):
        made = host_devices.files(**makers)
        # A pod may hold a device node that is no longer declared, which keeps its line.
        files["host_devices"] = {file["path"]: _digest(file["content"]) for file in made if file["path"] != NODES}
    root = role_files.value(action, task_vars, "node_tools_root") or "/opt/node-devices"
    return Wanted(files, [node["path"] for node in makers["nodes"]], environment, str(root))


def found(facts: Mapping[str, Any], wanted: Wanted) -> Iterator[str]:
    """Yield one line for each difference. facts: of module node_preflight."""
    ledger, settled = facts["ledger"], facts["settled"]
    present = {file["path"]: file.get("sha256") for file in facts["cdi_files"]}
    for owner in _OWNERS:
        own = {path: entry for path, entry in ledger.items() if entry.get("owner") == owner and entry["kind"] in _KINDS}
        its = wanted.files.get(owner, {})
        differing = [path for path in its if ledger.get(path, {}).get("sha256") != its[path]]
        if owner in wanted.files:
            differing += [path for path in own if path not in its and path != NODES]
        if differing:
            yield f"{', '.join(sorted(differing))}: not as declared: run site.yml"
        if own and owner not in settled:
            # The facts have the present content only of CDI specs.
            shown = [
                path for path in own if owner == "cdi_specs" and own[path].get("sha256") != present.get(path)
            ] or own
            yield f"{' or '.join(sorted(shown))}: changed or removed on the node since the last run: run site.yml"
    missing = sorted(path for path in wanted.paths if path not in ledger)
    if missing:
        yield f"{', '.join(missing)}: role host_devices has not created this device node: run site.yml"
    installed = _other_version(ledger, wanted)
    failed = posixpath.join(wanted.root, environments.FAILED)
    if installed and failed in ledger:
        yield (
            f"version {installed} stays in use, because an upgrade failed its health check on this node ({failed} has "
            "the reason): fix the cause, then run site.yml -e node_tools_retry=true"
        )
    elif installed and not rolled_back(facts, wanted):
        yield f"version {installed} is installed, but this collection installs {wanted.environment}: run site.yml"


def rolled_back(facts: Mapping[str, Any], wanted: Wanted) -> str:
    """Return a sentence if someone rolled this collection's version back; empty otherwise.

    A rollback keeps the version's environment and removes the link ``previous``.
    """
    ledger = facts["ledger"]
    installed = _other_version(ledger, wanted)
    others = {posixpath.join(wanted.root, name) for name in ("previous", environments.FAILED)}
    there = posixpath.join(wanted.root, "versions", wanted.environment)
    if not installed or there not in ledger or not others.isdisjoint(ledger):
        return ""
    return (
        f"version {installed} is in use, and {wanted.environment} is installed beside it, as after rollback.yml: "
        "site.yml upgrades this node again"
    )


def _other_version(ledger: Mapping[str, Any], wanted: Wanted) -> str:
    """Return the version in use if this collection installs another version."""
    installed = posixpath.basename(ledger.get(posixpath.join(wanted.root, "current"), {}).get("target", ""))
    return installed if wanted.environment and installed != wanted.environment else ""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
