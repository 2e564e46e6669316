# SPDX-License-Identifier: Apache-2.0
"""Renders the configuration file of the plugin's service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import (
    configuration_file as files,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import variables

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


def configuration_file(configuration: Mapping[str, Any]) -> str:
    """Return the text of the file."""
    return files.text(variables.plain(configuration))


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Return the filters' functions by name."""
        return {"configuration_file": configuration_file}
