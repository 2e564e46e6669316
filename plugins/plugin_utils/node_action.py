# SPDX-License-Identifier: Apache-2.0
"""The base of all actions: a node's answer is text about that node, and nothing else, and vaulted values stay hidden.

Ansible itself lets a module's answer set variables (``ansible_facts``), add hosts with variables (``add_host``), and
control how a result is handled (``_ansible_...``). Here an answer keeps only the keys of its shape (answer_shapes), and
an action's result has no such key, whatever its parts come from.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.common.json import Direction, get_module_decoder
from ansible.module_utils.json_utils import _filter_non_json_lines
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ...plugin.node_device_plugin.support import answers
from . import answer_shapes, node_code, preflight
from .declaration import plain
from .vaulted import Values, values_of

#: Keys of a result that Ansible obeys.
_OBEYED = frozenset(("ansible_facts", "add_host", "add_group", "ansible_stats", "include", "include_args", "results"))
#: Keys of a result whose texts Ansible or a playbook prints.
_PRINTED = ("msg", "warnings", "problems", "diff")
#: Keys of a result that only people read. Later tasks of a play need the other keys.
_SHOWN = frozenset(
    ("diff", "msg", "warnings", "exception", "invocation", "module_stdout", "module_stderr", "stdout", "stderr")
)
#: Maps options that a task may omit to the host variables with their defaults.
_OF_THE_HOST = {
    "kubeconfig": "node_devices_kubeconfig",
    "node_name": "node_devices_node_name",
    "cri_socket": "node_devices_cri_socket",
    "mode": "device_plugin_mode",
    "deployment": "device_plugin_deployment",
}

# For each task of a host, Ansible forks itself. The fork shares all memory until it writes there, and a full garbage
# collection writes to each object.
os.register_at_fork(after_in_child=gc.freeze)


class NodeAction(ActionBase):
    """An action that uses a node's answers only as plain data of a known shape, and hides vaulted values in its result.

    If a successful result still contains a vaulted value, because a later task needs the value, Ansible does not show
    the result (``no_log``). A subclass defines `act`, never ``run``.
    """

    #: Options of the task whose default is a host variable.
    of_the_host: tuple[str, ...] = ()
    #: Whether only people read the result, so that vaulted values are hidden in the whole result.
    only_shown = False
    #: Whether the result may have ``ansible_facts``, which the action has checked.
    gives_facts = False
    #: Whether a module may answer that the node does not have the code, instead of the keys of its shape.
    _may_lack_code = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        """Return the result of `act` with what the preflight said and changed.

        The result has neither keys that Ansible obeys nor vaulted values.
        """
        result = super().run(tmp, task_vars)
        self._vars = task_vars or {}
        self.preflight = preflight.Preflight(self, self._vars)
        self.host = self.preflight.host
        try:
            result.update(self.act(self._given()))
        except preflight.ERRORS as error:
            result.update(failed=True, changed=False, msg=self.preflight.message(error))
        return self._hidden(self._with_host(self._guarded(self.preflight.told(result))))

    def _given(self) -> dict[str, Any]:
        """Return the task's arguments as plain data, without omitted arguments."""
        given: dict[str, Any] = plain({key: value for key, value in self._task.args.items() if value is not None})
        for option in self.of_the_host:
            value = None if option in given else self.preflight.variable(_OF_THE_HOST[option])
            if value is not None:
                given[option] = value
        return given

    def act(self, given: dict[str, Any]) -> dict[str, Any]:
        """Do the task, and return its result. given: the task's arguments. May raise preflight.ERRORS."""
        raise NotImplementedError

    def _guarded(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return a result as plain data, without keys that Ansible obeys."""
        kept = {key: each for key, each in result.items() if key not in _OBEYED and not key.startswith("_ansible_")}
        try:
            kept = answers.plain(kept, "the result")
        except answers.AnswerError as error:
            return {"failed": True, "changed": False, "msg": str(error)}
        kept.update({key: answers.legible(kept[key]) for key in _PRINTED if key in kept})
        facts = dict(result.get("ansible_facts") or {}) if self.gives_facts else {}
        discovered = getattr(self, "_discovered_interpreter_key", None)
        # With run_once, Ansible would store the interpreter of one host for all hosts.
        if discovered and not getattr(self._task, "run_once", False):
            facts[discovered] = answers.plain(self._discovered_interpreter)
        return {**kept, "ansible_facts": facts} if facts else kept

    def _with_host(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result with a host's name in each warning: Ansible prints equal warnings once, without a name."""
        if not self.host or not result.get("warnings"):
            return result
        hosts = {self.host, *(self._vars.get("groups") or {}).get("all", ())}
        named = [each if each.partition(": ")[0] in hosts else f"{self.host}: {each}" for each in result["warnings"]]
        return {**result, "warnings": named}

    def _hidden(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return a result without vaulted values, except for later tasks of the play."""
        values = self._values(self._vars)
        if not values:
            return result
        if self.only_shown or result.get("failed"):
            hidden: dict[str, Any] = values.hide(result)
            return hidden
        result = {key: values.hide(value) if key in _SHOWN else value for key, value in result.items()}
        return {**result, "_ansible_no_log": True} if values.found_in(result) else result

    def _values(self, task_vars: Any) -> Values:
        """Return the host's vaulted values."""
        if not hasattr(self, "_vaulted"):
            self._vaulted = values_of(self, task_vars)
        return self._vaulted

    def _execute_module(self, module_name: str = "", *positional: Any, **given: Any) -> dict[str, Any]:
        """Execute a module. If its answer does not have its shape, return a failed result that says so.

        A node's syslog does not get arguments with vaulted values.
        """
        task_vars = given.get("task_vars") or {}
        self._asked = module_name.rpartition(".")[2]
        self._asked_host = str(task_vars.get("inventory_hostname", "the node"))
        if task_vars and self._values(task_vars).found_in(given.get("module_args")):
            given["task_vars"] = {**task_vars, "ansible_no_target_syslog": True}
        message = f"{self._asked_host} did not answer module {self._asked}"
        self._module_answer: dict[str, Any] = {"failed": True, "changed": False, "msg": message}
        super()._execute_module(module_name, *positional, **given)
        return self._module_answer

    def _execute_with_code(self, module_name: str, arguments: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
        """Execute a module that imports the plugin's code on the node. Send the code if the node does not have it.

        Raises WheelsError if the controller cannot pack the code.
        """
        code = {"sha256": node_code.sha256()}
        given = {"module_name": module_name, "task_vars": task_vars}
        self._may_lack_code = True
        answer = self._execute_module(module_args={**arguments, "code": code}, **given)
        self._may_lack_code = False
        if not answer.get("code_missing"):
            return answer
        code["path"] = self._sent("code.zip", node_code.archive())
        return self._execute_module(module_args={**arguments, "code": code}, **given)

    def _sent(self, name: str, content: bytes) -> str:
        """Write a file in the task's temporary directory, which Ansible removes after the task. Returns its path."""
        shell = self._connection._shell
        # Ansible removes one directory a task, and an execution before may have created that one.
        if shell.tmpdir is None:
            self._make_tmp_path()
        path: str = self._transfer_data(shell.join_path(shell.tmpdir, name), content)
        self._fixup_perms2((shell.tmpdir, path))
        return path

    def _parse_returned_data(self, res: dict[str, Any], profile: str) -> Any:
        """Keep a module's answer for `_execute_module`, and let Ansible parse an empty one.

        Ansible calls this method before it uses any key of the answer. It would obey some keys, and from version 2.21
        on, it also displays the warnings.
        """
        self._module_answer = self._read(res, profile)
        return super()._parse_returned_data({**res, "stdout": "{}", "stderr": ""}, profile)

    def _read(self, res: Mapping[str, Any], profile: str) -> dict[str, Any]:
        """Return a module's answer. res: what the module wrote. profile: Ansible's name of the answer's encoding."""
        module = getattr(self, "_asked", "")
        try:
            shape = answer_shapes.MODULES[module]
            output = res.get("stdout") or ""
            if len(output) > answers.LONGEST:
                raise answers.AnswerError(f"it has {len(output)} characters, at most {answers.LONGEST} are read")
            # Ansible prints what it finds around an answer.
            said = {key: answers.without_controls(res.get(key) or "") for key in ("stdout", "stderr")}
            return _answer(shape, self._decoded({**res, **said}, profile), self._may_lack_code)
        # Ansible's decoder and copies raise other errors for wrong types, forged tags and deep nesting.
        except (answers.AnswerError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            why = answers.readable(str(error), 400)
            return {"failed": True, "changed": False, "msg": f"{self._asked_host}'s answer of module {module}: {why}"}

    def _decoded(self, res: dict[str, Any], profile: str) -> Mapping[str, Any]:
        """Return the data of a module's answer; if it is no JSON, a failure with Ansible's explanation."""
        try:
            text, around = _filter_non_json_lines(res["stdout"], objects_only=True)
            data: Mapping[str, Any] = json.loads(text, cls=get_module_decoder(profile, Direction.MODULE_TO_CONTROLLER))
        except ValueError:
            explained = super()._parse_returned_data(res, profile)
            # From ansible-core 2.21 on, this is an object.
            return explained if isinstance(explained, dict) else explained.as_result_dict(for_round_trip=True)
        for warning in around:
            Display().warning(warning)
        return data


def _answer(shape: Mapping[str, Any], data: Mapping[str, Any], may_lack_code: bool) -> dict[str, Any]:
    """Return the keys of an answer that its shape has. Raises AnswerError."""
    has_failed = data.get("failed") is True
    if may_lack_code:
        shape = {**shape, "code_missing?": bool}
    if has_failed or (may_lack_code and data.get("code_missing") is True):
        # Such a module has none of its own keys, or some of them.
        shape = {key if key is ... else f"{key.removesuffix('?')}?": of_key for key, of_key in shape.items()}
    found = answers.shaped({**answer_shapes.OF_EVERY_MODULE, **shape}, data)
    for key in ("msg", "module_stdout", "module_stderr"):
        if key in found:
            found[key] = answers.readable(found[key])
    warnings = data.get("warnings") or ()
    if not isinstance(warnings, (list, tuple)):
        raise answers.AnswerError(f"warnings is {type(warnings).__name__}, expected a list")
    told = [answers.readable(_message(each)) for each in warnings[: answers.MOST_WARNINGS]]
    # Ansible's texts about an exception are part of an object, which may have anything else, too.
    event = getattr(data.get("exception"), "event", None) if has_failed else None
    for key, text in (("msg", getattr(event, "msg", None)), ("traceback", getattr(event, "formatted_traceback", None))):
        if isinstance(text, str) and not found.get(key):
            found[key] = answers.readable(text)
    return {**found, **({"warnings": told} if told else {})}


def _message(warning: Any) -> str:
    """Return the text of a warning, which is a text or an object of Ansible."""
    message = warning if isinstance(warning, str) else getattr(getattr(warning, "event", None), "msg", None)
    if not isinstance(message, str):
        raise answers.AnswerError(f"warnings has {type(warning).__name__}, expected texts")
    return str.__str__(message)
