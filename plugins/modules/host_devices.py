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
  - The action of the same name checks O(modules), O(udev_rules) and O(nodes).
options:
  state:
    description:
      - V(pruned) removes unneeded entries; use it after a task without O(prune). V(absent) removes
        everything. In check mode, V(pruned) shows what an earlier task without O(prune) creates as made.
    type: str
    choices: [present, pruned, absent]
    default: present
  modules:
    description: Kernel modules, each with C(name) and optionally C(options), as in C(host_devices_modules) of the role.
    type: list
    elements: dict
  udev_rules:
    description: udev rules, one line each.
    type: list
    elements: str
  nodes:
    description: Device nodes, as in C(host_devices_nodes) of the role.
    type: list
    elements: dict
  prune:
    description: Whether to remove unneeded entries. If false, they stay for a later task.
    type: bool
    default: true
  facts:
    description: What the module needs of the preflight's facts; set by the action.
    type: dict
extends_documentation_fragment: nodedevices.kubernetes.shared.holders
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
"""

from ..module_utils.converge import host_devices, node


def main():
    node.door(host_devices)


if __name__ == "__main__":
    main()
