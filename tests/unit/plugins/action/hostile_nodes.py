"""Nodes whose Python and plugin answer what is prepared for them: an honest one, and four kinds of hostile ones.

Each node is a directory with a program ``python``, which answers each module, and a program ``node-device-plugin``.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support import answers
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import answer_shapes

#: A hostile node's expression. If anything evaluates it, the file exists.
EXPRESSION = "{{ lookup('ansible.builtin.pipe', 'touch %s') }}"
#: What the shapes' examples cannot have, because actions compare it.
_PREFLIGHT = {
    "python": {"version": [3, 11, 2], "executable": "/usr/bin/python3", "obstacle": None, "hidden_root": None},
    "uid": 0,
    "init": "systemd",
    "runtime": {
        "socket": "/run/containerd/containerd.sock",
        "pid": 7,
        "name": "containerd",
        "version": "2.1.9",
        "unit": "containerd.service",
        "obstacles": [],
    },
    "converged": {},
    "kubelet": None,
    "kubelet_problem": None,
    "identity": {"name": None, "machine_id": None, "system_uuid": None},
    "missing_devices": [],
    "missing_host_paths": [],
    "other_than_devices": {},
    "device_links": {},
    "cdi_directories": [],
    "cdi_files": [],
    "claims_prepared": [],
    "spec_devices": [],
    "device_plugins": {"instance": None, "registered": [], "others": [], "drivers": []},
    "ledger": [],
    "transaction_left": False,
    "locked_by": None,
    "accounts": {},
}
_FACTS = {"ansible_hostname": "its-name", "ansible_interfaces": ["lo", "eth0"], "ansible_eth0": {"device": "eth0"}}
#: Keys of an answer that set variables.
VARIABLES: dict[str, Any] = {
    "ansible_facts": {
        "ansible_become_exe": "/hostile",
        "ansible_connection": "hostile",
        "ansible_python_interpreter": "/hostile",
        "ansible_hostile": "hostile",
        "canary": "hostile",
        "device_plugin_deployment": {"image": "hostile"},
        "discovered_interpreter_python": "/hostile",
    },
    "add_host": {"host_name": "other", "groups": ["hostile"], "host_vars": {"canary": "hostile"}},
    "add_group": "hostile",
    "ansible_stats": {"data": {"hostile": 1}, "per_host": True},
}
#: Other keys that Ansible obeys, or that an action takes from the controller.
OTHERS: dict[str, Any] = {
    "_ansible_no_log": True,
    "_ansible_verbose_always": True,
    "_ansible_delegated_vars": {"ansible_host": "hostile"},
    "declaration": {"resources": []},
    "deprecations": "hostile",
    "environment": {"HOSTILE": "1"},
    "exception": "hostile \x1b[2J",
    "include": "/etc/passwd",
    "invocation": {"module_args": "hostile"},
    "read_in": "hostile",
    "results": {"hostile": 1},
    "unreachable": True,
    "hostile": "hostile",
}
_PROGRAMS = {
    # Ansible writes the module, whose wrapper has its name, to the interpreter's stdin.
    "python": r"""module=$(sed -n "s/^ansible_module='[a-z._]*\.\([a-z_]*\)',$/\1/p")""",
    "node-device-plugin": 'module=command-$1; [ "$2" != --by-cdi ] || module="$module $2"; cat >/dev/null',
}


def example(shape: Any) -> Any:
    """The least data of a shape that has every key."""
    if isinstance(shape, dict):
        if list(shape) == [...]:
            return {"a": example(shape[...])}
        return {key.removesuffix("?"): example(each) for key, each in shape.items() if key is not ...}
    if isinstance(shape, list):
        return [example(shape[0])]
    if isinstance(shape, answers.Null):
        return example(shape.shape)
    if isinstance(shape, answers.Within):
        return shape.least
    return {str: "a", bool: False, int: 1, float: 1.5}.get(shape, "a")


def honest() -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers of the modules and of the plugin's commands."""
    modules = {name: {"changed": False, "msg": "a", **example(shape)} for name, shape in answer_shapes.MODULES.items()}
    modules["node_preflight"].update(_PREFLIGHT)
    del modules["node_preflight"]["ledger_problem"]
    modules["cdi_specs"]["in_use"] = []
    modules["setup"]["ansible_facts"] = dict(_FACTS)
    modules["node_scan"]["scan"]["resources"][0]["declaration"] = {
        "name": "a.example/scanned",
        "discover": {"paths": ["/x"]},
    }
    commands = {name: example(shape) for name, shape in answer_shapes.COMMANDS.items()}
    return modules, commands


def with_variables(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with everything that sets a variable."""
    facts = {**answer.get("ansible_facts", {}), **VARIABLES["ansible_facts"]}
    return {**VARIABLES, **answer, "ansible_facts": facts}


def replaced(data: Any, replace: Any, path: tuple[str, ...] = ()) -> Any:
    """An answer with other leaves. replace: gets a leaf and its path."""
    if isinstance(data, dict):
        return {key: replaced(each, replace, (*path, key)) for key, each in data.items()}
    if isinstance(data, list):
        return [replaced(each, replace, path) for each in data]
    return replace(data, path)


def make(directory: pathlib.Path, canary: pathlib.Path) -> list[str]:
    """Make all nodes below a directory. Returns their names, which are the kinds."""
    expression = EXPRESSION % canary
    # These have a form that an expression does not have.
    formed = ("version", "installed_version")

    def templated(leaf: Any, path: tuple[str, ...]) -> Any:
        return f"{leaf} {expression}" if isinstance(leaf, str) and path[-1] not in formed else leaf

    def trusted(leaf: Any, _path: tuple[str, ...]) -> Any:
        tag = {"__ansible_type": "TrustedAsTemplate"}
        tagged = {"__ansible_type": "_AnsibleTaggedStr", "value": expression, "tags": [tag]}
        return tagged if isinstance(leaf, str) else leaf

    def an_object(leaf: Any, _path: tuple[str, ...]) -> Any:
        event = {"__ansible_type": "Event", "msg": expression}
        return {"__ansible_type": "WarningSummary", "event": event} if isinstance(leaf, str) else leaf

    kinds = {
        "honest": lambda answer: answer,
        "facts": with_variables,
        "keys": lambda answer: {**OTHERS, **answer},
        "templates": lambda answer: replaced(answer, templated),
        "tags": lambda answer: replaced(answer, trusted),
        "objects": lambda answer: replaced(answer, an_object),
        "types": lambda answer: replaced(answer, lambda leaf, _path: [[leaf]]),
        "deep": lambda answer: dict.fromkeys(answer, json.loads("[" * 300 + "]" * 300)),
        "endless": lambda answer: {**answer, "msg": "a" * (answers.LONGEST + 1)},
    }
    modules, commands = honest()
    for kind, change in kinds.items():
        node = directory / kind
        node.mkdir()
        for name, answer in modules.items():
            (node / f"{name}.json").write_text(json.dumps(change(answer)))
        for name, answer in commands.items():
            (node / f"command-{name}.json").write_text(json.dumps(change(answer)))
        for name, program in _PROGRAMS.items():
            (node / name).write_text(f'#!/bin/sh\n{program}\ncat "${{0%/*}}/$module.json"\n')
            (node / name).chmod(0o755)
    return list(kinds)
