# SPDX-License-Identifier: Apache-2.0
"""Deploys and verifies a profile: the DaemonSet of nodes that nobody named. See plugins/modules/profile.py."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import parse_configuration
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support import answers
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight, profiles
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.declaration import plain
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import members, node
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import (
    api_verification,
    deployed,
    duplicate_nodes,
    other_daemonsets,
    profile,
    rollout,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import (
    DeploymentError,
    outcome,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Contacts the API from the controller, and no node."""

    _requires_connection = False
    of_the_host = ("kubeconfig", "deployment")

    def act(self, given):
        self._warnings = []
        if given["state"] == "reported":
            result = self._reported(given)
        else:
            self._open(given)
            problems = list(profiles.sample_problem(given.get("sample", 3), "sample"))
            if problems:
                raise DeploymentError("\n".join(problems))
            result = getattr(self, f"_{given['state']}")(given)
        return {**result, **({"warnings": self._warnings} if self._warnings else {})}

    def _open(self, given):
        """Find the DaemonSet of the profile. Raises DeploymentError, DeclarationError."""
        if not self.preflight.is_profile:
            raise DeploymentError(f"{profiles.VARIABLE}: not set, so this host is one node: set it, or use the roles")
        if not given.get("kubeconfig"):
            raise DeploymentError(deployed.NO_CLUSTER)
        self._timeout = float(given.get("timeout", 120))
        api = Api.of(given["kubeconfig"], self._task.check_mode)
        self._cluster = DaemonSet(api, deployed.parse(given.get("deployment", {})))

    def _declared(self, given):
        return self.preflight.declaration(given.get("declaration"))

    def _deployed(self, given):
        """Write the default configuration, apply the DaemonSet, and wait for the pods of a sample of the nodes."""
        cluster, text = self._cluster, deployed.configuration_text(self._declared(given))
        # Check for unsupported settings before anything is written.
        manifests.common_ground({self.host: manifests.read_configuration_text(text)})
        other_daemonsets.refuse_overlap(cluster)
        # A named host without a key has the former default until its own play gives it another configuration.
        is_other = cluster.data().get(manifests.DEFAULT) not in (None, text)
        changes = cluster.configure(manifests.DEFAULT, text, self._named(given) if is_other else ())
        changes += cluster.deploy({manifests.DEFAULT: text}, cluster.texts())
        sample = profile.sample(cluster, int(given.get("sample", 3)))
        for name in () if self._task.check_mode else sample.names:
            rollout.await_node(cluster, name, manifests.sha256_of(text), None, self._timeout)
        return {**outcome(changes), "nodes": sample.total}

    def _named(self, given, but=frozenset()):
        """Return the names of this DaemonSet's nodes that have a host of their own. but: nodes to leave out."""
        hostvars, known = self._vars.get("hostvars", {}), set()
        for host in (self._vars.get("groups") or {}).get("all", ()):
            try:
                of_host = hostvars[host]
                is_profile = boolean(plain(of_host.get(profiles.VARIABLE)) or False, strict=False)
                is_pod = plain(of_host.get("device_plugin_mode")) == "daemonset"
                if is_pod and not is_profile and _is_one_cluster(of_host.get("node_devices_kubeconfig"), given):
                    # A task of this run knows a name that is an expression with facts.
                    configured = plain(of_host.get("device_plugin_configured")) or {}
                    known.add(configured.get("node") or plain(of_host.get("node_devices_node_name")) or plain(host))
            except Exception as error:  # an expression may fail in any way
                self._warnings.append(
                    f"{self.host}: the node of host {plain(host)} is unknown, so the profile counts it as one of its "
                    f"own: {error}"
                )
        known -= set(but)
        return [name for node in self._cluster.nodes() if (name := node["metadata"]["name"]) in known] if known else []

    def _verified(self, given):
        """Verify a sample of the nodes with pods that get devices."""
        if self._task.check_mode:
            return {"skipped": True, "msg": "a proof needs a pod, which check mode does not create"}
        resources = parse_configuration(self._declared(given)["configuration"]).resources
        sample, reports, is_changed = profile.sample(self._cluster, int(given.get("sample", 3))), {}, False
        problems = []
        for name in sample.names:
            try:
                reports[name], has_record = api_verification.verify(
                    self._cluster,
                    name,
                    resources,
                    timeout=self._timeout,
                    unproven_only=given.get("proofs") == "unproven",
                    all_devices=False,
                )
                is_changed = is_changed or has_record
            except (ApiError, DeploymentError) as error:
                problems += [f"{name}: {line}" for line in str(error).splitlines()]
        problems += [f"{name}: {problem}" for name, report in reports.items() for problem in report["problems"]]
        unseen = sample.total - len(sample.names)
        if unseen:
            self._warnings.append(
                f"{self.host}: {unseen} of {sample.total} nodes were not verified (verification_sample)"
            )
        return {
            "changed": is_changed,
            "resources": [
                {**row, "resource": f"{row['resource']} on {name}"}
                for name, report in reports.items()
                for row in report["resources"]
            ],
            "problems": problems,
            "nodes": sample.total,
        }

    def _reported(self, given):
        """Judge all nodes by their node objects and pods. The report has an error as the profile's entry."""
        try:
            self._open(given)
            statuses = members.statuses(self.host, self._cluster, self._declared(given))
        except preflight.ERRORS as error:
            statuses = [node.not_read(self.host, str(error))]
        return {"changed": False, "statuses": answers.legible(statuses, answers.LONGEST_TEXT)}

    def _absent(self, given):
        """Remove the default configuration, and the DaemonSet. Raises DeploymentError if hosts still need it."""
        cluster = self._cluster
        removed = self._removed(given)
        leaving = removed if self._task.check_mode else set()
        named = sorted({*cluster.texts(), *self._named(given, removed)} - leaving)
        if named:
            more = f" and {len(named) - 10} more" if len(named) > 10 else ""
            raise DeploymentError(
                f"DaemonSet {cluster.deployment.name} still serves {', '.join(named[:10])}{more}, which have hosts of "
                "their own: uninstall these hosts first. Remove the key of a node without a host from the ConfigMap"
            )
        changes, stays = profile.withdraw(cluster, self._timeout)
        self._warnings += [f"{self.host}: {each}" for each in stays]
        changes += cluster.dismantle({manifests.DEFAULT, *removed})
        if cluster.namespace.kept:
            self._warnings.append(f"namespace {cluster.deployment.namespace} stays: {cluster.namespace.kept}")
        return outcome(changes)

    def _removed(self, given):
        """Return the nodes that an earlier play of this run has removed. In check mode, the cluster still has them."""
        hostvars = self._vars.get("hostvars", {})
        results = (plain(hostvars[host].get("device_plugin_removed")) or {} for host in hostvars)
        return {each["node"] for each in results if "node" in each and _is_one_cluster(each["kubeconfig"], given)}


def _is_one_cluster(path, given):
    """Return whether a kubeconfig is for the profile's cluster. given: the task's arguments."""
    path, own = plain(path), given["kubeconfig"]
    return bool(path) and (path == own or duplicate_nodes.identity(path) == duplicate_nodes.identity(own))
