# SPDX-License-Identifier: Apache-2.0
"""Keeps the DeviceClasses of a play's hosts. See plugins/modules/device_classes.py."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, LacksRights
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.model import DRA, DraDriver
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import combinations, declaration, profiles
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import (
    device_classes,
    duplicate_nodes,
    waiting,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError, outcome
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.node_action import NodeAction

# Seconds until a claim must be free, and between two looks.
_GRACE, _PAUSE = 10.0, 1.0


class ActionModule(NodeAction):
    """Contacts the API from the controller."""

    _requires_connection = False
    of_the_host = ("kubeconfig", "node_name")

    def act(self, given):
        return self._unclaimed(given) if given["state"] == "unclaimed" else self._converged(given["state"])

    def _converged(self, state):
        """Create, change and delete the DeviceClasses for all hosts of the play, in each cluster."""
        clusters = {}
        for host in self._vars.get("ansible_play_hosts", [self.host]):
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
        changes = []
        for path, uses in clusters.items():
            changes += device_classes.converge(Api.of(path, self._task.check_mode), uses)
        return outcome(changes)

    def _use(self, variables, host, state):
        """Return the path of a host's kubeconfig, or None, and what its node uses. variables: of the host."""
        if declaration.plain(variables.get(profiles.VARIABLE)) in (True, "true"):
            return None, None
        known = declaration.plain(variables.get("device_plugin_node") or {}) if state == "present" else {}
        declared = known.get("declaration") or {}
        by_claims = [each["name"] for each in declared.get("resources", ()) if each.get("api") == DRA]
        driver = declared.get("dra") or {}
        node = driver.get("node") or declaration.plain(variables.get("node_devices_node_name")) or host
        use = device_classes.Use(node, frozenset(by_claims), driver.get("name", ""))
        return declaration.plain(variables.get("node_devices_kubeconfig")), use

    def _unclaimed(self, given):
        """Fail while claims on devices of the node are allocated. A claim is freed some seconds after its pod ended."""
        result, path = {"changed": False}, given.get("kubeconfig")
        if self.preflight.is_profile:
            return result
        if not path:
            self._require_no_record()
            return result
        settings = self.preflight.variable(declaration.SETTINGS, {})
        dra = settings.get("dra") if isinstance(settings, Mapping) else None
        driver = (dra or {}).get("driver") or DraDriver().name
        api, node = Api.of(path), self.preflight.node_name(given)

        def look(is_late):
            found = sorted(device_classes.claims(api, driver, node))
            if found and is_late:
                raise DeploymentError(
                    f"the claims {', '.join(found)} have devices of this node, and their pods cannot end without the "
                    "plugin: end these pods first (kubectl drain)"
                )
            return None if found else result

        try:
            return waiting.until(look, 0 if self._task.check_mode else _GRACE, _PAUSE)
        except LacksRights:
            # A user without this right may manage nodes without DRA.
            if driver in ((self.preflight.known or {}).get("device_plugins") or {}).get("drivers", ()):
                raise
            return result

    def _require_no_record(self):
        """Raise DeploymentError if the node has records of claims. Without a cluster, only the node tells."""
        known = self.preflight.known or {}
        # The play may have waited for the pods since.
        if known.get("claims_prepared") and self.preflight.on_node("node_preflight", {}).get("claims_prepared", True):
            raise DeploymentError(
                "pods have devices of this node by ResourceClaims, and cannot end without the plugin: end these pods "
                "first (kubectl drain)"
            )
