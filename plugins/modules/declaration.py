# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs nothing on a node.

DOCUMENTATION = r"""
module: declaration
short_description: Read and check a host's declaration of devices
description:
  - A host's declaration combines all its variables whose names begin with C(node_devices_resources), each a list of
    resources. So groups and hosts can each add resources. A resource that is declared twice is an error.
  - C(node_devices_settings) contains the plugin's configuration without the resources. If the host is reachable only
    through the Kubernetes API (C(node_devices_api_only)), the module sets C(cdi_owner) to V(plugin).
  - Runs on the controller only. Fails with all errors at once, each with host, variable, resource and field.
options:
  roles:
    description:
      - Roles of this collection. The module also checks the host's variables against their argument specs.
      - If the host is reachable only through the Kubernetes API, the module also checks that C(node_devices_kubeconfig)
        grants the access that these roles need.
    type: list
    elements: str
    default: []
  offline:
    description:
      - Contact no API server. If C(node_devices_gather_facts) is true, a field whose expression needs facts is left
        unchecked, with a warning; the facts do not exist yet.
    type: bool
    default: false
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Check the declaration of every host before any of them is touched
  nodedevices.kubernetes.declaration:
"""

RETURN = r"""
resources:
  description: The resources with the keys that the declaration sets, without defaults.
  type: list
  elements: dict
  returned: success
configuration:
  description: Content of the plugin's configuration file.
  type: dict
  returned: success
cdi_specs:
  description: Content of each CDI spec that role cdi_specs writes, by file name.
  type: dict
  returned: success
needs_cdi:
  description:
    - Whether runtime and kubelet must support CDI. False only if every resource has the injection C(device_nodes).
  type: bool
  returned: success
foreign_kinds:
  description: CDI kinds of other programs whose devices are declared.
  type: list
  elements: str
  returned: success
accounts:
  description:
    - Names of users (C(users)) and groups (C(groups)) in C(uid) and C(gid). M(nodedevices.kubernetes.node_preflight)
      looks them up on the node, and its C(declaration) has the numbers instead.
  type: dict
  returned: success
capacities:
  description: Capacity of each static extended resource.
  type: dict
  returned: success
http_address:
  description: Address of the plugin's metrics, as V(address:port); empty if the plugin does not listen.
  type: str
  returned: success
kubelet_device_plugin_dir:
  description: The kubelet's device plugin directory, as configured or by default.
  type: str
  returned: success
needs_uevents:
  description: Whether the plugin must receive the kernel's messages about devices to notice every change.
  type: bool
  returned: success
device_paths:
  description:
    - Paths of the host's device nodes in the declaration, each with its device, and whether the device is required and
      exclusive.
  type: dict
  returned: success
host_paths:
  description:
    - Host paths of the declaration's bind mounts and hooks. Each has its field, the device or resource that needs it
      (C(who)), whether a required device needs it, and the resources of which every device needs it (C(all_of)).
  type: dict
  returned: success
"""
