# SPDX-License-Identifier: Apache-2.0
"""Renders the configuration file of the plugin's service."""

from __future__ import annotations

from typing import Any

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import role_files

DOCUMENTATION = r"""
name: configuration_file
short_description: Render the configuration file of the plugin's service
description: Returns the text of the file as role device_plugin writes it.
options:
  _input:
    description: The key C(configuration) of the result of M(nodedevices.kubernetes.declaration).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Read the declaration
  nodedevices.kubernetes.declaration:
  register: declared

- name: Print the configuration file
  nodedevices.kubernetes.printed:
    text: "{{ declared.configuration | nodedevices.kubernetes.configuration_file }}"
"""

RETURN = r"""
_value:
  description: The text of the file.
  type: str
"""


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Return the filters' functions by name."""
        return {"configuration_file": role_files.configuration_text}
