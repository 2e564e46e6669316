# SPDX-License-Identifier: Apache-2.0
"""Looks at a node once, and says in plain sentences what stands in the way."""

from __future__ import annotations

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import (
    declaration,
    play,
    plugin_cli,
    requirements,
    specs,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import cluster_access


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
        lock = declaration.plain(arguments.pop("lock", None))
        if lock is not None:
            batch = task_vars.get("ansible_play_batch", ())
            arguments["lock"] = _wanted_lock(lock, task_vars.get("inventory_hostname", ""), len(batch))
        cdi = boolean(arguments.pop("cdi", True))
        declared = declaration.plain(arguments.pop("declaration", None))
        mode, takeover = arguments.pop("mode", None), boolean(arguments.pop("takeover", False))
        path, node_name = arguments.pop("kubeconfig", None), arguments.pop("node_name", None)
        deployment = declaration.plain(arguments.pop("deployment", None) or {})
        directory = (declared or {}).get("kubelet_device_plugin_dir")
        if directory:
            arguments["device_plugin_dir"] = directory
        device_paths = declaration.plain(arguments.get("device_paths") or {})
        host = task_vars.get("inventory_hostname", "")
        warnings, settled = [], None
        this_play = str(self._task.get_play()._uuid)
        # Between plays of one run anybody may have had their turn at the node, other plays of it included.
        was_read = bool(known) and known.get("read_in") == this_play
        if was_read:
            facts = declaration.plain({key: value for key, value in known.items() if key != "warnings"})
        else:
            facts = self._look(arguments, task_vars)
            holder = facts.pop("locked_by", None)
            if holder and self._task.check_mode:
                warnings.append(f"{host}: {play.sentence(holder)}; what is said here may be of its midst")
            elif holder:
                result.update(failed=True, changed=False, msg=f"Nothing was written.\n{host}: {play.sentence(holder)}")
                return result
            if facts.get("transaction_left"):
                facts, settled = self._settled(facts, arguments, task_vars)
        if facts.get("failed") or "runtime" not in facts:
            sentences = [requirements.unanswered(facts, task_vars.get("ansible_python_interpreter"))]
        else:
            of_node = [name for name in requires if name != "command"]
            sentences = requirements.unmet(of_node, facts, device_paths, cdi)
            if "command" in requires and not self._has(command, facts):
                sentences.append(str(plugin_cli.PluginCliMissing(command)))
            if declared and facts["runtime"].get("version"):
                refused, broken = _specs_of(declared, facts)
                sentences += refused
                warnings += [f"{host}: {sentence}" for sentence in broken]
            if declared and mode and not takeover:
                names = [resource["name"] for resource in declared["resources"]]
                sentences += requirements.taken(facts["device_plugins"], names, mode)
            if path and not was_read:
                capacities = bool((declared or {}).get("capacities"))
                pod = deployment if mode == "daemonset" else None
                sentences += cluster_access.problems(path, node_name or host, declared is not None, capacities, pod)
            if not sentences:
                # Once a play, although each role asks.
                untested = [] if was_read else requirements.untested(of_node, facts)
                warnings += [f"{host}: {sentence}" for sentence in untested]
                result.update(facts, read_in=this_play)
                if lock is not None and not self._task.check_mode:
                    result["environment"] = play.environment(arguments["lock"])
        result["changed"] = settled is not None
        if settled:
            warnings.append(f"{host}: {settled}")
        if warnings:
            result["warnings"] = warnings
        if sentences:
            if lock is not None and not self._task.check_mode:
                self._on_node("node_lock", {"owner": arguments["lock"]["owner"]}, task_vars)
            result.update(
                failed=True,
                msg="The node is not ready; nothing was written on it.\n"
                + "\n".join(f"{host}: {sentence}" for sentence in sentences),
            )
        return result

    def _look(self, arguments, task_vars):
        """The node's facts; the lock of a play that is over is passed over."""
        facts = self._on_node("node_preflight", arguments, task_vars)
        if facts.get("locked_by") and play.is_over(facts["locked_by"]):
            lock = {**arguments["lock"], "over": facts["locked_by"]["owner"]}
            facts = self._on_node("node_preflight", {**arguments, "lock": lock}, task_vars)
        return facts

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
        outcome = self._on_node("runtime_config", {"state": "recovered"}, task_vars)
        if outcome.get("failed"):
            return outcome, None
        if not outcome["changed"]:
            # Its own module, left behind by a play that was killed, has seen it to its end in the meantime.
            return self._on_node("node_preflight", arguments, task_vars), None
        if not self._task.check_mode:
            facts = self._on_node("node_preflight", arguments, task_vars)
        return facts, _became(outcome, self._task.check_mode)

    def _has(self, command, facts):
        """Whether the command is there; in check mode it would have been installed by now."""
        if self._task.check_mode or command in facts["commands"]:
            return True
        # What is known may be from before it was installed.
        return plugin_cli.is_there(self, command)


def _wanted_lock(lock, host, hosts):
    """The option ``lock`` as the module takes it. hosts: of the batch."""
    try:
        minutes = float(lock.get("minutes", 15))
    except (TypeError, ValueError):
        minutes = 0
    if not minutes > 0:
        raise AnsibleError(f"lock: minutes must be a number above 0, not {lock.get('minutes')}")
    return play.wanted_lock(minutes, "*" if boolean(lock.get("break", False)) else "", host, hosts)


def _became(outcome, check_mode):
    """What became of a change of the runtime's configuration that an earlier run did not see to its end."""
    change = "an earlier change of the container runtime's configuration, whose run was cut off,"
    if check_mode:
        return f"{change} is there; the next run finishes or undoes it first, so what is said here may be of its midst"
    if outcome["error"]:
        return f"{change} has been undone: {outcome['error']}"
    return f"{change} has been finished" if outcome["begun"] else f"{change} had not been begun"


def _specs_of(declared, facts):
    """Sentences for the declared CDI specs that would not take effect, and for the broken ones of others."""
    node_specs = specs.Specs(declared, facts)
    broken = node_specs.broken()
    try:
        node_specs.check(node_specs.leftovers)
    except specs.SpecsError as error:
        return error.lines, broken
    return [], broken
