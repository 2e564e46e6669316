# SPDX-License-Identifier: Apache-2.0
"""Reads a node's status. See plugins/modules/node_status.py."""

from __future__ import annotations

from ansible.errors import AnsibleConnectionFailure

from ...plugin.node_device_plugin.cluster import claims, extended_resources, manifests, quantity
from ...plugin.node_device_plugin.cluster.api import Api, ApiError, NotFound, Unavailable
from ...plugin.node_device_plugin.declaration import DeclarationError, configuration_file, model, parse_configuration
from ...plugin.node_device_plugin.support import answers
from ..plugin_utils import asked, combinations, declaration, plugin_cli, preflight, profiles, requirements
from ..plugin_utils.fleet import drift, members, node
from ..plugin_utils.kubernetes import deployed, device_classes, named_nodes, rollout, same_machine
from ..plugin_utils.kubernetes.daemonset import DaemonSet, ReadOnce
from ..plugin_utils.kubernetes.objects import DeploymentError
from ..plugin_utils.kubernetes.waiting import until
from ..plugin_utils.node_action import NodeAction

# Requirements to check. Device nodes are excluded, because the plugin reports their problems.
_REQUIRED = ["python", "systemd", "runtime", "kubelet"]
# Seconds between two reads of a node object.
_PAUSE = 1.0


