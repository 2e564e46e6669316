# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs the plugin's command on the node.

DOCUMENTATION = r"""
module: device_holders
short_description: Wait until no pod holds a device of ours, or refuse
description:
  - For playbooks that take devices away. Counted are the devices of each resource that the plugin serves, and those of
    our CDI specs, which would have to stay. Changes nothing.
  - Where the plugin serves nothing and no spec is ours there is nothing to ask.
options:
  command:
    description: The plugin's command on the node, which says who holds what.
    type: path
    required: true
  policy:
    description:
      - V(refuse) fails where a pod holds one, and names it. V(wait) waits for the pods' end before that.
      - Check mode does not wait; it says that it would.
    type: str
    choices: [refuse, wait]
    required: true
  minutes:
    description: How long to wait.
    type: float
    default: 10
extends_documentation_fragment:
  - nodedevices.kubernetes.node
  - nodedevices.kubernetes.node.kubelet
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
  description: The devices that are held, each with resource, device, namespace, pod and container.
  type: list
  elements: dict
  returned: success
"""
