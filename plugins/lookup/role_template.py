# SPDX-License-Identifier: Apache-2.0
"""Renders a template of one of the collection's roles, also outside the role."""

from __future__ import annotations

DOCUMENTATION = r"""
name: role_template
short_description: Render a template of a role of this collection
description:
  - Renders a template as M(ansible.builtin.template) does. Unlike that lookup, it finds the template outside the role,
    too, and copies no variables.
options:
  _terms:
    description: Names of templates, such as C(device_plugin/node-device-plugin.service.j2).
    required: true
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Print the unit of the plugin's service
  ansible.builtin.debug:
    msg: "{{ lookup('nodedevices.kubernetes.role_template', 'device_plugin/node-device-plugin.service.j2') }}"
"""

RETURN = r"""
_raw:
  description: The rendered templates.
  type: list
  elements: str
"""

import pathlib

from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.spec_templates import Variables

_ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"


class LookupModule(LookupBase):
    """The class that Ansible loads."""

    def run(self, terms, variables=None, **kwargs):
        lookup = lookup_loader.get("ansible.builtin.template", loader=self._loader, templar=self._templar)
        paths = [_ROLES / role / "templates" / name for role, _slash, name in (term.partition("/") for term in terms)]
        return lookup.run([str(path) for path in paths], variables=Variables(variables), **kwargs)
