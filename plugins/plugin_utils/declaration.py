# SPDX-License-Identifier: Apache-2.0
"""Reads a host's declaration from host variables; the plugin's schema checks and renders it.

The schema and renderer come from this collection's ``plugin/`` directory, never from another
installed package. So the roles and the plugin on the node cannot differ.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin import declaration
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import (
    cdi,
    foreign_cdi,
    serialise,
    static,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.devices.host_directories import (
    host_directories,
)

from . import spec_templates

#: All host variables with this prefix together form the host's declaration.
PREFIX = "node_devices_resources"
#: The variable with the rest of the plugin's configuration.
SETTINGS = "node_devices_settings"

# Placeholder name of the merged list while it is parsed. No resource name can contain it.
_UNITED = "<united>"
_UNITED_ELEMENT = re.compile(re.escape(_UNITED) + r"\[(\d+)\]")
#: Keys whose value may be a name, and what it names.
_ACCOUNTS = {"uid": "users", "gid": "groups"}
# Stands for an element with an expression that fails.
_FAILED = object()
# More levels than a declaration has. A limit is needed because a list may contain itself.
_DEEPEST = 8
# Matches the error of an expression that uses facts if none were gathered.
_FACT = re.compile(r"\bansible_\w+|object of type 'dict' has no attribute")


class Declaration(NamedTuple):
    """A host's declaration: read, checked and rendered."""

    configuration: declaration.Configuration
    #: CDI spec file name to its content.
    specs: dict[str, dict[str, Any]]
    #: Static extended resource to its capacity.
    capacities: dict[str, int]

    def as_data(self) -> dict[str, Any]:
        """The declaration as plain data, for variables."""
        configuration = serialise.configuration_to_data(self.configuration)
        return {
            "resources": configuration["resources"],
            "configuration": configuration,
            "cdi_specs": {name: cdi.serialise(spec) for name, spec in self.specs.items()},
            "awaited_cdi_specs": [spec for spec in map(cdi.render_awaited, self.configuration.resources) if spec],
            "needs_cdi": not self.configuration.resources
            or any(resource.injection == "cdi" for resource in self.configuration.resources),
            "cdi_kinds": {resource.name: resource.cdi_kind for resource in self.configuration.resources},
            "foreign_cdi": {
                name: f"{resource.name}={device.id}"
                for resource in self.configuration.resources
                for device in resource.devices
                for name in device.cdi_devices
                if device.required
            },
            "foreign_kinds": sorted(
                {kind for resource in self.configuration.resources for kind in foreign_cdi.kinds(resource)}
            ),
            "accounts": _accounts(configuration["resources"]),
            "capacities": self.capacities,
            "device_paths": device_paths(self.configuration.resources),
            "host_directories": list(host_directories(self.configuration)),
            "kubelet_device_plugin_dir": self.configuration.kubelet_device_plugin_dir,
            "http_address": self.configuration.http_address,
        }


