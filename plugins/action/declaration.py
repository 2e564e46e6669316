# SPDX-License-Identifier: Apache-2.0
"""Reads a host's declaration on the controller. See plugins/modules/declaration.py."""

from __future__ import annotations

import contextlib

from ansible.errors import AnsibleUndefinedVariable
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display

from ...plugin.node_device_plugin.cluster.api import Api, ApiError
from ...plugin.node_device_plugin.declaration import DeclarationError
from ...plugin.node_device_plugin.declaration.model import DRA
from ..plugin_utils import (
    asked,
    combinations,
    declaration,
    host_devices,
    misspelled,
    profiles,
    requirements,
    role_arguments,
)
from ..plugin_utils.kubernetes import cluster_access, deployed, other_daemonsets
from ..plugin_utils.kubernetes.daemonset import DaemonSet
from ..plugin_utils.kubernetes.objects import DeploymentError
from ..plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Runs only on the controller, without a connection."""

    _requires_connection = False
    _VALID_ARGS = frozenset(("roles", "offline"))

    def act(self, given):
        task_vars, look = self._vars, self.preflight
        template = self._templar.template
        roles = given.get("roles") or ()
        known = None if roles else (look.known or {}).get("declaration")
        if known is not None:
            return {"changed": False, **known}
        offline = boolean(given.get("offline", False))
        unchecked = []
        failure = (profiles if look.is_profile else declaration).failed_expression
        if offline and not look.is_profile and boolean(look.variable("node_devices_gather_facts", False), strict=False):
            failure = _without_facts(unchecked)
        problems, values = role_arguments.checked(roles, task_vars, template, failure)
        if roles and not offline and "preflight" in task_vars.get("ansible_skip_tags", ()):
            problems.append(
                "tag preflight is skipped, but the roles need its checks: remove preflight from --skip-tags"
            )
        names = misspelled.found(task_vars) if roles else misspelled.Found([], [])
        problems += names.errors
        # Not in the result, whose warnings get the host's name: Ansible prints equal warnings once in a run.
        for each in names.warnings:
            Display().warning(each)
        try:
            read = look.read_declaration(failure)
        except declaration.DeclarationProblems as error:
            read = None
            problems += error.lines
        # These roles report the same problems, but only after the first roles have written to the nodes.
        if not problems and not unchecked:
            if "host_devices" in roles and values.get("host_devices_state") != "absent":
                makers = (values.get(f"host_devices_{name}") or [] for name in host_devices.MAKERS)
                problems += host_devices.problems(*makers)
            problems += self._of_a_daemonset(read.configuration) if "device_plugin" in roles else []
        if read is not None and roles:
            by_claims = [each.name for each in read.configuration.resources if each.api == DRA]
            problems += combinations.problems(task_vars, template, read.capacities, by_claims)
        if look.is_profile and roles:
            problems += profiles.problems(task_vars, template, read.capacities if read is not None else {})
        warned = [*unchecked]
        what = "declaration" if problems else "cluster"
        # Check this now, because a node that only the API reaches has no preflight.
        if look.api_only and roles and not offline:
            found, warnings = self._of_the_cluster(None if problems else read.as_data())
            problems += found
            warned += warnings
        # Ansible would print an empty list.
        result = {"warnings": warned} if warned else {}
        if problems:
            # A role that calls this action may come after roles that have written on the node.
            done = "no node was touched" if roles else "this task wrote nothing"
            return {**result, "failed": True, "msg": declaration.unusable(look.host, problems, what, done)}
        return {**result, "changed": False, **read.as_data()}

    def _of_a_daemonset(self, configuration):
        variable = self.preflight.variable
        if not (self.preflight.is_profile or variable("device_plugin_mode") == "daemonset"):
            return []
        deployment = variable("device_plugin_deployment", {})
        return deployed.problems(deployment, variable("node_devices_kubeconfig"), configuration)

    def _of_the_cluster(self, declared):
        """Return the reasons why the run cannot manage this node through the API, and warnings.

        declared: the declaration as data; None if invalid.
        """
        variable = self.preflight.variable
        if self.preflight.is_profile:
            return self._of_the_profile(variable("node_devices_kubeconfig"), declared), []
        options = {
            "kubeconfig": variable("node_devices_kubeconfig"),
            "mode": variable("device_plugin_mode"),
            "takeover": variable("device_plugin_takeover", False),
            "deployment": variable("device_plugin_deployment"),
        }
        # A later task reports an expression that fails.
        with contextlib.suppress(AnsibleUndefinedVariable):
            options["node_name"] = variable("node_devices_node_name")
        answer = cluster_access.ask(asked.parse(options, declared, self.host), api_only=True)
        kinds = declared["foreign_kinds"] if declared else ()
        problems = [*answer.problems, *requirements.offered_twice((), answer.drivers, kinds)]
        return problems, [*answer.warnings, *requirements.removed(answer.removed)]

    def _of_the_profile(self, path, declared):
        """Return the reasons why the cluster cannot have the profile. declared: as for ``_of_the_cluster``."""
        # Other checks report a missing kubeconfig and wrong settings.
        with contextlib.suppress(AnsibleUndefinedVariable, DeclarationError):
            given = self.preflight.variable("device_plugin_deployment", {})
            deployment = deployed.parse(given)
            try:
                if path:
                    api = Api.of(path, dry_run=True)
                    other_daemonsets.before(DaemonSet(api, deployment))
                    if declared and declared["dra"]:
                        return cluster_access.require_dra(api, declared, given)
            except ApiError as error:
                return [cluster_access.failure(path, error)]
            except DeploymentError as error:
                return str(error).splitlines()
        return []


def _without_facts(unchecked):
    """Return a declaration.Failure that records expressions that need facts in ``unchecked``."""

    def failure(where, error):
        if not declaration.needs_facts(error):
            return declaration.failed_expression(where, error)
        unchecked.append(f"{where} is not checked, because its expression needs facts of the node: {error}")
        return None

    return failure
