# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs nothing on a node.

DOCUMENTATION = r"""
module: declaration
short_description: Read and check a host's declaration of devices
description:
  - A host's declaration is the union of all its variables whose names begin with C(node_devices_resources), each a
    list of resources. Groups and hosts add to each other; the same resource twice is refused.
  - C(node_devices_settings) has the plugin's configuration apart from the resources. Where only the Kubernetes API
    reaches the host (C(node_devices_api_only)), C(cdi_owner) is V(plugin).
  - Runs on the controller only. Fails with everything that is wrong, each with host, variable, resource and field.
options:
  roles:
    description:
      - Roles of this collection to whose argument specs the host's other variables are held, too.
      - If there are any, and only the Kubernetes API reaches the host, the API server is asked whether
        C(node_devices_kubeconfig) leads to what they need.
    type: list
    elements: str
    default: []
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Check the declaration of every host before any of them is touched
  nodedevices.kubernetes.declaration:
"""

RETURN = r"""
resources:
  description: The resources in the declaration's own keys, defaults left out.
  type: list
  elements: dict
  returned: success
configuration:
  description: The content of the plugin's configuration file.
  type: dict
  returned: success
cdi_specs:
  description: The text of each CDI spec, by file name.
  type: dict
  returned: success
awaited_cdi_specs:
  description: The CDI specs that the plugin will write, as far as they are known before it runs.
  type: list
  elements: dict
  returned: success
needs_cdi:
  description: Whether runtime and kubelet have to know CDI; not where every resource has injection C(device_nodes).
  type: bool
  returned: success
cdi_kinds:
  description: The CDI kind of each resource.
  type: dict
  returned: success
capacities:
  description: The capacity of each static extended resource.
  type: dict
  returned: success
http_address:
  description: Where the plugin serves its metrics, as V(address:port); empty if nowhere.
  type: str
  returned: success
kubelet_device_plugin_dir:
  description: The kubelet's device plugin directory, as configured or by default.
  type: str
  returned: success
device_paths:
  description: The host's device nodes that the declaration names, each with its device and whether it is required.
  type: dict
  returned: success
"""
