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
        mode, takeover = arguments.pop("mode", None), boolean(arguments.pop("takeover", False))
        directory = (declared or {}).get("kubelet_device_plugin_dir")
        if directory:
            arguments["device_plugin_dir"] = directory
        device_paths = declaration.plain(arguments.get("device_paths") or {})
        settled = None
        if known:
            facts = declaration.plain(known)
        else:
            facts = self._on_node("node_facts", arguments, task_vars)
            if facts.get("transaction_left"):
                facts, settled = self._settled(facts, arguments, task_vars)
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
            if declared and mode and not takeover:
                names = [resource["name"] for resource in declared["resources"]]
                sentences += requirements.taken(facts["device_plugins"], names, mode)
            if not sentences:
                result.update(facts)
        result["changed"] = settled is not None
        if settled:
            result["warnings"] = [f"{host}: {settled}"]
        if sentences:
            result.update(
                failed=True,
                msg="The node is not ready; nothing was written on it.\n"
                + "\n".join(f"{host}: {sentence}" for sentence in sentences),
            )
        return result

    def _on_node(self, module, arguments, task_vars):
        try:
            return self._execute_module(
                module_name=f"nodedevices.kubernetes.{module}", module_args=arguments, task_vars=task_vars
            )
        except AnsibleConnectionFailure:
            raise
        except Exception as error:
            return {"failed": True, "msg": str(error)}

    def _settled(self, facts, arguments, task_vars):
        """The node as it is once what an earlier run left is finished or undone, and what became of that."""
        outcome = self._on_node("runtime_config", {"do": "recover"}, task_vars)
        if outcome.get("failed"):
            return outcome, None
        if not self._task.check_mode:
            facts = self._on_node("node_facts", arguments, task_vars)
        return facts, _became(outcome, self._task.check_mode)

    def _has(self, command, facts):
        """Whether the command is there; in check mode it would have been installed by now."""
        if self._task.check_mode or command in facts["commands"]:
            return True
        # What is known may be from before it was installed.
        return tool.is_there(self, command)


def _became(outcome, check_mode):
    """What became of a change of the runtime's configuration that an earlier run did not see to its end."""
    change = "an earlier change of the container runtime's configuration, whose run was cut off,"
    if check_mode:
        return f"{change} is there; the next run finishes or undoes it first, so what is said here may be of its midst"
    if outcome["error"]:
        return f"{change} has been undone: {outcome['error']}"
    return f"{change} has been finished" if outcome["begun"] else f"{change} had not been begun"


def _refused_specs(declared, facts):
    """A sentence for each declared CDI spec that the runtime would refuse, or somebody else's spec stands against."""
    node_specs = specs.Specs(declared, facts)
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
