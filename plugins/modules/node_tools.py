#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: node_tools
short_description: Install the plugin's virtual environment on a node
description:
  - Creates the environment O(root)C(/versions/<name>), the link O(root)C(/current) to this environment, and the
    command.
  - If the plugin's service runs from the current environment, the module tests the new environment. It restarts the
    service. Within O(timeout) seconds, every resource must be registered again with an open stream, and the kubelet
    must list the same healthy devices as before.
  - If the test fails, the module restores the link, restarts the old version, and fails with the reason. The module
    does not retry that version unless O(retry) is set. After a power cut during the test, the node boots with the old
    version. If a run is killed, the next run undoes its change.
  - V(absent) keeps the environment while another role still has files on the node, because the removal of these files
    may need the command.
  - The node chooses the wheels for its Python and machine, and the action of the same name sends them from the
    controller. The node needs neither pip nor a network.
  - Keeps the code that modules of this collection import on the node, in C(/var/lib/node-devices/code).
options:
  state:
    description:
      - V(present) installs the environment, and V(absent) removes it.
      - V(rolled_back) undoes the last upgrade if that has not happened yet, or returns to the version O(name) on the
        node. For V(rolled_back), the controller sends nothing.
    type: str
    choices: [present, absent, rolled_back]
    default: present
  root:
    description: Directory of the environments.
    type: path
    default: /opt/node-devices
  command:
    description: Path of the link to the command. If empty, the module creates no link.
    type: str
    default: /usr/local/bin/node-device-plugin
  keep:
    description: Number of newest environments to keep. The current and the previous environment always stay.
    type: int
    default: 2
  timeout:
    description: Seconds within which a new version must serve everything that the current version served.
    type: int
    default: 60
  retry:
    description: Whether to retry a version that failed its health check on this node.
    type: bool
    default: false
  cache:
    description: Cache directory of wheels on the controller, by default C(~/.cache/node-devices). Read by the action.
    type: path
  wheelhouse:
    description:
      - Directory on the controller with the locked wheels. If set, the action downloads no wheels. Read by the action.
      - If left out, the action uses the wheels of the bundle that set up the controller, if any.
    type: path
  specs:
    description: Result of M(nodedevices.kubernetes.cdi_specs), if that module ran before; read by the action.
    type: dict
  host_devices:
    description: Result of M(nodedevices.kubernetes.host_devices), if that module ran before; read by the action.
    type: dict
  left:
    description: Roles that would still have files on the node, instead of the ledger's; set by the action.
    type: list
    elements: str
  name:
    description: For O(state=rolled_back), the name of an environment, or a version, of which the newest counts.
    type: str
  targets:
    description: Environment and oldest glibc for each Python version and machine with wheels; set by the action.
    type: dict
  archive:
    description: Path of the wheel archive on the node; set by the action.
    type: path
  wheels:
    description: File name and sha256 of each wheel; set by the action.
    type: dict
extends_documentation_fragment: nodedevices.kubernetes.shared.code
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Install the plugin's environment
  nodedevices.kubernetes.node_tools:
    cache: ~/.cache/node-devices
"""

RETURN = r"""
environment:
  description: Directory of the environment.
  type: str
  returned: success
was:
  description: Name of the previously current environment.
  type: str
  returned: success, if O(state) is not V(absent)
restarted:
  description: Whether the module restarted the service, or would restart it (check mode).
  type: bool
  returned: success, if O(state) is not V(absent)
seconds:
  description: Seconds from the service's stop until the service serves all resources again, as measured from outside.
  type: float
  returned: if the service was restarted
kept:
  description: Unneeded paths that the module could not remove, each with the reason.
  type: list
  elements: dict
  returned: success
"""

from ..module_utils.converge import node, node_tools


def main():
    node.door(node_tools)


if __name__ == "__main__":
    main()
