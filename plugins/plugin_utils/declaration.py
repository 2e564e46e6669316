# SPDX-License-Identifier: Apache-2.0
"""Reads a host's declaration from host variables. The plugin's schema checks and renders the declaration.

The schema and renderer come from this collection's ``plugin/`` directory, never from an installed package. Therefore
the roles and the plugin on the node use the same version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ...plugin.node_device_plugin import declaration
from ...plugin.node_device_plugin.declaration import accounts, cdi, foreign_cdi, serialise
from ...plugin.node_device_plugin.declaration import variables as declared
from ...plugin.node_device_plugin.devices.discovery import methods_of
from ...plugin.node_device_plugin.devices.host_directories import host_directories
from . import spec_templates

PREFIX, SETTINGS = declared.PREFIX, declared.SETTINGS
variables_of, plain = declared.variables_of, declared.plain
Failure = declared.Failure

# Matches the error of an expression that uses facts that Ansible did not gather.
_FACT = re.compile(r"\bansible_\w+|object of type 'dict' has no attribute")


class Declaration(NamedTuple):
    """A host's declaration: read, checked and rendered."""

    configuration: declaration.Configuration
    #: CDI spec file name to its content.
    specs: dict[str, dict[str, Any]]
    #: Static extended resource to its capacity.
    capacities: dict[str, int]

    def with_node(self, name: str) -> Declaration:
        """Return the declaration with the node's name in the cluster, for the DRA driver."""
        driver = self.configuration.dra._replace(node=name)
        return self._replace(configuration=self.configuration._replace(dra=driver))

    def as_data(self) -> dict[str, Any]:
        """Return the declaration as plain data for variables."""
        configuration = serialise.configuration_to_data(self.configuration)
        return {
            "resources": configuration["resources"],
            "configuration": configuration,
            "cdi_specs": self.specs,
            "needs_cdi": self.configuration.needs_cdi,
            "foreign_kinds": sorted(
                {kind for resource in self.configuration.resources for kind in foreign_cdi.kinds(resource)}
            ),
            "accounts": accounts.names(self.configuration.resources),
            "capacities": self.capacities,
            "device_paths": device_paths(self.configuration.resources),
            "host_paths": host_paths(self.configuration.resources),
            "host_directories": list(host_directories(self.configuration)),
            "needs_uevents": any(
                method.needs_uevents
                for resource in self.configuration.resources
                for method in methods_of(resource.discover)
            ),
            "kubelet_device_plugin_dir": self.configuration.kubelet_device_plugin_dir,
            "http_address": self.configuration.http_address,
            "dra": self.configuration.dra._asdict() if self.configuration.uses_dra else {},
        }


def unusable(host: str, problems: Iterable[str], what: str = "declaration", done: str = "no node was touched") -> str:
    """Return the error message for an invalid declaration.

    what: the invalid object, if it is not a declaration. done: what has been written.
    """
    return "\n".join([f"The {what} cannot be used; {done}.", *(f"{host}: {line}" for line in problems)])


