# SPDX-License-Identifier: Apache-2.0
"""Deploys and verifies a profile: the DaemonSet of nodes that nobody named. See plugins/modules/profile.py."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import parse_configuration
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support import answers
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import members, node
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import (
    api_verification,
    deployed,
    other_daemonsets,
    profile,
    rollout,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet, ReadOnce
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
        if not given.get("kubeconfig"):
            raise DeploymentError(deployed.NO_CLUSTER)
        self._timeout = float(given.get("timeout", 120))
        api = Api.of(given["kubeconfig"], self._task.check_mode)
        self._cluster = DaemonSet(api, deployed.parse(given.get("deployment", {})))
        return getattr(self, f"_{given['state']}")(given)

    def _declared(self, given):
        return self.preflight.declaration(given.get("declaration"))

    def _deployed(self, given):
        """Write the default configuration, apply the DaemonSet, and wait for the pods of a sample of the nodes."""
        cluster, text = self._cluster, deployed.configuration_text(self._declared(given))
        # Check for unsupported settings before anything is written.
        manifests.common_ground({self.host: manifests.read_configuration_text(text)})
        other_daemonsets.refuse_overlap(cluster)
        changes = cluster.configure(manifests.DEFAULT, text)
        changes += cluster.deploy({manifests.DEFAULT: text}, cluster.texts())
        sample = profile.sample(cluster, int(given.get("sample", 3)), proven_first=True)
        for name in () if self._task.check_mode else sample.names:
            rollout.await_node(cluster, name, manifests.sha256_of(text), None, self._timeout)
        return {**outcome(changes), "nodes": sample.total}

    def _verified(self, given):
        """Verify a sample of the nodes with pods that get devices."""
        if self._task.check_mode:
            return {"skipped": True, "msg": "a proof needs a pod, which check mode does not create"}
        resources = parse_configuration(self._declared(given)["configuration"]).resources
        is_unproven_only = given.get("proofs") == "unproven"
        sample = profile.sample(self._cluster, int(given.get("sample", 3)), proven_first=is_unproven_only)
        reports, is_changed = {}, False
        for name in sample.names:
            reports[name], has_record = api_verification.verify(
                self._cluster,
                name,
                resources,
                timeout=self._timeout,
                unproven_only=is_unproven_only,
                all_devices=False,
            )
            is_changed = is_changed or has_record
        problems = [f"{name}: {problem}" for name, report in reports.items() for problem in report["problems"]]
        unseen = sample.total - len(sample.names)
        told = (
            [f"{self.host}: {unseen} of {sample.total} nodes were not verified (verification_sample)"] if unseen else []
        )
        return {
            "changed": is_changed,
            "resources": [
                {**row, "resource": f"{row['resource']} on {name}"}
                for name, report in reports.items()
                for row in report["resources"]
            ],
            "problems": problems,
            **({"warnings": told} if told else {}),
        }

    def _reported(self, given):
        """Judge all nodes by their node objects and pods, and a sample by its plugins.

        The report has an error as the profile's entry.
        """
        cluster = ReadOnce(self._cluster.api, self._cluster.deployment)
        try:
            statuses = members.statuses(self.host, cluster, self._declared(given), int(given.get("sample", 3)))
        except preflight.ERRORS as error:
            statuses = [node.not_read(self.host, self.preflight.message(error))]
        return {"changed": False, "statuses": answers.legible(statuses, answers.LONGEST_TEXT)}

    def _absent(self, given):
        """Remove the default configuration, and the DaemonSet. Raises DeploymentError if hosts still need it."""
        cluster = self._cluster
        named = sorted(cluster.texts())
        if named:
            raise DeploymentError(
                f"DaemonSet {cluster.deployment.name} still serves {', '.join(named)}, which have hosts of their own: "
                "uninstall these hosts first"
            )
        changes = profile.withdraw(cluster, self._timeout)
        return outcome([*changes, *cluster.dismantle({manifests.DEFAULT})])
