# SPDX-License-Identifier: Apache-2.0
"""Predicts, during the preflight check, the results of modules that would change nothing.

Each function returns the module's complete result, or None if the module would change something or may fail. After
None, the play executes the module. A function raises LedgerConflict if the module would certainly refuse the node.
Then the preflight refuses the node before any role changes it. Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import copy

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import VersionError, is_complete
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.environments import Environments
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.host_devices import HostDevices
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, LedgerConflict
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.service import Service, run


class _InCheckMode:
    """Replaces another module's AnsibleModule in check mode. Runs commands through the current module."""

    check_mode = True

    def __init__(self, module, params):
        self.params = params
        self._module = module

    def run_command(self, command, check_rc=False):
        return self._module.run_command(command, handle_exceptions=False)

    def warn(self, warning):
        """Raise ValueError, because a predicted result has no warnings."""
        raise ValueError(warning)


def node_tools(module, params):
    """Return the result of module node_tools for the current environment, or None."""
    defaults = {"timeout": 0, "retry": False}
    try:
        ledger = Ledger()
        environments = Environments(_InCheckMode(module, {**defaults, **params, "keep": int(params["keep"])}), ledger)
        versions, known = environments.versions, copy.deepcopy(ledger.entries)
        name = versions.current()
        if not name or versions.is_open() or not is_complete(versions.directory(name), name):
            return None
        links = [item["path"] for item in environments.wanted(name, None) if item["kind"] == "link"]
        report = environments.converge("present", name)
    except (LedgerConflict, VersionError, OSError, ValueError):
        return None
    # Only the module itself repairs a lost or incomplete ledger.
    if report.changed or report.kept or ledger.entries != known or not known.keys() >= set(links):
        return None
    return environments.answer(report)


def service(module, params):
    """Return the result of module service for a unit with unchanged files, or None."""
    try:
        unit = Service(_InCheckMode(module, {"pending": False, "pending_reload": False, **params}))
        run(unit, unit.module.params)
    except (OSError, KeyError):
        # The node has no systemd.
        return None
    # Only the module itself records with which files the unit started.
    return unit.answer() if unit.is_recorded and not unit.actions else None


def host_devices(module, params):
    """Return the result of module host_devices for devices that exist as wanted, or None. Raises LedgerConflict."""
    try:
        ledger = Ledger()
    except (LedgerConflict, OSError, ValueError):
        # The preflight reports this error.
        return None
    try:
        host = HostDevices(_InCheckMode(module, params), ledger)
        host.converge()
    except (OSError, ValueError):
        return None
    # Only the module itself repairs a lost ledger.
    if host.more["changed"] or host.leftovers or host.report.kept or not host.is_recorded:
        return None
    return node_module.answer(host.report, **host.more)


_MODULES = {"node_tools": node_tools, "service": service, "host_devices": host_devices}


def answers(module, asked):
    """Return the arguments and the answer of each module in ``asked`` that would change nothing, by module name.

    If a module would refuse the node, its answer is None, and ``refused`` has the message.
    """
    found = {}
    for name, params in asked.items():
        try:
            answer, refused = _MODULES[name](module, params), {}
        except LedgerConflict as conflict:
            answer, refused = None, {"refused": str(conflict)}
        if answer is not None or refused:
            found[name] = {"arguments": params, "answer": answer, **refused}
    return found
