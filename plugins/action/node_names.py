# SPDX-License-Identifier: Apache-2.0
"""Finds hosts of the play that are the same node; see plugins/modules/node_names.py for its documentation."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import task_arguments
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.declaration import plain
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import clusters, duplicate_nodes


class ActionModule(ActionBase):
    """Contacts no node; contacts API servers only if two hosts have one node name but different kubeconfigs."""

    _requires_connection = False
    _VALID_ARGS = frozenset(("offline",))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        variables = task_vars or {}
        # `hostvars` has no play variables, so the play's kubeconfig is read here.
        given = task_arguments.of(self, variables, "kubeconfig").get("kubeconfig", "")
        # The hosts of all batches, including failed ones.
        names = variables.get("ansible_play_hosts_all", ())
        hosts = [_host(plain(name), variables.get("hostvars", {}), given) for name in names]
        # Without the API, only equal paths are known to be one cluster.
        cluster_of = str if boolean(self._task.args.get("offline", False)) else clusters.identity
        lines = list(duplicate_nodes.found([host for host in hosts if host is not None], cluster_of))
        if lines:
            result.update(failed=True, msg="No node was touched.\n" + "\n".join(lines))
            return result
        result.update(changed=False)
        return result


def _host(name, hostvars, kubeconfig):
    """Return the host; None if it has no kubeconfig, or if an expression fails, which a later task reports."""
    try:
        variables = hostvars[name]
        path = plain(variables.get("node_devices_kubeconfig")) or kubeconfig
        node = plain(variables.get("node_devices_node_name")) or name
    except Exception:  # an expression may fail in any way
        return None
    return duplicate_nodes.Host(name, str(node), str(path)) if path else None