class DeclarationProblems(Exception):
    """A host's declaration is invalid. lines: one line for each problem."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))


def failed_expression(where: str, error: Exception) -> str:
    """Return the message for an expression that fails. where: the field."""
    hint = "; to gather facts, set node_devices_gather_facts: true" if needs_facts(error) else ""
    return f"{where}: {error}{hint}"


def needs_facts(error: Exception) -> bool:
    """Return whether an expression failed because Ansible gathered no facts."""
    return _FACT.search(str(error)) is not None


def read(
    variables: Mapping[str, Any],
    template: Callable[[Any], Any],
    settings: Any = None,
    render: spec_templates.Render | None = None,
    failure: declared.Failure = failed_expression,
    forced: Mapping[str, Any] | None = None,
    of_profile: bool = False,
) -> Declaration:
    """Read, check and render a host's declaration, as the plugin's ``declaration.variables.read`` does.

    render: renders the templates of CDI specs; None if no role writes specs on the node.
    Raises DeclarationProblems if anything in the declaration is invalid.
    """
    problems: list[str] = []
    configuration, capacities = declared.read(variables, template, problems, settings, failure, forced, of_profile)
    name = spec_templates.VARIABLE
    templates, failed = declared.worked_out(variables.get(name) or [], name, template, failure)
    problems.extend(failed)
    own_specs: dict[str, dict[str, Any]] = {}
    if templates and render is None:
        problems.append(spec_templates.API_ONLY)
    elif templates and not declared.has_failed(templates):
        own_specs, failed = spec_templates.specs(templates, render, failure, configuration.resources)
        problems.extend(failed)
    if problems:
        raise DeclarationProblems(problems)
    return Declaration(configuration, {**cdi.render_specs(configuration.resources), **own_specs}, capacities)


def refuse_names(read: Declaration) -> None:
    """Raise DeclarationProblems for names of users and groups, which only a connection to the node can look up."""
    why = "must be a number, because the run cannot look up a name if only the Kubernetes API reaches the node"
    lines = [f"{where}: {why}" for where, _kind, _name in accounts.named(read.configuration.resources)]
    if lines:
        raise DeclarationProblems(lines)


def with_numbers(declared: dict[str, Any], found: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the declaration with the node's uids and gids instead of names, and one line for each problem.

    declared: the result of Declaration.as_data. found: ``accounts`` of node_preflight. If the node has no such user or
    group, the declaration keeps all names.
    """
    if not declared.get("accounts"):
        return declared, []
    named = declaration.parse_configuration(declared["configuration"], has_names=True)
    configuration, problems = accounts.with_numbers(named, found)
    if problems:
        return declared, [str(problem) for problem in problems]
    specs = {**declared["cdi_specs"], **cdi.render_specs(configuration.resources)}
    return Declaration(configuration, specs, declared["capacities"]).as_data(), []


def device_paths(resources: Iterable[declaration.Resource]) -> dict[str, dict[str, Any]]:
    """Return each declared device node's device, and whether the device is required and exclusive, by host path."""
    paths: dict[str, dict[str, Any]] = {}
    for resource in resources:
        for device in resource.devices:
            for node in device.nodes:
                new = {"device": f"{resource.name} {device.id}", "required": False, "exclusive": resource.replicas == 1}
                known = paths.setdefault(node.host_path, new)
                known["required"] = known["required"] or device.required
    return paths


def host_paths(resources: Iterable[declaration.Resource]) -> dict[str, dict[str, Any]]:
    """Return the sources of bind mounts and the programs of hooks by host path.

    Each has its field, what needs it, whether a required device needs it, and the resources (``all_of``) of which every
    device needs it. Without CDI, the runtime itself creates a missing source of a mount.
    """
    paths: dict[str, dict[str, Any]] = {}
    for resource in resources:
        if resource.injection != "cdi":
            continue
        is_any_required = any(device.required for device in resource.devices)
        places = [(resource.name, f"a device of {resource.name}", resource.container_edits, is_any_required)]
        for device in resource.devices:
            field, who = f"{resource.name}.devices ({device.id})", f"device {resource.name} {device.id}"
            places.append((field, who, device.container_edits, device.required))
        of_resource, *of_devices = (set(_sources(edits)) for _field, _who, edits, _is_required in places)
        if of_devices and not resource.discover.methods:
            of_resource |= set.intersection(*of_devices)
        for field, who, edits, is_required in places:
            for path, key in _sources(edits).items():
                new = {"field": f"{field}.container_edits.{key}", "who": who, "required": False}
                known = paths.setdefault(path, {**new, "all_of": []})
                if is_required and not known["required"]:
                    # The message names a required device.
                    known.update(new, required=True)
                if path in of_resource and resource.name not in known["all_of"]:
                    known["all_of"].append(resource.name)
    return paths


def _sources(edits: Any) -> dict[str, str]:
    """Return the sources of bind mounts and the programs of hooks, each with its key."""
    mounts = {each.host_path: f"mounts[{n}].host_path" for n, each in enumerate(edits.mounts) if each.has_source}
    return {**mounts, **{each.path: f"hooks[{number}].path" for number, each in enumerate(edits.hooks)}}
