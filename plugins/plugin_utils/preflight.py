# SPDX-License-Identifier: Apache-2.0
"""Provides actions with the host's declaration and the node's facts.

If the play ran the preflight (task node_preflight, registered as ``node_devices_node``), actions reuse its result.
Otherwise each action runs the preflight. Therefore a role also works in playbooks without the preflight.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display

from ...plugin.node_device_plugin.cluster import manifests
from ...plugin.node_device_plugin.cluster.api import Api, ApiError, Place
from ...plugin.node_device_plugin.cluster.extended_resources import CapacityConflict
from ...plugin.node_device_plugin.declaration import DeclarationError
from . import declaration, host_devices, misspelled, play, plugin_cli, profiles, requirements, spec_templates
from .asked import Asked, completed, parse
from .combinations import NO_SERVICE
from .declaration import Declaration
from .kubernetes import cluster_access, same_machine
from .kubernetes.objects import DeploymentError
from .remembered import file_of
from .wheels import WheelsError

#: Modules that import the plugin's code, or keep it on the node.
_WITH_CODE = frozenset(("cdi_runtime", "cdi_specs", "node_tools"))
#: Options of module node_preflight that do not count if only paths are read again.
_NOT_AGAIN = frozenset(("cdi", "commands", "converge", "dra"))
#: The variable in which a playbook registers the preflight's result.
KNOWN = "node_devices_node"
#: Facts of a node that only the Kubernetes API reaches, in the form of a preflight's result.
_UNREACHED: dict[str, Any] = {
    "ledger": [],
    "kubelet": None,
    "device_plugins": {"instance": None, "registered": [], "others": [], "drivers": []},
}


class NotReady(Exception):
    """The node is not ready. The text has one line for each problem, which begins with the host's name."""


#: The errors with which an action ends (`Preflight.message`).
ERRORS = (
    NotReady,
    declaration.DeclarationProblems,
    WheelsError,
    ApiError,
    CapacityConflict,
    DeclarationError,
    DeploymentError,
    plugin_cli.PluginCliError,
)


