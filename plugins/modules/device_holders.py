# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs the plugin's command on the node.

DOCUMENTATION = r"""
module: device_holders
short_description: Wait until no pod holds a device of the plugin, or fail
description:
  - For playbooks that remove devices. The action checks the devices of each resource that the plugin serves, and the
    devices in this collection's CDI specs. It changes nothing.
  - If the plugin serves nothing and the node has no such spec, the action does not query the node.
options:
  command:
    description: Path of the plugin's command on the node, which lists the pods that hold devices.
    type: path
    required: true
  policy:
    description:
      - V(refuse) fails if a pod holds a device, and names the pod. V(wait) first waits for such pods to end.
      - In check mode, the action does not wait, but warns that it would wait.
    type: str
    choices: [refuse, wait]
    required: true
  minutes:
    description: Minutes to wait for the pods to end.
    type: float
    default: 10
extends_documentation_fragment: nodedevices.kubernetes.shared.holders
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Wait until no pod holds a device
  nodedevices.kubernetes.device_holders:
    command: /opt/node-devices/current/bin/node-device-plugin
    policy: wait
"""

RETURN = r"""
held:
  description: Devices that are held, each with resource, device, namespace, pod and container.
  type: list
  elements: dict
  returned: success
"""
