#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: cdi_specs
short_description: Write a node's CDI specs
description:
  - Writes the CDI specs of the declared devices into C(/etc/cdi), one file for each kind. A device that is no longer
    declared stays until V(pruned). Even then, the device stays while a pod holds it or the kubelet still lists it. The
    action never touches specs of other owners.
  - Fails if this node's runtime would refuse a spec, or if another file defines a device with the same name.
  - Fails if the CDI name of a held device would refer to a different device, because the container would get the wrong
    device after a restart.
options:
  state:
    description:
      - V(present) writes the declared devices. V(pruned) removes devices that are no longer declared and that no pod
        holds. V(absent) removes all devices that no pod holds.
    type: str
    choices: [present, pruned, absent]
    default: present
  pruned:
    description:
      - For an uninstall, the result of the plugin's command C(cdi prune), whose kept devices RV(kept) then includes.
    type: dict
  configuration:
    description: The declaration's configuration; set by the action.
    type: dict
    default: {resources: []}
  templates:
    description: CDI specs of the host's own templates, by file name; set by the action.
    type: dict
    default: {}
  facts:
    description: Facts of the preflight; set by the action.
    type: dict
extends_documentation_fragment:
  - nodedevices.kubernetes.shared.declared
  - nodedevices.kubernetes.shared.holders
  - nodedevices.kubernetes.shared.code
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Write CDI specs
  nodedevices.kubernetes.cdi_specs:
"""

RETURN = r"""
kept:
  description: Devices that stay although they are not declared, each with the reason; also those of O(pruned).
  type: list
  elements: dict
  returned: success
"""

from ..module_utils.converge import cdi_specs, node


def main():
    node.door(cdi_specs)


if __name__ == "__main__":
    main()