class Preflight:
    """Runs the preflight for an action. action: the running action. task_vars: its variables."""

    def __init__(self, action: Any, task_vars: Any) -> None:
        self._action = action
        self._vars = task_vars or {}
        self.host: str = self._vars.get("inventory_hostname", "")
        self._warnings: list[str] = []
        #: A sentence, if `look` finished or undid an earlier run's change.
        self._settled: str | None = None

    def variable(self, name: str, default: Any = None) -> Any:
        """Return the value of a host's variable."""
        value = self._vars.get(name)
        if value is not None:
            value = declaration.plain(self._action._templar.template(value))
        return default if value is None else value

    @property
    def api_only(self) -> bool:
        """Whether only the Kubernetes API reaches the node."""
        return self.is_profile or boolean(self.variable("node_devices_api_only", False), strict=False)

    @property
    def is_profile(self) -> bool:
        """Whether the host stands for all nodes of a DaemonSet that have no host of their own."""
        return boolean(self.variable(profiles.VARIABLE, False), strict=False)

    @functools.cached_property
    def known(self) -> dict[str, Any] | None:
        """The node's facts from this play's preflight; None if the play ran no preflight.

        Facts of an earlier play are ignored, because other plays may have changed the node since.
        """
        known = self._vars.get(KNOWN)
        if isinstance(known, str):
            known = self._action._templar.template(known)
        if not isinstance(known, Mapping) or known.get("read_in") != self._play():
            return None
        return declaration.plain({key: value for key, value in known.items() if key != "warnings"})

    def _play(self) -> str:
        return str(self._action._task.get_play()._uuid)

    def arguments(
        self, module: str, given: Mapping[str, Any], declared: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the module's arguments for the task's options, as the preflight gives them, too."""
        defaults = self.variable(declaration.SETTINGS, {}), self.variable("node_devices_cri_socket")
        return completed(module, given, declared, *defaults)

    def _found(self, module: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return what the preflight found for these arguments of a module; None if it was not asked."""
        digest = _digest(arguments)
        known = ((self.known or {}).get("converged") or {}).get(module, ())
        return next((found for found in known if found["arguments"] == digest), None)

    def execute(self, module: str, arguments: Mapping[str, Any], facts: Any = None) -> dict[str, Any]:
        """Return the module's answer from the preflight, if it still holds, or else execute the module, which writes.

        facts: of the preflight, for a module that needs them; None for other modules. Raises WheelsError.
        """
        found = self._found(module, arguments)
        if found is not None and not self.has_written:
            answer: dict[str, Any] = found["answer"]
            is_right = self._is_check or not (answer["changed"] or found["has_unshown_work"])
            if is_right and not answer.get("in_use"):
                return answer
        if self.known is not None and not self._is_check:
            self._written.touch()
        return self._execute(module, arguments if facts is None else {**arguments, "facts": facts})

    def expects(self, module: str, arguments: Mapping[str, Any], key: str) -> bool:
        """Return whether the preflight's answer of the module has a true ``key``. The node may have changed since."""
        found = self._found(module, arguments)
        return found is not None and bool(found["answer"].get(key))

    def _execute(self, module: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Execute a module, with the plugin's code if it imports the code."""
        name = f"nodedevices.kubernetes.{module}"
        if _needs_code(module, arguments):
            answer: dict[str, Any] = self._action._execute_with_code(name, arguments, self._vars)
        else:
            answer = self._action._execute_module(module_name=name, module_args=dict(arguments), task_vars=self._vars)
        return answer

    @property
    def has_written(self) -> bool:
        """Whether this play may have written to the node since the preflight."""
        return self._written.exists()

    @property
    def _written(self) -> pathlib.Path:
        """A file that exists if this play may have written to the node. (Tasks share no memory.)"""
        return file_of("written", self._play(), self.host)

    def declaration(self, given: Any = None) -> dict[str, Any]:
        """Return the host's declaration as data. given: the task's argument, or None. Raises DeclarationProblems."""
        if given is None:
            given = (self.known or {}).get("declaration")
        return self.read_declaration().as_data() if given is None else declaration.plain(given)

    def read_declaration(self, failure: Any = None) -> Declaration:
        """Read the host's declaration from its variables. Raises DeclarationProblems.

        failure: a declaration.Failure, which returns the message for a failed expression.
        """
        # If only the API reaches the node, only the plugin can write CDI specs on the node.
        forced = {"cdi_owner": "plugin"} if self.api_only else None
        render = None if self.api_only else spec_templates.renderer(self._action, self._vars)
        template = self._action._templar.template
        failure = failure or (profiles if self.is_profile else declaration).failed_expression
        read = declaration.read(self._vars, template, None, render, failure, forced, self.is_profile)
        if self.api_only:
            declaration.refuse_names(read)
        if read.configuration.uses_dra and not read.configuration.dra.node:
            read = read.with_node(self.variable("node_devices_node_name") or self.host)
        return read

    def told(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the action's result with the warnings and the change of `look`."""
        more: dict[str, Any] = {}
        if self._warnings:
            more["warnings"] = [*self._warnings, *result.get("warnings", [])]
        if self._settled:
            more["changed"] = True
        return {**result, **more}

    def with_numbers(self, declared: dict[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
        """Return the declaration with uids and gids instead of names of users and groups. Raises NotReady."""
        wanted, found = declared.get("accounts") or {}, node.get("accounts") or {}
        if not all(set(names) <= set(found.get(kind, ())) for kind, names in wanted.items()):
            # The facts are older than the declaration.
            found = self.on_node("node_preflight", {"accounts": wanted}).get("accounts") or {}
        declared, problems = declaration.with_numbers(declared, found)
        if problems:
            raise NotReady("\n".join(f"{self.host}: {problem}" for problem in problems))
        return declared

    def node_name(self, arguments: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> str:
        """Return the node's name in the cluster, after a check that the host is that node.

        Raises NotReady if the host is another machine, and ApiError if the API cannot tell.
        arguments: with ``kubeconfig``, and optionally ``node_name``. facts: of node_preflight, if the caller has them.
        Where only the API reaches the node, nothing can check the name.
        """
        name: str = arguments.get("node_name") or self.host
        if name == manifests.DEFAULT:
            raise NotReady(f"{self.host}: node_devices_node_name: {name} is no node's name: set it to the node's name")
        if arguments.get("kubeconfig") and not self.api_only:
            other, unchecked = self._other_machine(arguments["kubeconfig"], name, facts)
            if other:
                raise NotReady(f"{self.host}: {other}")
            if unchecked:
                Display().warning(f"{self.host}: {unchecked}")
        return name

    def _other_machine(self, path: str, name: str, facts: Mapping[str, Any] | None) -> same_machine.Checked:
        """Check once in a run of Ansible that the host is this node. Raises ApiError."""
        checked = file_of("same-machine", path, name, self.host)
        if checked.exists():
            return same_machine.Checked()
        if "identity" not in (facts or {}):
            facts = self.known if "identity" in (self.known or {}) else self.on_node("node_preflight", {})
        if (facts or {}).get("failed"):
            return same_machine.Checked(requirements.unanswered(facts, self._vars.get("ansible_python_interpreter")))
        api = Api.of(path)
        found = api.get(Place("nodes", name))
        outcome = same_machine.check(api, path, name, found, (facts or {}).get("identity"))
        if not outcome.problem:
            checked.touch()
        return outcome

    def message(self, error: Exception) -> str:
        """Return the message of a failed action: each line of the error with the host's name. error: one of ERRORS."""
        if isinstance(error, declaration.DeclarationProblems):
            return declaration.unusable(self.host, error.lines, done="this task wrote nothing")
        if isinstance(error, NotReady):
            return str(error)
        return "\n".join(f"{self.host}: {line}" for line in str(error).splitlines())

    def look(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run the preflight with node_preflight's arguments. Raises NotReady, DeclarationProblems, AnsibleError.

        Returns the node's facts. `told` adds the warnings to the action's result.
        """
        given = {key: value for key, value in arguments.items() if value is not None}
        declared = declaration.plain(given.pop("declaration", None))
        if boolean(given.pop("declared", False)):
            declared = self.declaration(declared)
        if self.api_only:
            if given.get("mode") == "service" and not self.is_profile:
                raise NotReady(f"{self.host}: {NO_SERVICE}")
            facts = self._of_the_api_alone(given)
            return {**facts, "read_in": self._play(), **({"declaration": declared} if declared else {})}
        if "converge" in given and self._skips("cdi_runtime", "configure"):
            # Another tool may own the runtime's configuration.
            given["converge"] = {name: each for name, each in given["converge"].items() if name != "cdi_runtime"}
        asked = self.asked(given, declared)
        facts, is_fresh = self._read(asked)
        problems, warnings = self._judged(asked, facts, is_fresh)
        if problems:
            self._refuse(asked, problems)
        facts.update(read_in=self._play(), host=self.host)
        if asked.is_first and not self._is_check:
            facts["environment"] = play.environment(asked.of_module["lock"])
        self._warnings += [*warnings, *([self._settled] if self._settled else [])]
        return facts

    def asked(self, given: Mapping[str, Any], declared: dict[str, Any] | None) -> Asked:
        """Parse node_preflight's options. Raises AnsibleError."""
        batch = self._vars.get("ansible_play_batch", ())
        defaults = self.variable("node_devices_cri_socket"), self.variable(declaration.SETTINGS, {})
        return parse(given, declared, self.host, len(batch), *defaults)

    def _judged(self, asked: Asked, facts: dict[str, Any], is_fresh: bool) -> tuple[list[str], list[str]]:
        """Return problems and warnings. Add to the facts what other sources know.

        is_fresh: whether this task has read the facts. Warn only once in a play, although each role runs this check.
        """
        # With a declaration, the task that read the declaration has checked the names.
        names = misspelled.found(self._vars).errors if asked.is_first and not asked.declared else []
        unanswered = requirements.unanswered(facts, self._vars.get("ansible_python_interpreter"))
        if unanswered:
            return [*names, unanswered], []
        in_cluster = self._ask_cluster(asked, facts, is_fresh)
        if asked.declared:
            facts["declaration"] = asked.declared
        if is_fresh:
            facts["converged"] = _by_arguments(asked.converge, facts.get("converged") or {})
        # Whether systemd will run the plugin's command.
        runs_units = asked.mode == "service" or boolean(self.variable("extended_resources_restore", False))
        problems = [
            *names,
            *requirements.problems(asked, facts, self._present(asked, facts), runs_units),
            *self._without_command(asked, facts),
            *in_cluster.problems,
        ]
        warnings = requirements.warnings(asked, facts, in_cluster.removed) if is_fresh else []
        return list(dict.fromkeys(problems)), [*in_cluster.warnings, *warnings]

    def _ask_cluster(self, asked: Asked, facts: dict[str, Any], is_fresh: bool) -> cluster_access.Answer:
        """Return the cluster's answer, and whether the host is the node. Add the DRA drivers to the facts."""
        answer = cluster_access.ask(asked, api_only=False) if is_fresh else cluster_access.Answer([], [], [], set())
        if answer.drivers:
            plugins = facts["device_plugins"]
            facts["device_plugins"] = {**plugins, "drivers": [*plugins["drivers"], *answer.drivers]}
        if asked.kubeconfig and not answer.problems:
            try:
                other, unchecked = self._other_machine(asked.kubeconfig, asked.node_name, facts)
            except ApiError as error:
                other, unchecked = cluster_access.failure(asked.kubeconfig, error), ""
            answer.problems.extend(filter(None, [other]))
            answer.warnings.extend(filter(None, [unchecked]))
        return answer

    def _skips(self, *tags: str) -> bool:
        """Return whether the run skips a role. tags: the role's."""
        wanted, skipped = set(self._vars.get("ansible_run_tags") or ["all"]), self._vars.get("ansible_skip_tags") or ()
        return wanted.isdisjoint(["all", *tags]) or not set(tags).isdisjoint(skipped)

    def _refuse(self, asked: Asked, problems: list[str]) -> None:
        """Release the lock that the preflight took, and raise NotReady."""
        if asked.is_first and not self._is_check:
            self.on_node("node_lock", {"owner": asked.of_module["lock"]["owner"]})
        done = "nothing was written on it"
        if self._settled and not self._is_check:
            done = "only the change of an earlier run was finished or undone on it"
        elif not asked.is_first:
            earlier = "; earlier tasks of this play may have written on it" if self.has_written else ""
            done = f"this task wrote nothing on it{earlier}"
        head = f"The node is not ready; {done}."
        sentences = [*([self._settled] if self._settled else []), *problems]
        raise NotReady("\n".join([head, *(f"{self.host}: {sentence}" for sentence in sentences)]))

    @property
    def _is_check(self) -> bool:
        return bool(self._action._task.check_mode)

    def _present(self, asked: Asked, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the facts; before role host_devices has run, without the missing paths that it will create."""
        if "devices" not in asked.requires or not (asked.is_first or self._is_check):
            return facts
        makers = {name: self.variable(f"host_devices_{name}", []) for name in host_devices.MAKERS}
        return requirements.without_awaited(facts, makers, self._vars.get("ansible_skip_tags") or ())

    def _of_the_api_alone(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the facts of a node that only the API reaches, with ``joined``: whether the cluster has the node."""
        absent, path = "", arguments.get("kubeconfig")
        # Ask and warn only once in a play.
        if path and not self.is_profile and "joined" not in (self.known or {}):
            absent = cluster_access.not_joined(path, arguments.get("node_name") or self.host)
        self._warnings += [absent] if absent else []
        return {**_UNREACHED, "joined": not absent}

    def _read(self, asked: Asked) -> tuple[dict[str, Any], bool]:
        """Return the play's facts, or read the node's facts. Raises NotReady if another play has locked the node.

        Also returns whether this task has read the facts.
        """
        known = None if asked.is_first else self.known
        # The play's preflight has the runtime's obstacles if it required a runtime.
        if known and ("runtime" not in asked.requires or "obstacles" in known["runtime"]):
            return self._with_devices(known, asked), False
        facts = self.on_node("node_preflight", asked.of_module)
        holder = facts.pop("locked_by", None)
        if holder and play.is_over(holder):
            # Take over the lock of a play that has ended.
            lock = {**asked.of_module["lock"], "over": holder["owner"]}
            facts = self.on_node("node_preflight", {**asked.of_module, "lock": lock})
            holder = facts.pop("locked_by", None)
        if holder and not self._is_check:
            raise NotReady(f"Nothing was written.\n{self.host}: {play.sentence(holder)}")
        if holder:
            self._warnings.append(f"{play.sentence(holder)}; this result may show that play half done")
        return (self._settle(asked.of_module) or facts) if facts.get("transaction_left") else facts, True

    def _with_devices(self, known: dict[str, Any], asked: Asked) -> dict[str, Any]:
        """Return the known facts. Read missing paths again, because a role may have created them."""
        if "devices" not in asked.requires:
            return dict(known)
        if not requirements.unmet(["devices"], known, asked.device_paths, True, asked.host_paths):
            return dict(known)
        of_module = {key: value for key, value in asked.of_module.items() if key not in _NOT_AGAIN}
        afresh = self.on_node("node_preflight", of_module)
        keys = ("missing_devices", "other_than_devices", "device_links", "missing_host_paths")
        return {**known, **{key: afresh[key] for key in keys}} if keys[0] in afresh else afresh

    def on_node(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return a module's answer; a failed one also if the module cannot run.

        Raises AnsibleConnectionFailure, and WheelsError if the controller does not have what the module needs.
        """
        try:
            return self._execute(module, arguments)
        except (AnsibleConnectionFailure, WheelsError):
            raise
        except Exception as error:  # for example, Ansible finds no interpreter
            return {"failed": True, "msg": str(error)}

    def _settle(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Finish or undo an earlier run's unfinished change. Return the node's new facts; None in check mode."""
        outcome = self.on_node("cdi_runtime", {"state": "recovered"})
        if outcome.get("failed"):
            return outcome
        # Without a change, a killed play's module has finished the change since the first facts.
        if outcome["changed"]:
            self._settled = _became(outcome, self._is_check)
            if self._is_check:
                return None
        return self.on_node("node_preflight", arguments)

    def _without_command(self, asked: Asked, facts: Mapping[str, Any]) -> list[str]:
        """Return a message if the command is missing; none in check mode, because a real run installs it."""
        command = asked.command
        if "command" not in asked.requires or self._is_check or command in facts["commands"]:
            return []
        try:
            # The known facts may be older than the command's installation.
            plugin_cli.require(self._action, command)
        except plugin_cli.PluginCliError as error:
            return [str(error)]
        return []


def facts_of_module(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that a module needs, so that it need not read them again."""
    runtime, plugins = node.get("runtime") or {}, node.get("device_plugins") or {}
    return {
        "runtime": {key: runtime.get(key) for key in ("name", "version")},
        "cdi_directories": node.get("cdi_directories") or ["/etc/cdi", "/var/run/cdi"],
        "kubelet_root": (node.get("kubelet") or {}).get("root_dir"),
        "served": (plugins.get("instance") or {}).get("resources", []),
    }


def _by_arguments(asked: Mapping[str, Any], answered: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the node's answers in check mode by the module's name, each with the digest of its arguments."""
    return {
        name: [
            {"arguments": _digest(arguments), **found}
            for arguments, found in zip(each, answered.get(name, ()), strict=False)
            if found
        ]
        for name, each in asked.items()
    }


def _digest(arguments: Mapping[str, Any]) -> str:
    """Return the hash of a module's arguments without omitted ones."""
    given = {name: value for name, value in declaration.plain(arguments).items() if value is not None}
    return hashlib.sha256(json.dumps(sorted(given.items())).encode()).hexdigest()


def _needs_code(module: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a module imports the plugin's code, or keeps it. A preflight imports it to find obstacles."""
    if arguments.get("state") == "recovered":
        return False
    asked = {module: [arguments], **arguments.get("converge", {})}
    files = [file for each in asked.get("managed_files", ()) for file in each.get("files", ())]
    has_configuration = any("configuration" in file for file in files)
    return not {"cdi", "dra"}.isdisjoint(arguments) or has_configuration or not _WITH_CODE.isdisjoint(asked)


def _became(outcome: Mapping[str, Any], check_mode: bool) -> str:
    """Return a message with the outcome of an unfinished change to the runtime's configuration."""
    change = "a change of the container runtime's configuration by an earlier, interrupted run"
    if check_mode:
        return f"{change} is unfinished; the next run finishes or undoes it first, so this result may show it half done"
    if outcome["error"]:
        return f"{change} was undone: {outcome['error']}"
    return f"{change} was finished" if outcome["begun"] else f"{change} had not begun, so nothing was undone"
