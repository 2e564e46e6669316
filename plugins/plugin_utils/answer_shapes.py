# SPDX-License-Identifier: Apache-2.0
"""The shapes of the answers of modules and of the plugin's commands on a node. See answers.shaped.

A new key of a module's result needs an entry here. Otherwise the controller removes the key.
"""

from __future__ import annotations

from typing import Any

from ...plugin.node_device_plugin.status_api.shapes import MOST_RESOURCES, STATUS
from ...plugin.node_device_plugin.support.answers import ANY, Matching, Null, Within

_TEXTS = [str]
_PID = Within(0, (1 << 31) - 1)
_COUNT = Within(0, 1_000_000)
# The controller expands versions into lists of platform tags.
_VERSION_PART = Within(0, 999)
_VERSION = Null(Matching(r"\S{1,100}", "a version"))

#: The keys that a module's answer may have in addition to its own.
OF_EVERY_MODULE: dict[str, Any] = {
    "changed?": bool,
    "failed?": bool,
    "skipped?": bool,
    "msg?": str,
    "rc?": Null(int),
    "stdout?": str,
    "stderr?": str,
    "module_stdout?": str,
    "module_stderr?": str,
}

_FILES: dict[str, Any] = {
    "written?": _TEXTS,
    "contents?": _TEXTS,
    "edited?": _TEXTS,
    "removed?": _TEXTS,
    "kept?": [{"path": str, "reason": str}],
    "diff?": [{...: str}],
}
_HOST_DEVICES = {**_FILES, "actions?": _TEXTS, "leftovers?": bool, "in_use?": _TEXTS}
_NODE_TOOLS = {
    **_FILES,
    "environment?": str,
    "incomplete?": bool,
    "target?": str,
    "was?": Null(str),
    "restarted?": bool,
    "seconds?": float,
}
_CDI_SPECS = {
    **_FILES,
    "files?": _TEXTS,
    "devices?": [{"device": str, "reason": str}],
    **dict.fromkeys(("in_use?", "crashing?", "broken?"), _TEXTS),
}
_SERVICE = {"actions?": _TEXTS, "invocation_id?": Null(str)}

_CDI = {"enabled": Null(bool), "always_on?": Null(bool), "spec_dirs": Null(_TEXTS)}
_RUNTIME = {
    "socket": str,
    "problem?": Null(str),
    "pid?": _PID,
    "name?": str,
    "version?": _VERSION,
    "unit?": Null(str),
    "obstacles?": _TEXTS,
}
#: The answer of module cdi_runtime.
_CDI_RUNTIME = {
    **_FILES,
    "kept?": _TEXTS,
    "restarted?": bool,
    "seconds?": Null(float),
    "answers?": bool,
    "other_release?": bool,
    "begun?": bool,
    "error?": Null(str),
}
_KUBELET = {
    "pid": _PID,
    "unit?": Null(str),
    "version": _VERSION,
    "root_dir": str,
    "kubeconfig?": Null(str),
    "max_pods?": Null(int),
    "static_pod_path?": Null(str),
    "cri_socket?": Null(str),
    ...: ANY,
}
_LOCK = {
    "owner": str,
    "who": str,
    "play": str,
    "controller": str,
    "pid": _PID,
    "host?": str,
    "since": float,
    "until": float,
}


_SCAN_DEVICE = {"id": str, "what": str, "nodes": [{"path": str, "host_path": str}], "cdi_devices?": _TEXTS}
#: The answer of the command ``scan``.
_SCAN = {
    "resources": [{"class": str, "about": str, "declaration": ANY, "devices": [_SCAN_DEVICE]}, MOST_RESOURCES],
    "unsuggested": [{"class": str, "what": str, "nodes": _TEXTS, "address": str, "reason": str}],
    "problems": _TEXTS,
}


def _converged(answer: dict[str, Any]) -> list[Any]:
    """Return the shape of a module's answers in check mode."""
    of_every = {"changed": bool, "warnings": _TEXTS, "problems?": _TEXTS}
    return [Null({"answer": {**of_every, **answer}, "has_unshown_work": bool})]