class ActionModule(NodeAction):
    """Runs a module and two commands on the node, all read-only. The status contains the errors."""

    only_shown = True
    of_the_host = ("kubeconfig", "node_name", "cri_socket", "mode", "deployment")

    def act(self, given):
        self._arguments, host = given, self.host
        if self.preflight.is_profile:
            return {"changed": False, "statuses": answers.legible(self._of_members(), answers.LONGEST_TEXT)}
        self._api_only = self.preflight.api_only
        self._is_pod = self._arguments.get("mode", "service") == "daemonset"
        problems = []
        parts = {"declaration": self._declaration(problems), "api_only": self._api_only}
        if self._api_only and not self._is_pod:
            problems.append(combinations.NO_SERVICE)
        try:
            if not self._api_only:
                parts.update(self._of_node(parts["declaration"], problems))
                if parts["declaration"] is not None and "facts" in parts:
                    found = parts["facts"].get("accounts") or {}
                    parts["declaration"], unknown = declaration.with_numbers(parts["declaration"], found)
                    problems.extend(unknown)
        except AnsibleConnectionFailure as error:
            parts["unreachable"] = str(error).strip() or "no connection"
        if parts["declaration"] is not None and not self._is_pod:
            text = configuration_file.text(parts["declaration"]["configuration"])
            parts["wanted_sha256"] = manifests.sha256_of(text)
        parts.update(self._of_cluster(host, parts, problems))
        entry = node.entry(host, node.Read(**parts, problems=tuple(dict.fromkeys(problems))))
        # Tables and the page of the whole fleet show these texts.
        return {"changed": False, "status": answers.legible(entry, answers.LONGEST_TEXT)}

    def _of_members(self):
        """Return the entries of a profile's nodes; if they cannot be read, the profile's entry with the error."""
        try:
            if not self._arguments.get("kubeconfig"):
                raise DeploymentError(deployed.NO_CLUSTER)
            deployment = deployed.parse(self._arguments.get("deployment", {}))
            cluster = ReadOnce(Api.of(self._arguments["kubeconfig"]), deployment)
            # A host whose node is unknown has an entry with the reason, so the reason is not repeated.
            hosts = self._vars.get("ansible_play_hosts_all", ())
            named, _unread = named_nodes.found(self._vars, hosts, self._arguments["kubeconfig"])
            sample = profiles.sample_size(self._arguments)
            return members.statuses(self.host, cluster, self.preflight.read_declaration().as_data(), sample, named)
        except preflight.ERRORS as error:
            return [node.not_read(self.host, str(error))]

    def _declaration(self, problems):
        try:
            return self.preflight.read_declaration().as_data()
        except declaration.DeclarationProblems as error:
            problems.extend(error.lines)
            return None

    def _of_node(self, declared, problems):
        options = self._options(declared, problems)
        facts = self.preflight.on_node("node_preflight", options.of_module)
        if facts.get("unreachable"):
            raise AnsibleConnectionFailure(str(facts.get("msg", "")))
        unanswered = requirements.unanswered(facts, self._vars.get("ansible_python_interpreter"))
        if unanswered:
            problems.append(unanswered)
            return {}
        problems.extend(requirements.unmet(_REQUIRED, facts, {}, options.cdi))
        problems.extend(requirements.other_mode(facts["device_plugins"], self._arguments.get("mode", "service")))
        if facts["transaction_left"]:
            problems.append(
                "an earlier run was interrupted while it changed the container runtime's configuration: run "
                "site.yml, which finishes or undoes the change"
            )
        if facts["uid"] != 0 or not facts["commands"]:
            return {"facts": facts}
        differing, notes = drift.found(facts) if declared is not None else ([], [])
        problems.extend(differing)
        command = self._arguments["command"]
        status = self._answer([command, "status", "-o", "json"], problems)
        runtime = None
        if not facts["runtime"].get("problem"):
            runtime = self._answer([command, "runtime", "--socket", facts["runtime"]["socket"], "-o", "json"], problems)
        return {"facts": facts, "status": status, "runtime": runtime, "notes": tuple(notes)}

    def _options(self, declared, problems):
        """Return the preflight's options. Without an error in the variables, the node also looks at the roles' work."""
        mode = self._arguments.get("mode", "service")
        given = {"requires": _REQUIRED, "commands": [self._arguments["command"]], "mode": mode}
        if self._arguments.get("cri_socket"):
            given["cri_socket"] = self._arguments["cri_socket"]
        if declared is not None:
            known = self._access(given, declared)
            try:
                converge = drift.arguments(self, {**self._vars, **known}, declared)
                return self.preflight.asked({**given, "converge": converge}, declared)
            except Exception as error:  # an expression may fail in any way
                problems.append(f"the node's files cannot be compared with the declaration: {error}")
        return asked.parse(given, declared, self.host)

    def _access(self, given, declared):
        """Return the variable with the files that a DRA driver reads. The unit has them, and only the node knows."""
        if not declared["dra"] or self._is_pod:
            return {}
        options = self.preflight.asked(given, declared)
        return {"device_plugin_node": self.preflight.on_node("node_preflight", options.of_module)}

    def _answer(self, command, problems):
        try:
            return plugin_cli.answer(self, command)
        except plugin_cli.PluginCliError as error:
            problems.append(str(error))
            return None

    def _of_cluster(self, host, parts, problems):
        """Return the node's facts from the API; empty without a kubeconfig or a valid declaration."""
        declared = parts["declaration"]
        if not self._arguments.get("kubeconfig") and self._is_pod:
            problems.append(asked.without_kubeconfig("the DaemonSet is read through the Kubernetes API"))
        if not self._arguments.get("kubeconfig") or declared is None:
            return {}
        try:
            cluster = Api.of(self._arguments["kubeconfig"])
            shown = cluster.node(self._arguments.get("node_name") or host)
            if "facts" in parts:
                name, identity = shown["metadata"]["name"], parts["facts"].get("identity")
                other = same_machine.check(cluster, self._arguments["kubeconfig"], name, shown, identity).problem
                problems.extend([other] if other else [])
            # This list comes from the kubelet, so the checkpoint is not necessary.
            registered = frozenset((parts.get("status") or {}).get("allocatable", ()))
            if self._api_only:
                registered = extended_resources.registered_by(shown)
            # The node object shows no resource that pods get by claims.
            by_claim = {each["name"] for each in declared["resources"] if each.get("api") == model.DRA}
            served = frozenset(each["name"] for each in declared["resources"])
            if self._api_only and by_claim:
                shown, registered = self._with_slices(cluster, shown, declared["configuration"]), registered | by_claim
            else:
                served -= by_claim
            wanted = extended_resources.Wanted(declared["capacities"], served, registered)
            rows = extended_resources.rows(shown, wanted)
            problems.extend(self._unlisted(cluster, shown["metadata"]["name"], by_claim))
            notes = (*parts.get("notes", ()), *self._only_by_claims(cluster, by_claim))
        except (ApiError, extended_resources.CapacityConflict) as error:
            if self._api_only and isinstance(error, Unavailable):
                # Without the API, nothing reaches this node.
                return {"unreachable": str(error)}
            if self._api_only and isinstance(error, NotFound):
                return {"node_object": {}, "notes": (str(error),)}
            problems.append(str(error))
            return {}
        of_pod = self._of_pod(cluster, shown, declared, problems) if self._is_pod else {}
        return {"cluster": rows, "node_object": shown, "notes": notes, **of_pod}

    def _only_by_claims(self, cluster, by_claim):
        """Return a sentence if pods cannot have some of these resources in their limits."""
        try:
            nameless = device_classes.without_name(cluster, by_claim) if by_claim else []
        except ApiError:
            # A missing class, right or API has other effects, which other checks report.
            nameless = []
        return [device_classes.only_by_claims(nameless)] if nameless else []

    def _with_slices(self, cluster, of_node, declared):
        """Return a node object with what the node's ResourceSlices offer. Raises ApiError."""
        configuration = parse_configuration(declared)
        pools = claims.published(cluster, configuration.dra.name, of_node["metadata"]["name"])
        return claims.with_published(of_node, configuration.resources, pools)

    def _unlisted(self, cluster, name, by_claim):
        """Return a sentence for each resource whose allocatable quantity differs from the kubelet's after the timeout.

        The kubelet updates the node object only every 10 s. by_claim: resources that a node object does not show.
        """
        healthy = {key: count for key, count in (self._arguments.get("healthy") or {}).items() if key not in by_claim}

        def look(is_late):
            allocatable = extended_resources.capacities_of(cluster.node(name), "allocatable") if healthy else {}
            wrong = [
                f"{each}: the kubelet lists {count} healthy, but the node object shows "
                f"{allocatable.get(each, 'none')} allocatable"
                for each, count in healthy.items()
                if not quantity.same(allocatable.get(each), count)
            ]
            return wrong if is_late or not wrong else None

        return until(look, float(self._arguments.get("timeout", 30)), _PAUSE)

    def _of_pod(self, cluster, of_node, declared, problems):
        """Return the plugin's pod, and ``running`` for a node that only the API reaches."""
        found = {}
        try:
            daemon_set = DaemonSet(cluster, deployed.parse(self._arguments.get("deployment", {})))
            found["wanted_sha256"] = manifests.sha256_of(deployed.configuration_text(declared))
            found["pod"] = rollout.look(daemon_set, of_node)
            pod = rollout.newest(daemon_set, of_node["metadata"]["name"])
            if self._api_only and pod is not None and rollout.is_running(pod):
                found["running"] = rollout.ask_through_api(cluster, pod)
        except (ApiError, DeclarationError) as error:
            problems.append(str(error))
        return found
