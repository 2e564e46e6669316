# SPDX-License-Identifier: Apache-2.0
"""Plans and ends the move of a node from the device plugin to DRA or back. See plugins/modules/node_migration.py."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ...plugin.node_device_plugin.cluster.api import Api, Place
from ...plugin.node_device_plugin.declaration import parse_configuration
from ..plugin_utils import asked, play, plugin_cli
from ..plugin_utils.kubernetes import migration
from ..plugin_utils.kubernetes.objects import DeploymentError
from ..plugin_utils.kubernetes.waiting import until
from ..plugin_utils.node_action import NodeAction

# Seconds between two looks. A kubelet updates its node object every 10 s.
_PAUSE = 1.0


class ActionModule(NodeAction):
    """Contacts the API from the controller. On the node, it only asks the plugin for the number of healthy devices."""

    _requires_connection = False
    of_the_host = ("kubeconfig", "node_name")

    def act(self, given):
        if self.preflight.is_profile:
            raise DeploymentError("a profile has no node to drain: migrate the nodes as hosts of their own")
        if not given.get("kubeconfig"):
            raise DeploymentError(asked.without_kubeconfig("a migration needs the Kubernetes API"))
        self._api = Api.of(given["kubeconfig"], dry_run=True)
        self._node = self.preflight.node_name(given)
        self._declared = parse_configuration(self.preflight.declaration(given.get("declaration"))["configuration"])
        return self._planned(given) if given["state"] == "planned" else self._served(given)

    def _planned(self, given):
        if boolean(self.preflight.variable("node_devices_drain", False)):
            raise DeploymentError("node_devices_drain: do not set it, because migrate.yml drains each node that moves")
        if self.preflight.api_only and self._api.get(Place("nodes", self._node)) is None:
            return self._plan([], [], f"{self.host}: the node has not joined")
        seen = migration.look(self._api, self._node, self._declared)
        moves = migration.moving(self._node, self._declared, seen)
        if not boolean(given.get("pods_have_claims", False)):
            migration.require_limits(self._api, self._node, self._declared, moves)
        text = f"moves {', '.join(moves)}" if moves else "serves its resources as declared"
        text += ", and an earlier run left the node cordoned" if seen.is_ours else ""
        usable = migration.usable(self._node, moves, seen)
        return self._plan(moves, usable, f"{self.host}: {text}", bool(seen.published), seen.is_ours)

    def _plan(self, moves, usable, text, has_slices=False, is_ours=False):
        told = {"moves": bool(moves) or is_ours, "has_slices": has_slices, "usable": usable, "text": text}
        return {"changed": False, "check_mode": self._task.check_mode, **told}

    def _served(self, given):
        renew = play.Renewal(self, self._vars)

        def look(is_late):
            seen = migration.look(self._api, self._node, self._declared)
            healthy = self._healthy(given["command"])
            wrong = list(migration.unfinished(self._node, self._declared, seen, healthy, given.get("usable", ())))
            if wrong and is_late:
                raise DeploymentError("\n".join(wrong))
            return None if wrong else {"changed": False}

        return until(look, float(given.get("timeout", 120)), _PAUSE, renew)

    def _healthy(self, command):
        """Return the number of healthy devices that the node's plugin offers, by resource."""
        if self.preflight.api_only:
            return None
        plugin = plugin_cli.answer(self, [command, "status", "-o", "json"])["plugin"] or {"resources": []}
        return {
            each["name"]: sum(len(one["kubelet_ids"]) for one in each["devices"] if one["state"] == "healthy")
            for each in plugin["resources"]
        }
