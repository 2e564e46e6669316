# SPDX-License-Identifier: Apache-2.0
"""Renders a template of one of the collection's roles, also outside the role."""

from __future__ import annotations

DOCUMENTATION = r"""
name: role_template
short_description: Render a template of a role of this collection
description:
  - Renders a template as M(ansible.builtin.template) does. Unlike that lookup, it finds the template outside the role,
    too.
  - The keyword arguments are the template's only variables.
options:
  _terms:
    description: Names of templates, such as C(device_plugin/node-device-plugin.service.j2).
    required: true
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Print the timer of the fixed capacities
  ansible.builtin.debug:
    msg: >-
      {{ lookup('nodedevices.kubernetes.role_template', 'extended_resources/node-device-capacities.timer.j2',
         extended_resources_restore_period=30) }}
"""

RETURN = r"""
_raw:
  description: The rendered templates.
  type: list
  elements: str
"""

import json
import pathlib

from ansible.plugins.loader import lookup_loader
from ansible.plugins.lookup import LookupBase

from ..plugin_utils.declaration import plain
from ..plugin_utils.remembered import remembered

_ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"


class LookupModule(LookupBase):
    """The class that Ansible loads."""

    def run(self, terms, variables=None, **kwargs):
        given = plain(kwargs)
        return [self._rendered(term, given) for term in terms]

    def _rendered(self, term, given):
        """Return a rendered template. In one run, the same values give the same text, for all hosts."""
        role, _slash, name = term.partition("/")
        path = str(_ROLES / role / "templates" / name)

        def render():
            lookup = lookup_loader.get("ansible.builtin.template", loader=self._loader, templar=self._templar)
            (text,) = lookup.run([path], variables=given)
            return text

        return remembered(render, "template", path, json.dumps(given, sort_keys=True))
