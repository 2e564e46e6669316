# SPDX-License-Identifier: Apache-2.0
"""What modules would answer that find nothing to do, asked while the node is looked at.

Each function gives the module's whole answer, or None where the module has something to do, or to refuse. Then the play
executes the module, which looks again. Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import copy

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import VersionError, is_complete
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.environments import Environments
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, LedgerConflict
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.service import Service, run


class _InCheckMode:
    """The module that is executed, in place of another one in check mode."""

    check_mode = True

    def __init__(self, module, params):
        self.params = params
        self._module = module

    def run_command(self, command, check_rc=False):
        return self._module.run_command(command, handle_exceptions=False)


def node_tools(module, params):
    """The answer of module node_tools for the environment that is current."""
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
    # A ledger that was lost, or that a power cut left behind, is put right by an execution.
    if report.changed or report.kept or ledger.entries != known or not known.keys() >= set(links):
        return None
    return environments.answer(report)


def service(module, params):
    """The answer of module service for a unit whose files do not change."""
    try:
        unit = Service(_InCheckMode(module, {"pending": False, "pending_reload": False, **params}))
        run(unit, unit.module.params)
    except (OSError, KeyError):
        # There is no systemd.
        return None
    return None if unit.actions else unit.answer()


_MODULES = {"node_tools": node_tools, "service": service}


def answers(module, asked):
    """For each module of ``asked``, by its arguments: these, and the answer."""
    found = {name: _MODULES[name](module, params) for name, params in asked.items()}
    return {name: {"arguments": asked[name], "answer": answer} for name, answer in found.items() if answer is not None}
