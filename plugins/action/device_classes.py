# SPDX-License-Identifier: Apache-2.0
"""Keeps the DeviceClasses of a play's hosts. See plugins/modules/device_classes.py."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ansible.utils.display import Display
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, LacksRights
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.model import DRA, DraDriver
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import asked, declaration, play, profiles
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import device_classes, duplicate_nodes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError, outcome
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.node_action import NodeAction

# Seconds between two looks at the claims.
_PAUSE = 2.0


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
        """Fail while claims on devices of the node are allocated. If the policy is wait, first wait for their end."""
        result, path = {"changed": False}, given.get("kubeconfig")
        if not path or self.preflight.is_profile:
            return result
        settings = self.preflight.variable(declaration.SETTINGS, {})
        dra = settings.get("dra") if isinstance(settings, Mapping) else None
        driver = (dra or {}).get("driver") or DraDriver().name
        api, node = Api.of(path), self.preflight.node_name(given)
        minutes = asked.minutes(given, "node_devices_in_use_minutes")
        waits = given.get("policy") == "wait" and not self._task.check_mode
        until, said, renew = time.monotonic() + minutes * 60 * waits, None, play.Renewal(self, self._vars)
        while True:
            try:
                found = sorted(device_classes.claims(api, driver, node))
            except LacksRights as error:
                # A user without this right may manage nodes without DRA.
                if driver in ((self.preflight.known or {}).get("device_plugins") or {}).get("drivers", ()):
                    raise
                Display().vvv(f"{self.host}: {error}")
                return result
            if not found or time.monotonic() >= until:
                break
            if found != said:
                names = ", ".join(found)
                Display().display(f"{self.host}: waiting up to {minutes:g} minutes for the end of claims: {names}")
                said = found
            renew()
            time.sleep(min(_PAUSE, max(0.0, until - time.monotonic())))
        if not found:
            return result
        raise DeploymentError(
            f"the claims {', '.join(found)} have devices of this node, and their pods cannot end without the plugin: "
            "end these pods first (kubectl drain)"
        )
