# SPDX-License-Identifier: Apache-2.0
"""Finds hosts of the play that are the same node, and profiles with the same nodes.

See plugins/modules/node_names.py.
"""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ..plugin_utils import profiles
from ..plugin_utils.declaration import plain
from ..plugin_utils.kubernetes import deployed, duplicate_nodes
from ..plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Contacts no node. Contacts API servers only if two hosts have the same node name and different kubeconfigs."""

    _requires_connection = False
    _VALID_ARGS = frozenset(("offline",))
    of_the_host = ("kubeconfig",)

    def act(self, given):
        # This variable has the hosts of all batches, including failed hosts.
        names = self._vars.get("ansible_play_hosts_all", ())
        # `hostvars` has no play variables, so use the play's kubeconfig.
        kubeconfig = given.get("kubeconfig", "")
        hosts = [_host(plain(name), self._vars.get("hostvars", {}), kubeconfig) for name in names]
        # Without the API, only equal paths mean the same cluster.
        cluster_of = str if boolean(given.get("offline", False)) else duplicate_nodes.identity
        found = [host for host in hosts if isinstance(host, duplicate_nodes.Host)]
        of_profiles = [host for host in hosts if isinstance(host, duplicate_nodes.Profile)]
        lines = [
            *duplicate_nodes.found(found, cluster_of),
            *duplicate_nodes.overlapping(of_profiles, cluster_of),
        ]
        if lines:
            # In a role, earlier roles of the play may have written on the nodes.
            done = "No node was touched." if self._task._role is None else "This task wrote nothing."
            return {"failed": True, "msg": f"{done}\n" + "\n".join(lines)}
        return {"changed": False}


def _host(name, hostvars, kubeconfig):
    """Return the host; None without a kubeconfig, or if a variable is wrong. A later task reports that error."""
    try:
        variables = hostvars[name]
        path = plain(variables.get("node_devices_kubeconfig")) or kubeconfig
        if boolean(plain(variables.get(profiles.VARIABLE)) or False, strict=False):
            deployment = deployed.parse(plain(variables.get("device_plugin_deployment")) or {})
            return duplicate_nodes.Profile(name, str(path), deployment) if path else None
        node = plain(variables.get("node_devices_node_name")) or name
    except Exception:  # an expression may fail in any way
        return None
    return duplicate_nodes.Host(name, str(node), str(path)) if path else None
