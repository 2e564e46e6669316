# SPDX-License-Identifier: Apache-2.0
"""Finds hosts of the play that are the same node. See plugins/modules/node_names.py."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.declaration import plain
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import duplicate_nodes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.node_action import NodeAction


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
        lines = list(duplicate_nodes.found([host for host in hosts if host is not None], cluster_of))
        if lines:
            # In a role, earlier roles of the play may have written on the nodes.
            done = "No node was touched." if self._task._role is None else "This task wrote nothing."
            return {"failed": True, "msg": f"{done}\n" + "\n".join(lines)}
        return {"changed": False}


def _host(name, hostvars, kubeconfig):
    """Return the host; None without a kubeconfig, or if an expression fails. A later task reports that error."""
    try:
        variables = hostvars[name]
        path = plain(variables.get("node_devices_kubeconfig")) or kubeconfig
        node = plain(variables.get("node_devices_node_name")) or name
    except Exception:  # an expression may fail in any way
        return None
    return duplicate_nodes.Host(name, str(node), str(path)) if path else None
