# SPDX-License-Identifier: Apache-2.0
"""Looks at a node once, and says in plain sentences what stands in the way."""

from __future__ import annotations

import re

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration, requirements, specs, tool

# What shells say of a program that is not there.
_MISSING = re.compile("not found|no such file")


class ActionModule(ActionBase):
    """One read-only module execution; none where the result is known already."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        arguments = {key: value for key, value in self._task.args.items() if value is not None}
        requires = arguments.pop("requires", [])
        requires = requires.split(",") if isinstance(requires, str) else list(requires)
        known = arguments.pop("known", None)
        command = arguments.pop("command", None)
        if command:
            arguments["commands"] = [command]
        cdi = boolean(arguments.pop("cdi", True))
        declared = declaration.plain(arguments.pop("declaration", None))
        device_paths = declaration.plain(arguments.get("device_paths") or {})
        if known:
            facts = declaration.plain(known)
        else:
            try:
                facts = self._execute_module(
                    module_name="nodedevices.kubernetes.node_facts", module_args=arguments, task_vars=task_vars
                )
            except AnsibleConnectionFailure:
                raise
            except Exception as error:
                facts = {"failed": True, "msg": str(error)}
        host = task_vars.get("inventory_hostname", "")
        if facts.get("failed") or "runtime" not in facts:
            sentences = [_no_python(facts, task_vars)]
        else:
            of_node = [name for name in requires if name != "command"]
            sentences = requirements.unmet(of_node, facts, device_paths, cdi)
            if "command" in requires and not self._has(command, facts):
                sentences.append(str(tool.ToolMissing(command)))
            if declared and facts["runtime"].get("version"):
                sentences += _refused_specs(declared, facts)
            if not sentences:
                result.update(facts)
        result["changed"] = False
        if sentences:
            result.update(
                failed=True,
                msg="The node is not ready; nothing was written on it.\n"
                + "\n".join(f"{host}: {sentence}" for sentence in sentences),
            )
        return result

    def _has(self, command, facts):
        """Whether the command is there; in check mode it would have been installed by now."""
        if self._task.check_mode or command in facts["commands"]:
            return True
        # What is known may be from before it was installed.
        return tool.is_there(self, command)


def _refused_specs(declared, facts):
    """A sentence for each declared CDI spec that the runtime would refuse, or somebody else's spec stands against."""
    node_specs = specs.Specs(declared["cdi_specs"], declared["cdi_kinds"], facts)
    try:
        node_specs.check(node_specs.leftovers)
    except specs.SpecsError as error:
        return error.lines
    return []


def _no_python(facts, task_vars):
    """A sentence for a module that did not come back with facts."""
    said = str(facts.get("module_stderr") or facts.get("module_stdout") or facts.get("msg") or "").strip()
    text = f"{said}\n{facts.get('msg', '')}".lower()
    interpreter = str(task_vars.get("ansible_python_interpreter") or "auto")
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