class DeclarationProblems(Exception):
    """A host's declaration is invalid; ``lines`` has one line for each problem."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))


def unusable(host: str, problems: Iterable[str], what: str = "declaration") -> str:
    """Return the error message of a task with an invalid declaration (or cluster, see ``what``)."""
    return "\n".join([f"The {what} cannot be used; no node was touched.", *(f"{host}: {line}" for line in problems)])


def variables_of(names: Iterable[str]) -> list[str]:
    """Return the names of the declaration's variables, sorted to ignore the inventory's order."""
    return sorted(name for name in names if name.startswith(PREFIX))


def read(
    variables: Mapping[str, Any],
    template: Callable[[Any], Any],
    settings: Any = None,
    render: spec_templates.Render | None = None,
) -> Declaration:
    """Read a host's declaration: the union of its variables.

    variables: all of the host's variables, by name.
    template: evaluates the expressions in a value, or raises.
    settings: the plugin's configuration apart from resources.
    render: renders the templates of CDI specs; None if no role writes specs on the node.
    Raises DeclarationProblems if anything in the declaration is invalid.
    """
    problems: list[str] = []
    served, fixed = _Elements(), _Elements()
    for name in variables_of(variables):
        value, failed = _worked_out(variables[name], name, template)
        problems.extend(failed)
        if failed and value is None:
            continue
        if not isinstance(value, list):
            found = "nothing (write [] for no resources)" if value is None else type(value).__name__
            problems.append(f"{name}: must be a list of resources, not {found}")
            continue
        for position, item in enumerate(value):
            if item is not _FAILED:
                (fixed if static.is_static(item) else served).add(item, f"{name}[{position}]")

    resources: tuple[declaration.Resource, ...] = ()
    try:
        resources = declaration.parse_resources(served.items, where=_UNITED)
    except declaration.DeclarationError as error:
        problems.extend(served.in_their_variables(error))
    capacities: dict[str, int] = {}
    try:
        capacities = static.parse_static_resources(fixed.items, _UNITED, served.places())
    except declaration.DeclarationError as error:
        problems.extend(fixed.in_their_variables(error))
    settings = plain(settings)
    if not (settings is None or isinstance(settings, dict)):
        problems.append(f"{SETTINGS}: must be a mapping of the plugin's settings, not {type(settings).__name__}")
        settings = None
    if settings and "resources" in settings:
        problems.append(
            f"{SETTINGS}.resources: must not be set: declare resources in {PREFIX} or in variables whose names begin "
            "with it"
        )
    try:
        configuration = declaration.parse_configuration({**(settings or {}), "resources": []})
    except declaration.DeclarationError as error:
        problems.extend(f"{SETTINGS}.{problem}" for problem in error.problems)
    own_specs: dict[str, dict[str, Any]] = {}
    templates, failed = _worked_out(variables.get(spec_templates.VARIABLE) or [], spec_templates.VARIABLE, template)
    problems.extend(failed)
    if templates and render is None:
        problems.append(spec_templates.API_ONLY)
    elif templates and not failed:
        own_specs, failed = spec_templates.specs(templates, render, _failure, resources)
        problems.extend(failed)
    if problems:
        raise DeclarationProblems(problems)
    configuration = declaration.with_resources(configuration, resources)
    return Declaration(configuration, {**cdi.render_specs(configuration.resources), **own_specs}, capacities)


def _worked_out(raw: Any, name: str, template: Callable[[Any], Any]) -> tuple[Any, list[str]]:
    """Return a variable's value, and one line for each expression that fails.

    If a list element has such an expression, it becomes _FAILED, so that the others are still
    checked. Any other failing value becomes None.
    """
    try:
        return plain(template(raw)), []
    except Exception as error:  # an expression may fail in any way
        if not isinstance(raw, list):
            return None, list(_failures(raw, name, template)) or [_failure(name, error)]
    value: list[Any] = []
    lines: list[str] = []
    for position, item in enumerate(raw):
        found = list(_failures(item, f"{name}[{position}]{_label(item)}", template))
        lines += found
        value.append(_FAILED if found else plain(template(item)))
    return value, lines


def _failures(raw: Any, where: str, template: Callable[[Any], Any], levels: int = _DEEPEST) -> Iterator[str]:
    """One line for each field whose expression fails, at most ``levels`` levels deep."""
    try:
        template(raw)
        return
    except Exception as error:
        line = _failure(where, error)
    inner: list[tuple[str, Any]] = []
    if levels and isinstance(raw, Mapping):
        inner = [(f"{where}.{key}", item) for key, item in raw.items()]
    elif levels and isinstance(raw, list):
        inner = [(f"{where}[{position}]{_label(item)}", item) for position, item in enumerate(raw)]
    found = [line for place, item in inner for line in _failures(item, place, template, levels - 1)]
    yield from found or [line]


def _failure(where: str, error: Exception) -> str:
    hint = "; to gather facts, set node_devices_gather_facts: true" if _FACT.search(str(error)) else ""
    return f"{where}: {error}{hint}"


def _label(item: Any) -> str:
    """Return the element's name as the schema's errors show it; empty if it is an expression."""
    name = item.get("name", item.get("id")) if isinstance(item, Mapping) else None
    return f" ({name})" if isinstance(name, str) and "{{" not in name else ""


class _Elements:
    """Elements of one kind from all variables, each with its origin."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._origins: list[str] = []

    def add(self, item: Any, origin: str) -> None:
        """Add an element. origin: variable and position."""
        self.items.append(item)
        self._origins.append(origin)

    def places(self) -> dict[str, str]:
        """Return each resource's place of declaration, by name."""
        placed = zip(self.items, self._origins, strict=True)
        names = ((item.get("name") if isinstance(item, dict) else None, origin) for item, origin in placed)
        return {name: origin for name, origin in names if isinstance(name, str)}

    def in_their_variables(self, error: declaration.DeclarationError) -> list[str]:
        """Return the problems. Each names its place in the inventory's variable, not in the merged list."""
        return [
            _UNITED_ELEMENT.sub(lambda match: self._origins[int(match.group(1))], str(problem))
            for problem in error.problems
        ]


