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
    description: Contact no API server, and leave fields that need gathered facts unchecked, with a warning.
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
  description: Whether runtime and kubelet must support CDI. False if every resource's injection is C(device_nodes).
  type: bool
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
"""
