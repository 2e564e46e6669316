# SPDX-License-Identifier: Apache-2.0
"""Keeps the DeviceClasses of a play's hosts. See plugins/modules/device_classes.py."""

from __future__ import annotations

from ...plugin.node_device_plugin.cluster.api import Api, LacksRights
from ...plugin.node_device_plugin.declaration.model import DRA
from ..plugin_utils import asked, combinations, declaration, profiles, requirements
from ..plugin_utils.kubernetes import claims, deployed, device_classes, duplicate_nodes, waiting
from ..plugin_utils.kubernetes.daemonset import DaemonSet
from ..plugin_utils.kubernetes.objects import DeploymentError, outcome
from ..plugin_utils.node_action import NodeAction

# Seconds until a claim must be free, and between two looks.
_GRACE, _PAUSE = 10.0, 1.0


class ActionModule(NodeAction):
    """Contacts the API from the controller, and asks a node only for its claims."""

    _requires_connection = False

    def act(self, given):
        return self._unclaimed() if given["state"] == "unclaimed" else self._converged(given["state"])

    def _converged(self, state):
        """Create, change and delete the DeviceClasses for all hosts of the batch, in each cluster."""
        clusters = {}
        for host in self._vars.get("ansible_play_batch", [self.host]):
            path, use = self._use(self._vars["hostvars"][host], host, state)
            if path:
                clusters.setdefault(path, []).append(use)
            elif use and use.resources:
                raise DeploymentError(f"{host}: {combinations.without_classes(use.resources)}")
        if len(clusters) > 1:
            named = {}
            for path, uses in clusters.items():
                named.setdefault(duplicate_nodes.identity(path), (path, []))[1].extend(uses)
            clusters = dict(named.values())
        changes, nameless = [], set()
        for path, uses in clusters.items():
            changed = device_classes.converge(Api.of(path, self._task.check_mode), uses)
            changes += changed
            nameless |= device_classes.nameless(changed, uses)
        told = device_classes.only_by_claims(nameless)
        return {**outcome(changes), **({"warnings": [told]} if told else {})}

    def _use(self, variables, host, state):
        """Return a host's kubeconfig, or None, and what its node or profile uses. variables: of the host."""
        declared = {}
        if state == "present":
            declared = declaration.plain(variables.get("device_plugin_node") or {}).get("declaration")
            if declared is None:
                # The host skips the role, so its classes stay as they are.
                return None, None
        by_claims = [each["name"] for each in declared.get("resources", ()) if each.get("api") == DRA]
        driver = declared.get("dra") or {}
        if declaration.plain(variables.get(profiles.VARIABLE)) in (True, "true"):
            deployment = deployed.parse(declaration.plain(variables.get("device_plugin_deployment") or {}))
            user = device_classes.profile(deployment.namespace, deployment.name)
        else:
            user = driver.get("node") or declaration.plain(variables.get("node_devices_node_name")) or host
        use = device_classes.Use(user, frozenset(by_claims), driver.get("name", ""))
        return declaration.plain(variables.get("node_devices_kubeconfig")), use

    def _unclaimed(self):
        """Fail while claims have devices of the node. The kubelet releases a claim some seconds after its pod ended.

        The plugin's records on the node tell which claims it has prepared, also without a cluster. The cluster tells
        which others are allocated, because their pods could no longer start.
        """
        result = {"changed": False}
        try:
            others = self._allocated()
        except LacksRights as error:
            others = None
            result["warnings"] = [
                f"{self.host}: nothing tells whether pods that have not started yet have claims with devices of this "
                f"node: {error}"
            ]
        if not (others or self._claims(self.preflight.known)):
            return result

        def look(is_late):
            prepared = self._claims()
            waiting_for = [] if others is None else sorted(self._allocated().difference(prepared))
            told = []
            if prepared:
                told.append(
                    f"the claims {', '.join(prepared)} have devices of this node, and their pods cannot end without "
                    "the plugin: end these pods first (kubectl drain)"
                )
            if waiting_for:
                told.append(
                    f"devices of this node are allocated to the claims {', '.join(waiting_for)}, and their pods cannot "
                    "start without the plugin: delete these pods first"
                )
            if told and is_late:
                raise DeploymentError("; ".join(told))
            return None if told else result

        return waiting.until(look, 0 if self._task.check_mode else _GRACE, _PAUSE)

    def _allocated(self):
        """Return the names of the claims to which the cluster has allocated devices of the node."""
        variable = self.preflight.variable
        path = variable("node_devices_kubeconfig")
        # Without a cluster, no run has created a DeviceClass. If only the API reaches the node, the cluster tells both.
        if not path or self.preflight.api_only:
            return frozenset()
        return device_classes.allocated(Api.of(path), variable("node_devices_node_name") or self.host)

    def _claims(self, known=None):
        """Return the names of the claims that the node's plugin has prepared. known: the node's facts, or None.

        If only the API reaches the node, these are the claims whose pods are there. A profile has many nodes.
        """
        if self.preflight.api_only:
            return self._claims_in_cluster()
        if known is None:
            places = asked.places(self.preflight.variable(declaration.SETTINGS, {}))
            known = self.preflight.on_node("node_preflight", {"cdi_dir": places["cdi_dir"]})
            unanswered = requirements.unanswered(known, self._vars.get("ansible_python_interpreter"))
            if unanswered:
                raise DeploymentError(unanswered)
        return sorted(each["name"] for each in known["claims_prepared"])

    def _claims_in_cluster(self):
        variable = self.preflight.variable
        path = variable("node_devices_kubeconfig")
        if not path:
            return []
        cluster = DaemonSet(Api.of(path), deployed.parse(variable("device_plugin_deployment", {})))
        return claims.held(
            cluster, "" if self.preflight.is_profile else variable("node_devices_node_name") or self.host
        )