def _accounts(resources: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the names of users and groups in the declaration, which only the node can look up."""
    names: dict[str, set[str]] = {kind: set() for kind in _ACCOUNTS.values()}
    for _where, owned, key in _named(resources):
        names[_ACCOUNTS[key]].add(owned[key])
    return {kind: sorted(found) for kind, found in names.items() if found}


def _named(resources: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Any, str]]:
    """Yield each field with the name of a user or group: its place, its mapping and its key. resources: as data."""
    for resource in resources:
        owned = [(f"{resource['name']}.discover", resource.get("discover", {}))]
        for device in resource["devices"]:
            place = f"{resource['name']}.devices ({device['id']}).nodes"
            owned += [(f"{place}[{position}]", node) for position, node in enumerate(device.get("nodes", ()))]
        for where, each in owned:
            yield from ((f"{where}.{key}", each, key) for key in _ACCOUNTS if isinstance(each.get(key), str))


def refuse_names(read: Declaration) -> None:
    """Raise DeclarationProblems for names of users and groups: only a connection to the node can look them up."""
    why = "must be a number, because the run cannot look up a name if only the Kubernetes API reaches the node"
    resources = serialise.resources_to_data(read.configuration.resources)
    lines = [f"{where}: {why}" for where, _owned, _key in _named(resources)]
    if lines:
        raise DeclarationProblems(lines)


def with_numbers(declared: dict[str, Any], found: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the declaration with the node's numbers instead of names of users and groups, and what is wrong.

    declared: as Declaration.as_data returns it. found: ``accounts`` of node_preflight. If the node has no such user or
    group, the declaration keeps its names.
    """
    if not declared.get("accounts"):
        return declared, []
    configuration = copy.deepcopy(declared["configuration"])
    problems = []
    for where, owned, key in _named(configuration["resources"]):
        kind, name = _ACCOUNTS[key], owned[key]
        owned[key] = found.get(kind, {}).get(name)
        if owned[key] is None:
            word = kind[:-1]
            problems.append(f"{where}: the node has no {word} {name!r}: create the {word} there, or give its number")
    if problems:
        return declared, problems
    read = declaration.parse_configuration(configuration)
    data = Declaration(read, cdi.render_specs(read.resources), declared["capacities"]).as_data()
    # Specs from templates are only text here.
    return {**data, "cdi_specs": {**declared["cdi_specs"], **data["cdi_specs"]}}, []


def device_paths(resources: Iterable[declaration.Resource]) -> dict[str, dict[str, Any]]:
    """Return each declared device node's device and whether it is required, by host path."""
    paths: dict[str, dict[str, Any]] = {}
    for resource in resources:
        for device in resource.devices:
            for node in device.nodes:
                known = paths.setdefault(node.host_path, {"device": f"{resource.name} {device.id}", "required": False})
                known["required"] = known["required"] or device.required
    return paths


def plain(value: Any) -> Any:
    """Convert ``value`` from Ansible's types to dict, list, str, int, float, bool and None."""
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return value if type(value) is kind else kind.__str__(value) if kind is str else kind(value)
    return value
