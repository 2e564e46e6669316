# SPDX-License-Identifier: Apache-2.0
"""Holds a host's variables to the argument specs of several roles; see plugins/modules/role_arguments.py."""

from __future__ import annotations

import pathlib
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase

_ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"
# Written in C where the controller's PyYAML has that: some specs are long.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ActionModule(ActionBase):
    """As each role does at its begin, for all of them at once."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        options: dict[str, Any] = {}
        for role in self._task.args["roles"]:
            options.update(_options(str(role)))
        given = {name: task_vars[name] for name in options if name in task_vars}
        problems = (
            ArgumentSpecValidator(options)
            .validate(self._templar.template(given), validate_role_argument_spec=True)
            .error_messages
        )
        result["changed"] = False
        if problems:
            host = task_vars.get("inventory_hostname", "")
            result.update(failed=True, msg="\n".join(f"{host}: {problem}" for problem in problems))
        return result


def _options(role):
    path = _ROLES / role / "meta" / "argument_specs.yml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise AnsibleError(f"roles: there is no role {role} with argument specs ({path}: {error.strerror})") from error
    return yaml.load(text, Loader=_LOADER)["argument_specs"]["main"]["options"]
