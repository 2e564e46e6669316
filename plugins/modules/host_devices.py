#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: host_devices
short_description: Set up kernel modules, udev rules and device nodes, now and after a reboot
description:
  - Writes files in C(modules-load.d), C(modprobe.d), C(udev/rules.d) and C(tmpfiles.d). These files take effect at each
    boot, and the module also applies them at once. It changes nothing that is already correct. If a run is interrupted,
    the next run completes its work.
  - Removes unneeded device nodes that the module created. A node stays if it is now a different
    device, or if the kernel made it. If a node existed before, the module restores its mode and owner.
  - Kernel modules stay loaded.
  - Entries that a held device needs stay. RV(kept) lists these entries and their holders.
  - The action of the same name checks O(modules), O(udev_rules) and O(nodes), and queries the node for held devices.
options:
  state:
    description:
      - V(pruned) removes unneeded entries; use it after a task without O(prune). V(absent) removes
        everything. Read by the action.
    type: str
    choices: [present, pruned, absent]
    default: present
  modules:
    description: Kernel modules, each with C(name) and C(options). On the node, this option contains only the names.
    type: list
    elements: raw
    default: []
  udev_rules:
    description: udev rules, one line each.
    type: list
    elements: str
    default: []
  nodes:
    description: Device nodes; read by the action.
    type: raw
  node:
    description:
      - Result of M(nodedevices.kubernetes.node_preflight). If left out, the action uses the result that the play
        registered as C(node_devices_node). If the play registered none, the action runs the preflight check itself.
      - If no entry is wanted and the node's ledger has no entry of this module, the action executes no module.
    type: dict
  prune:
    description: Whether to remove unneeded entries. If false, they stay for a later task.
    type: bool
    default: true
  made:
    description:
      - Whether an earlier task without O(prune) created the wanted entries. In check mode, the node does not show this.
        Set by the action.
    type: bool
    default: false
  awaited:
    description: Paths for which the module waits some seconds after it has loaded a kernel module; set by the action.
    type: list
    elements: str
    default: []
  command:
    description:
      - Path of the plugin's command on the node, with which the action lists the pods that hold devices; read by the
        action.
    type: path
  cdi_dir:
    description: Directory of the plugin's CDI specs, if it is not the default; read by the action.
    type: path
  files:
    description: Wanted lines of each file, by the file's path; set by the action.
    type: dict
    default: {}
  held:
    description: Devices that containers hold, each with C(who), C(paths) and C(ours); set by the action.
    type: list
    elements: dict
    default: []
extends_documentation_fragment:
  - nodedevices.kubernetes.node.kubelet
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Three more names of the random device
  nodedevices.kubernetes.host_devices:
    modules: [{name: vfio-pci, options: "ids=10de:1eb8"}]
    nodes: [{path: /dev/crand0, type: c, major: 1, minor: 8, mode: "0666"}]
"""

RETURN = r"""
actions:
  description: Actions of the module, apart from writing files; in check mode, the predicted actions.
  type: list
  elements: str
  returned: success
kept:
  description: Unneeded entries that the module could not remove, each with C(path) and C(reason).
  type: list
  elements: dict
  returned: success
leftovers:
  description: Whether unneeded entries stay because O(prune) is false.
  type: bool
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.host_devices import HostDevices


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "pruned", "absent"], "default": "present"},
            "modules": {"type": "list", "elements": "raw", "default": []},
            "udev_rules": {"type": "list", "elements": "str", "default": []},
            "nodes": {"type": "raw"},
            "node": {"type": "dict"},
            "prune": {"type": "bool", "default": True},
            "made": {"type": "bool", "default": False},
            "awaited": {"type": "list", "elements": "str", "default": []},
            "command": {"type": "path"},
            "kubelet_root": {"type": "path"},
            "device_plugin_dir": {"type": "path"},
            "cdi_dir": {"type": "path"},
            "files": {"type": "dict", "default": {}},
            "held": {"type": "list", "elements": "dict", "default": []},
        },
        supports_check_mode=True,
    )
    with node_module.ledger_of(module) as ledger:
        host = HostDevices(module, ledger)
        host.converge()
    node_module.end(module, host.report, **host.more)


if __name__ == "__main__":
    main()
