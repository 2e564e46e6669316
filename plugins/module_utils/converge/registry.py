# SPDX-License-Identifier: Apache-2.0
"""Answers for modules in check mode, all in one execution of the preflight check.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

from ansible.module_utils.common.arg_spec import ModuleArgumentSpecValidator
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge.node import Node

#: The converge functions' files, by the name of their module. A role's module is registered here.
CONVERGE = {}


def answers(module, asked):
    """Return the answers of converge functions in check mode.

    asked: for each module's name, a list of its arguments. Returns a list of the same length for each name. An item has
    ``answer`` and ``has_unshown_work``. The item is None if only the module itself can say what is wrong.
    """
    return {name: [_answer(module, CONVERGE[name], params) for params in each] for name, each in asked.items()}


def _answer(module, file, params):
    validated = ModuleArgumentSpecValidator(file.PARAMS).validate(params)
    if validated.errors:
        return None
    node = Node(module, check_mode=True)
    try:
        answer = node.converged(file.converge, validated.validated_parameters)
    except (OSError, KeyError, ValueError):
        return None
    return {"answer": answer, "has_unshown_work": node.has_unshown_work}