#: The answers of the collection's modules, and of Ansible's modules that actions of the collection execute.
MODULES: dict[str, dict[str, Any]] = {
    "cdi_runtime": _CDI_RUNTIME,
    "command": {"start?": Null(str), "end?": Null(str), "delta?": Null(str)},
    "setup": {"ansible_facts?": {...: ANY}},
    "host_devices": _HOST_DEVICES,
    "cdi_specs": _CDI_SPECS,
    "managed_files": _FILES,
    "node_lock": {},
    "node_preflight": {
        "python": {
            "version": [_VERSION_PART],
            "executable": str,
            "obstacle?": Null(str),
            "hidden_root?": Null(str),
            ...: ANY,
        },
        "uid": int,
        "init": str,
        "runtime": _RUNTIME,
        "converged": {
            "cdi_runtime?": _converged(_CDI_RUNTIME),
            "cdi_specs?": _converged(_CDI_SPECS),
            "host_devices?": _converged(_HOST_DEVICES),
            "managed_files?": _converged(_FILES),
            "node_tools?": _converged(_NODE_TOOLS),
            "service?": _converged(_SERVICE),
        },
        "kubelet": Null(_KUBELET),
        "kubelet_problem": Null(str),
        "claims_prepared": [{"name": str, "driver": Null(str), "directory": str}],
        "dra?": {"problem": Null(str), "paths": _TEXTS},
        "identity": {"name": Null(str), "machine_id": Null(str), "system_uuid": Null(str)},
        "missing_devices": _TEXTS,
        "device_links": {...: str},
        "other_than_devices": {...: str},
        "missing_host_paths": _TEXTS,
        "accounts": {...: {...: Null(Within(0, (1 << 32) - 1))}},
        "commands": _TEXTS,
        "device_plugins": {
            "instance": Null({"mode": str, "resources": _TEXTS}),
            "registered": _TEXTS,
            "others": _TEXTS,
            "drivers": _TEXTS,
        },
        "cdi_directories": _TEXTS,
        "cdi_files": _TEXTS,
        "spec_devices": _TEXTS,
        "ledger": _TEXTS,
        "ledger_problem?": str,
        "transaction_left": bool,
        "locked_by": Null(_LOCK),
    },
    "node_scan": {"scan": _SCAN},
    "node_tools": _NODE_TOOLS,
    "service": _SERVICE,
}

_HOLDERS = {
    "source": str,
    "held": [
        {
            "resource": str,
            "device": str,
            "namespace": str,
            "pod": str,
            "container": str,
            "host_paths": _TEXTS,
            "all_host_paths?": _TEXTS,
            "by_our_cdi": bool,
            "cdi_names?": _TEXTS,
            "claim?": str,
        }
    ],
    "allocatable": {...: _TEXTS},
    "unanswered?": Null(str),
}
#: The answers of the plugin's commands, by the command's words.
COMMANDS: dict[str, dict[str, Any]] = {
    "holders": _HOLDERS,
    "cdi prune": {"removed?": _TEXTS, "kept?": _TEXTS, "holders?": {...: str}},
    "runtime": {
        "cdi": _CDI,
        "containers?": [{"id": str, "pid": _PID, "unit": Null(str)}],
        ...: ANY,
    },
    "status": {
        "plugin": Null(STATUS),
        "problem": str,
        **_HOLDERS,
        "losses?": [{"resource": str, "device": str, "text": str, "fails?": bool}],
    },
    "verify": {
        "runtime": str,
        "kubelet": str,
        "resources": [
            {
                "resource": str,
                "capacity": _COUNT,
                "healthy": _COUNT,
                "seen": _TEXTS,
                "state": str,
                "detail": str,
                "shares?": _COUNT,
                "absent?": _TEXTS,
            },
            MOST_RESOURCES,
        ],
        "problems": _TEXTS,
        "proven": {...: str},
        "proven_before": {...: str},
        "image": Null(str),
        "warnings?": _TEXTS,
    },
}
