# SPDX-License-Identifier: Apache-2.0
"""Provides actions with the host's declaration and the node's facts.

If the play ran the preflight (task node_preflight, registered as ``node_devices_node``), actions reuse its result.
Otherwise each action runs the preflight. Therefore a role also works in playbooks without the preflight.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError

from . import (
    declaration,
    host_devices,
    misspelled,
    play,
    plugin_cli,
    requirements,
    spec_templates,
    specs,
    task_arguments,
)
from .kubernetes import cluster_access, drain, same_machine

#: Variables of role host_devices, which creates paths on the node, without their prefix.
_MAKERS = ("modules", "udev_rules", "nodes")
#: The variable in which a playbook registers the preflight's result.
KNOWN = "node_devices_node"
#: Facts of a node that only the Kubernetes API reaches, in the form of a preflight's result.
_UNREACHED: dict[str, Any] = {
    "ledger": {},
    "kubelet": None,
    "device_plugins": {"instance": None, "registered": [], "others": [], "drivers": []},
}


class NotReady(Exception):
    """The node is not ready. The text has one line for each problem, which begins with the host's name."""


ERRORS = (NotReady, declaration.DeclarationProblems)


class Seen(NamedTuple):
    """A node's facts. settled: whether the preflight finished or undid an earlier run's change."""

    node: dict[str, Any]
    warnings: list[str]
    settled: bool

    def told(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the action's result with the preflight's warnings and change."""
        more: dict[str, Any] = {}
        if self.warnings:
            more["warnings"] = [*self.warnings, *result.get("warnings", [])]
        if self.settled:
            more["changed"] = True
        return {**result, **more}


class Preflight:
    """Runs the preflight for an action. action: the running action. task_vars: its variables."""

    def __init__(self, action: Any, task_vars: Any) -> None:
        self._action = action
        self._vars = task_vars or {}
        self.host: str = self._vars.get("inventory_hostname", "")

    def variable(self, name: str, default: Any = None) -> Any:
        """Return the value of a host's variable."""
        value = self._vars.get(name)
        if value is not None:
            value = declaration.plain(self._action._templar.template(value))
        return default if value is None else value

    @property
    def api_only(self) -> bool:
        """Whether only the Kubernetes API reaches the node."""
        return boolean(self.variable("node_devices_api_only", False), strict=False)

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

    def foreseen(self, module: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the module's answer if the preflight predicted no change for these arguments, else None."""
        found = ((self.known or {}).get("foreseen") or {}).get(module)
        return found["answer"] if found and found["arguments"] == declaration.plain(arguments) else None

    def execute(self, module: str, arguments: Mapping[str, Any], answer: dict[str, Any] | None) -> dict[str, Any]:
        """Execute a module that writes, or return its predicted answer.

        answer: the predicted answer; None to execute the module. The module also runs if this play may have written to
        the node since the preflight.
        """
        if answer is not None and not self._written.exists():
            return answer
        if self.known is not None and not self._action._task.check_mode:
            self._written.touch()
        done: dict[str, Any] = self._action._execute_module(
            module_name=f"nodedevices.kubernetes.{module}", module_args=dict(arguments), task_vars=self._vars
        )
        return done

    @property
    def _written(self) -> pathlib.Path:
        """A file that exists if this play may have written to the node. (Tasks share no memory.)"""
        return self._remembered("written", self._play())

    def _remembered(self, what: str, *of: str) -> pathlib.Path:
        """Return the path of a file that remembers something about the host until this run of Ansible ends."""
        digest = hashlib.sha256("\0".join((*of, self.host)).encode()).hexdigest()[:24]
        return pathlib.Path(constants.DEFAULT_LOCAL_TMP) / f"{what}-{digest}"

    def declaration(self, given: Any = None) -> dict[str, Any]:
        """Return the host's declaration as data. given: the task's argument, or None. Raises DeclarationProblems."""
        if given is None:
            given = (self.known or {}).get("declaration")
        return self.read_declaration().as_data() if given is None else declaration.plain(given)

    def read_declaration(self, failure: Any = None) -> declaration.Declaration:
        """Read the host's declaration from its variables. Raises DeclarationProblems.

        failure: a declaration.Failure, which returns the message for a failed expression.
        """
        # If only the API reaches the node, only the plugin can write CDI specs on the node.
        forced = {"cdi_owner": "plugin"} if self.api_only else None
        render = None if self.api_only else spec_templates.renderer(self._action, self._vars)
        template = self._action._templar.template
        failure = failure or declaration.failed_expression
        read = declaration.read(self._vars, template, None, render, failure, forced)
        if self.api_only:
            declaration.refuse_names(read)
        return read

    def node(self, given: Any, requires: list[str], **arguments: Any) -> Seen:
        """Return the facts ``given`` of the task, or else a preflight's. requires: its checks. Raises NotReady."""
        if given is not None:
            return Seen(declaration.plain(given), [], settled=False)
        return self.look({"requires": requires, **arguments})

    def with_numbers(self, declared: dict[str, Any], seen: Seen) -> dict[str, Any]:
        """Return the declaration with uids and gids instead of names of users and groups. Raises NotReady."""
        accounts = self._accounts(seen.node, declared.get("accounts") or {})
        declared, problems = declaration.with_numbers(declared, accounts)
        if problems:
            raise NotReady("\n".join(f"{self.host}: {problem}" for problem in problems))
        return declared

    def node_name(self, arguments: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> str:
        """Return the node's name in the cluster, after a check that the host is that node.

        Raises NotReady if the host is another machine, and ApiError and KubeconfigError if the API cannot tell.
        arguments: with ``kubeconfig``, and optionally ``node_name`` and ``api_only``. facts: of node_preflight, if the
        caller has them. Where only the API reaches the node, nothing can check the name.
        """
        name: str = arguments.get("node_name") or self.host
        if arguments.get("kubeconfig") and not boolean(arguments.get("api_only", self.api_only)):
            other, unchecked = self._other_machine(arguments["kubeconfig"], name, facts)
            if other:
                raise NotReady(f"{self.host}: {other}")
            if unchecked:
                Display().warning(f"{self.host}: {unchecked}")
        return name

    def _other_machine(self, path: str, name: str, facts: Mapping[str, Any] | None) -> same_machine.Checked:
        """Check once in a run of Ansible that the host is this node. Raises ApiError, KubeconfigError."""
        checked = self._remembered("same-machine", path, name)
        if checked.exists():
            return same_machine.Checked()
        if "identity" not in (facts or {}):
            facts = self.known if "identity" in (self.known or {}) else self._on_node("node_preflight", {})
        if (facts or {}).get("failed"):
            return same_machine.Checked(requirements.unanswered(facts, self._vars.get("ansible_python_interpreter")))
        outcome = same_machine.check(Api(kubeconfig.read(path)), path, name, (facts or {}).get("identity"))
        if not outcome.problem:
            checked.touch()
        return outcome

    def failed(self, error: Exception) -> dict[str, Any]:
        """Return the failed result of an action that could not begin. error: NotReady or DeclarationProblems."""
        message = str(error)
        if isinstance(error, declaration.DeclarationProblems):
            message = declaration.unusable(self.host, error.lines, done="this task wrote nothing")
        return {"failed": True, "changed": False, "msg": message}

    def kubelet(self, node: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the task's arguments for plugin_cli.holders. The node's kubelet and CDI paths are the defaults."""
        settings = self.variable(declaration.SETTINGS, {})
        places = {
            "kubelet_root": (node.get("kubelet") or {}).get("root_dir"),
            "device_plugin_dir": settings.get("kubelet_device_plugin_dir"),
            "cdi_dir": settings.get("dynamic_cdi_dir"),
        }
        return {**places, **arguments}

    def look(self, arguments: Mapping[str, Any]) -> Seen:
        """Run the preflight with node_preflight's arguments. Raises NotReady, DeclarationProblems, AnsibleError."""
        arguments = {key: value for key, value in arguments.items() if value is not None}
        declared = declaration.plain(arguments.pop("declaration", None))
        if boolean(arguments.pop("declared", False)):
            declared = self.declaration(declared)
        of_play = {"read_in": self._play(), **({"declaration": declared} if declared else {})}
        if self.api_only:
            return self._of_the_api_alone(arguments, of_play)
        requires = arguments.pop("requires", [])
        requires = requires.split(",") if isinstance(requires, str) else list(requires)
        command = arguments.pop("command", None)
        if command:
            arguments["commands"] = [command]
        lock = declaration.plain(arguments.pop("lock", None))
        if lock is not None:
            batch = self._vars.get("ansible_play_batch", ())
            arguments["lock"] = _wanted_lock(lock, self.host, len(batch))
        if "foresee" in arguments:
            arguments["foresee"] = _foreseen_by_node(declaration.plain(arguments["foresee"]))
        mode, takeover = arguments.pop("mode", None), boolean(arguments.pop("takeover", False))
        path, node_name = arguments.pop("kubeconfig", None), arguments.pop("node_name", None)
        deployment = declaration.plain(arguments.pop("deployment", None) or {})
        drained = declaration.plain(arguments.pop("drain", None))
        if drained:
            # Raises AnsibleError if the minutes are not a valid number.
            task_arguments.minutes(drained, "node_devices_drain_minutes")
        cdi = boolean(arguments.pop("cdi", True))
        cdi = declared["needs_cdi"] if declared else cdi
        if not cdi:
            arguments.pop("ask", None)
        if declared:
            arguments["device_plugin_dir"] = declared["kubelet_device_plugin_dir"]
            arguments["device_paths"] = declared["device_paths"]
            arguments["host_paths"] = list(declared["host_paths"])
            if declared.get("accounts"):
                arguments["accounts"] = declared["accounts"]
        arguments.setdefault("cri_socket", self.variable("node_devices_cri_socket"))
        if arguments["cri_socket"] is None:
            del arguments["cri_socket"]
        device_paths = arguments.get("device_paths") or {}
        host_paths = (declared or {}).get("host_paths", {})
        warnings: list[str] = []
        no_access: list[str] = []
        settled = None
        known = self.known if lock is None else None
        if known:
            facts = self._with_devices(known, requires, arguments, host_paths)
        else:
            facts, settled = self._looked(arguments, warnings)
        if facts.get("failed") or "runtime" not in facts:
            sentences = [requirements.unanswered(facts, self._vars.get("ansible_python_interpreter"))]
        else:
            of_node = [name for name in requires if name != "command"]
            is_before = "devices" in requires and (lock is not None or self._action._task.check_mode)
            present = self._without_awaited(facts) if is_before else facts
            sentences = requirements.unmet(of_node, present, device_paths, cdi, host_paths)
            if facts["uid"] == 0:
                predicted = (facts.get("foreseen") or {}).values()
                sentences += [module["refused"] for module in predicted if "refused" in module]
            if facts["uid"] == 0 and (mode == "service" or boolean(self.variable("extended_resources_restore", False))):
                sentences += requirements.not_for_service(facts["python"])
            if "command" in requires:
                sentences += self._without(command, facts)
            if declared:
                accounts = self._accounts(facts, arguments.get("accounts") or {})
                declared, unknown = declaration.with_numbers(declared, accounts)
                sentences += unknown
            if cdi and "runtime" in requires:
                sentences += specs.Specs(declared or {}, facts).crashing()
            if declared and facts["runtime"].get("version"):
                refused, broken = _specs_of(declared, facts)
                sentences += refused
                # Warn only once in a play, although each role runs this check.
                warnings += [] if known else [f"{self.host}: {sentence}" for sentence in broken]
            if declared and mode and not takeover:
                if path and declared["foreign_kinds"] and not known:
                    drivers, unknown = cluster_access.dra_drivers(path, node_name or self.host)
                    plugins = facts["device_plugins"]
                    facts = {**facts, "device_plugins": {**plugins, "drivers": [*plugins["drivers"], *drivers]}}
                    warnings += [f"{self.host}: {unknown}"] if unknown else []
                names = [resource["name"] for resource in declared["resources"]]
                sentences += requirements.taken(facts["device_plugins"], names, mode, declared["foreign_kinds"])
            if drained:
                sentences += drain.obstacles(drained, bool(path))
            if path and not known:
                capacities = bool((declared or {}).get("capacities"))
                pod = deployment if mode == "daemonset" else None
                no_access = list(
                    cluster_access.problems(
                        path, node_name or self.host, declared is not None or bool(drained), capacities, pod
                    )
                )
                sentences += no_access
            if path and not no_access:
                try:
                    other, unchecked = self._other_machine(path, node_name or self.host, facts)
                except (ApiError, kubeconfig.KubeconfigError) as error:
                    other, unchecked = cluster_access.failure(path, error), ""
                sentences += [other] if other else []
                warnings += [f"{self.host}: {unchecked}"] if unchecked else []
            if declared and mode and not known:
                # The node serves what an earlier run installed.
                gone = set((facts["device_plugins"]["instance"] or {}).get("resources", ()))
                gone.difference_update(resource["name"] for resource in declared["resources"])
                if path and not no_access:
                    gone |= cluster_access.removed(path, node_name or self.host, declared["capacities"])
                warnings += [f"{self.host}: {sentence}" for sentence in requirements.removed(gone)]
            if not sentences:
                untested = [] if known else requirements.untested(of_node, facts)
                warnings += [f"{self.host}: {sentence}" for sentence in untested]
        if lock is not None and not declared:
            # With a declaration, the task that read the declaration has checked the names.
            sentences = [*misspelled.found(self._vars).errors, *sentences]
        if settled:
            warnings.append(f"{self.host}: {settled}")
        if sentences:
            if lock is not None and not self._action._task.check_mode:
                self._on_node("node_lock", {"owner": arguments["lock"]["owner"]})
            head = f"The node is not ready; {self._done(lock is not None, settled)}."
            lines = [f"{self.host}: {sentence}" for sentence in [*([settled] if settled else []), *sentences]]
            raise NotReady("\n".join([head, *lines]))
        facts = {**facts, "read_in": self._play(), "host": self.host}
        if declared:
            facts["declaration"] = declared
        if lock is not None and not self._action._task.check_mode:
            facts["environment"] = play.environment(arguments["lock"])
        return Seen(facts, warnings, settled is not None)

    def _of_the_api_alone(self, arguments: Mapping[str, Any], of_play: Mapping[str, Any]) -> Seen:
        """Return the facts of a node that only the API reaches, with ``joined``: whether the cluster has the node."""
        absent, path = "", arguments.get("kubeconfig")
        # Ask and warn only once in a play.
        if path and "joined" not in (self.known or {}):
            absent = cluster_access.not_joined(path, arguments.get("node_name") or self.host)
        warnings = [f"{self.host}: {absent}"] if absent else []
        return Seen({**_UNREACHED, "joined": not absent, **of_play}, warnings, settled=False)

    def _done(self, is_first: bool, settled: str | None) -> str:
        """Return what has been written on a node that is not ready. is_first: whether no task has written before."""
        if settled and not self._action._task.check_mode:
            return "only the change of an earlier run was finished or undone on it"
        if is_first:
            return "nothing was written on it"
        earlier = "; earlier tasks of this play may have written on it" if self._written.exists() else ""
        return f"this task wrote nothing on it{earlier}"

    def _without_awaited(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the facts without the missing paths that role host_devices will create.

        If the run skips the role, or the preflight predicted that the role changes nothing, the role creates nothing.
        """
        makers = {name: self.variable(f"host_devices_{name}", []) for name in _MAKERS}
        foreseen = (facts.get("foreseen") or {}).get("host_devices") or {}
        is_skipped = "host_devices" in (self._vars.get("ansible_skip_tags") or ())
        if is_skipped or not any(makers.values()) or foreseen.get("answer"):
            return facts
        return {
            **facts,
            **{
                key: [path for path in facts[key] if not host_devices.may_make(path, **makers)]
                for key in ("missing_devices", "missing_host_paths")
            },
        }

    def _looked(self, arguments: dict[str, Any], warnings: list[str]) -> tuple[dict[str, Any], str | None]:
        """Return the node's facts, and the outcome of an earlier run's unfinished change, or None. Raises NotReady."""
        facts = self._facts(arguments)
        holder = facts.pop("locked_by", None)
        if holder and self._action._task.check_mode:
            warnings.append(f"{self.host}: {play.sentence(holder)}; this result may show that play half done")
        elif holder:
            raise NotReady(f"Nothing was written.\n{self.host}: {play.sentence(holder)}")
        if facts.get("transaction_left"):
            return self._settled(facts, arguments)
        return facts, None

    def _with_devices(
        self, known: dict[str, Any], requires: list[str], arguments: dict[str, Any], host_paths: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the known facts. Read missing paths again, because a role may have created them."""
        device_paths = arguments.get("device_paths") or {}
        if "devices" not in requires or not requirements.unmet(["devices"], known, device_paths, True, host_paths):
            return known
        afresh = self._on_node(
            "node_preflight", {key: value for key, value in arguments.items() if key not in ("ask", "commands")}
        )
        keys = ("missing_devices", "other_than_devices", "device_links", "missing_host_paths")
        return {**known, **{key: afresh[key] for key in keys}} if keys[0] in afresh else afresh

    def _accounts(self, facts: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the node's users and groups. If a wanted name is not in the facts, read the names again."""
        found: dict[str, Any] = facts.get("accounts") or {}
        if all(set(names) <= set(found.get(kind, ())) for kind, names in wanted.items()):
            return found
        afresh: dict[str, Any] = self._on_node("node_preflight", {"accounts": wanted}).get("accounts") or {}
        return afresh

    def _facts(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Read the node's facts, and take over the lock of a play that has ended."""
        facts = self._on_node("node_preflight", arguments)
        if facts.get("locked_by") and play.is_over(facts["locked_by"]):
            lock = {**arguments["lock"], "over": facts["locked_by"]["owner"]}
            facts = self._on_node("node_preflight", {**arguments, "lock": lock})
        return facts

    def _on_node(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._action._execute_module(
                module_name=f"nodedevices.kubernetes.{module}", module_args=arguments, task_vars=self._vars
            )
        except AnsibleConnectionFailure:
            raise
        except Exception as error:
            return {"failed": True, "msg": str(error)}

    def _settled(self, facts: dict[str, Any], arguments: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        """Finish or undo an earlier run's unfinished change. Return the node's new facts and the outcome."""
        outcome = self._on_node("runtime_config", {"state": "recovered"})
        if outcome.get("failed"):
            return outcome, None
        if not outcome["changed"]:
            # A killed play's module has finished the change since the first facts.
            return self._on_node("node_preflight", arguments), None
        if not self._action._task.check_mode:
            facts = self._on_node("node_preflight", arguments)
        return facts, _became(outcome, self._action._task.check_mode)

    def _without(self, command: str, facts: Mapping[str, Any]) -> list[str]:
        """Return a message if the command is missing; none in check mode, because a real run installs it."""
        if self._action._task.check_mode or command in facts["commands"]:
            return []
        try:
            # The known facts may be older than the command's installation.
            return [] if plugin_cli.is_there(self._action, command) else [str(plugin_cli.PluginCliMissing(command))]
        except plugin_cli.PluginCliError as error:
            return [str(error)]


def _wanted_lock(lock: Mapping[str, Any], host: str, hosts: int) -> dict[str, Any]:
    """Convert the option ``lock`` for the module. hosts: number of the batch. Raises AnsibleError for wrong minutes."""
    try:
        minutes = float(lock.get("minutes", 15))
    except (TypeError, ValueError):
        minutes = 0
    if not minutes > 0:
        raise AnsibleError(
            f"lock.minutes: must be a number above 0, not {lock.get('minutes')} (the playbooks read it from "
            "node_devices_lock_minutes)"
        )
    return play.wanted_lock(minutes, "*" if boolean(lock.get("break", False)) else "", host, hosts)


def _foreseen_by_node(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the option ``foresee`` for the module. Variables of role host_devices become arguments."""
    by_node = dict(asked)
    wanted = {name: value or [] for name, value in (by_node.pop("host_devices", None) or {}).items()}
    if any(wanted.values()) and not host_devices.problems(**wanted):
        by_node["host_devices"] = host_devices.module_arguments(**wanted)
    return by_node


def _became(outcome: Mapping[str, Any], check_mode: bool) -> str:
    """Return a message with the outcome of an unfinished change to the runtime's configuration."""
    change = "a change of the container runtime's configuration by an earlier, interrupted run"
    if check_mode:
        return f"{change} is unfinished; the next run finishes or undoes it first, so this result may show it half done"
    if outcome["error"]:
        return f"{change} was undone: {outcome['error']}"
    return f"{change} was finished" if outcome["begun"] else f"{change} had not begun, so nothing was undone"


def _specs_of(declared: Mapping[str, Any], facts: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return problems of declared CDI specs, and problems of other owners' broken specs."""
    node_specs = specs.Specs(declared, facts)
    refused = list(node_specs.missing())
    try:
        node_specs.check(node_specs.leftovers)
    except specs.SpecsError as error:
        refused += error.lines
    return refused, node_specs.broken()
