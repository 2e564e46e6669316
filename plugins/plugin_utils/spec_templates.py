# SPDX-License-Identifier: Apache-2.0
"""Renders and checks the CDI specs of a host's own templates (``cdi_specs_templates``)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.loader import lookup_loader

from ...plugin.node_device_plugin.cdi import directories
from ...plugin.node_device_plugin.declaration import Resource, cdi
from ...plugin.node_device_plugin.declaration import variables as declared

VARIABLE = "cdi_specs_templates"
_SHAPE = "must be a list of mappings with the key src, such as [{src: fpga.yaml.j2}]"

_MISSING = "no such file in the directory templates beside the inventory or the playbook: create it there"
#: What a node without the role cdi_specs can have.
API_ONLY = (
    f"{VARIABLE}: must not be set if only the Kubernetes API reaches the node, because no role writes specs there: set "
    "nodes and container_edits of a resource instead"
)

#: Renders the template file at a path; raises an exception if an expression fails.
Render = Callable[[str], str]


class Variables(dict[str, Any]):
    """Variables that the lookup copies without their values, which have the names of all hosts."""

    def __deepcopy__(self, memo: Any) -> dict[str, Any]:
        return dict(self)


def renderer(action: Any, variables: Mapping[str, Any]) -> Render:
    """Return a function that renders template files with a host's variables, as Ansible's lookup does."""

    def render(source: str) -> str:
        path = os.path.join(str(variables.get("inventory_dir") or ""), "templates", source)
        if not os.path.isfile(path):
            try:
                path = action._find_needle("templates", source)
            except AnsibleError as error:
                raise AnsibleError(_MISSING) from error
        lookup = lookup_loader.get("ansible.builtin.template", loader=action._loader, templar=action._templar)
        (found,) = lookup.run([path], variables=Variables(variables))
        # A template that is one expression gives the expression's value, such as a mapping.
        return found if isinstance(found, str) else "" if found is None else json.dumps(declared.plain(found))

    return render


def specs(
    templates: Any, render: Render, failure: Callable[[str, Exception], str | None], resources: Iterable[Resource]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the spec of each template, by file name, and one line for each problem.

    templates: the variable's value. failure: makes the line for an expression that fails. resources: the declared ones,
    whose kinds a template cannot have. A template without content except comments has no spec: a node can leave it out.
    """
    if not isinstance(templates, list) or not all(
        isinstance(each, dict) and each.keys() == {"src"} and isinstance(each["src"], str) for each in templates
    ):
        return {}, [f"{VARIABLE}: {_SHAPE}"]
    owners = {resource.cdi_kind: f"resource {resource.name}" for resource in resources if resource.has_spec}
    found: dict[str, dict[str, Any]] = {}
    lines = []
    for position, each in enumerate(templates):
        where = f"{VARIABLE}[{position}] ({each['src']})"
        try:
            text = render(each["src"])
        except AnsibleError as error:
            lines += filter(None, [failure(where, error)])
            continue
        if all(line.lstrip().startswith(("#", "---")) or not line.strip() for line in text.splitlines()):
            continue
        content = text.encode("utf-8", "surrogateescape")
        file = directories.check_content(f"{where}.yaml", content, accepted=None)
        lines += [f"{where}: {problem}" for problem in (*file.refusals, *file.warnings)]
        owner = owners.setdefault(file.kind, where)
        if owner != where and file.kind:
            lines.append(f"{where}: kind: {file.kind} is already the kind of {owner}: choose another kind")
        if file.spec is not None:
            found[cdi.file_name(file.kind, cdi.TEMPLATE_PREFIX)] = dict(file.spec)
    return found, lines
