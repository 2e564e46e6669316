# SPDX-License-Identifier: Apache-2.0
"""Answers for modules in check mode, all in one execution of the preflight check."""

from __future__ import annotations

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from . import cdi_runtime, cdi_specs, files, host_devices, node_tools, service
from .node import Node

#: The converge functions' files, by the name of their module. Each role registers its module here.
CONVERGE = {
    "cdi_runtime": cdi_runtime,
    "cdi_specs": cdi_specs,
    "host_devices": host_devices,
    "managed_files": files,
    "node_tools": node_tools,
    "service": service,
}


def answers(module, asked, facts=None):
    """Return the answers of converge functions in check mode.

    asked: for each module's name, a list of its arguments. facts: as of `Node`. Returns a list of the same length for
    each name. An item has ``answer`` and ``has_unshown_work``. The item is None if only the module itself can say what
    is wrong.
    """
    return {name: [_answer(module, CONVERGE[name], params, facts) for params in each] for name, each in asked.items()}


def _answer(module, file, params, facts):
    validated = ArgumentSpecValidator(file.PARAMS, **getattr(file, "CHECKS", {})).validate(params)
    if validated.error_messages:
        return None
    node = Node(module, check_mode=True, facts=facts)
    try:
        answer = node.converged(file.converge, validated.validated_parameters)
    except (OSError, KeyError, ValueError):
        return None
    return {"answer": answer, "has_unshown_work": node.has_unshown_work}
