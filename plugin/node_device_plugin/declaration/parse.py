"""From raw data to a declaration: every rule is applied, every problem is reported at once."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from . import addresses, container_paths, env, fields, injection_rules, names, response_size, schema
from .discover import parse_discovery
from .edits import container_edits, placeholder_problems
from .model import Configuration, Device, DeviceNode, HealthChecks, PreStart, Resource
from .named_directories import directory_problems
from .problems import DeclarationError, Problem, element

#: Where the role cdi_specs writes: what is declared is static by CDI's own terms.
STATIC_CDI_DIR = "/etc/cdi"
_PATTERN = re.compile(r"[][*?{}]")


def parse_resources(raw: Any, where: str = "resources") -> Tuple[Resource, ...]:
    """Read a list of resources.

    raw: the list as YAML or Ansible gives it.
    where: what the list is called in messages.
    Raises DeclarationError with all problems.
    """
    problems: List[Problem] = []
    data = schema.normalise(raw, schema.Field("list", "", elements="dict", fields=schema.RESOURCE), where, problems)
    resources = _resources(data or [], where, problems)
    if problems:
        raise DeclarationError(problems)
    return resources


def parse_configuration(raw: Any) -> Configuration:
    """Read the plugin's configuration (the content of its file). Raises DeclarationError with all problems."""
    problems: List[Problem] = []
    if not isinstance(raw, dict):
        raise DeclarationError([Problem("configuration", "must be a mapping with the key 'resources'")])
    data = schema.normalise(raw, schema.Field("dict", "", fields=schema.CONFIGURATION), "", problems)
    resources = _resources(data["resources"] or [], "resources", problems)
    directory = data["kubelet_device_plugin_dir"]
    fields.directory(directory, "kubelet_device_plugin_dir", problems)
    if len(os.fsencode(directory)) > names.MAX_DEVICE_PLUGIN_DIR:
        too_long = "has more than the %d bytes that leave room for a socket's name" % names.MAX_DEVICE_PLUGIN_DIR
        problems.append(Problem("kubelet_device_plugin_dir", too_long))
    for key in ("dynamic_cdi_dir", "kubelet_root_dir"):
        fields.directory(data[key], key, problems)
    if data["dynamic_cdi_dir"] == STATIC_CDI_DIR and data["cdi_owner"] == "role":
        of_the_role = "is the role's, whose specs the plugin would take away: choose another one, or cdi_owner: plugin"
        problems.append(Problem("dynamic_cdi_dir", of_the_role))
    for position, spec_dir in enumerate(data["cdi_spec_dirs"]):
        fields.directory(spec_dir, "cdi_spec_dirs[%d]" % position, problems)
    root = data["kubelet_root_dir"]
    if data["registration"] == "plugins_registry" and len(os.fsencode(root)) > names.MAX_KUBELET_ROOT_DIR:
        too_long = "has more than the %d bytes that leave room for a socket's name" % names.MAX_KUBELET_ROOT_DIR
        problems.append(Problem("kubelet_root_dir", too_long))
    message = addresses.http_address_problem(data["http_address"])
    if message:
        problems.append(Problem("http_address", message))
    if problems:
        raise DeclarationError(problems)
    if data["cdi_owner"] == "plugin":
        resources = tuple(resource._replace(cdi_by_plugin=True) for resource in resources)
    return Configuration(**{**data, "resources": resources, "cdi_spec_dirs": tuple(data["cdi_spec_dirs"])})


def _resources(data: Sequence[Mapping[str, Any]], where: str, problems: List[Problem]) -> Tuple[Resource, ...]:
    placed = []
    for position, item in enumerate(data):
        label = " (%s)" % item["name"] if item["name"] else ""
        place = "%s[%d]%s" % (where, position, label)
        placed.append((place, _resource(item, place, problems)))
    problems.extend(_repetitions(placed))
    problems.extend(env.collision_problems(placed))
    return tuple(resource for _, resource in placed)


def _resource(item: Mapping[str, Any], where: str, problems: List[Problem]) -> Resource:
    name = item["name"] or ""
    message = names.resource_name_problem(name) if item["name"] is not None else None
    if message:
        problems.append(Problem(where + ".name", message))
    resource = Resource(
        name=name,
        cdi_kind=item["cdi_kind"] or name,
        devices=tuple(
            _device(device, element(where + ".devices", position, device["id"]), problems)
            for position, device in enumerate(item["devices"])
        ),
        env=item["env"],
        container_edits=container_edits(item["container_edits"], where + ".container_edits", problems),
        replicas=item["replicas"],
        discover=parse_discovery(item["discover"], where + ".discover", problems),
        container_limit=item["container_limit"],
        preference=item["preference"],
        pre_start=PreStart(tuple(part or "" for part in item["pre_start"]["command"]), item["pre_start"]["timeout"]),
        injection=item["injection"],
        annotations=item["annotations"],
        health=HealthChecks(
            **{**item["health"], "command": tuple(part or "" for part in item["health"]["command"])},
        ),
    )
    problems.extend(_cdi_problems(resource, where, declared_kind=item["cdi_kind"] is not None, name_ok=not message))
    problems.extend(env.template_problems(resource, where))
    problems.extend(directory_problems(resource, where))
    problems.extend(placeholder_problems(resource, where))
    problems.extend(injection_rules.problems(resource, where))
    problems.extend(container_paths.problems(resource, where))
    too_long = list(response_size.size_problems(resource, where))
    problems.extend(too_long)
    # Nobody goes through more shares than can be listed.
    return resource._replace(replicas=1) if too_long else resource


def _cdi_problems(resource: Resource, where: str, declared_kind: bool, name_ok: bool) -> Iterator[Problem]:
    # What is wrong with a name as a resource's is said already.
    is_asked_for = declared_kind or (resource.uses_cdi and name_ok and resource.name)
    message = names.cdi_kind_problem(resource.cdi_kind) if is_asked_for else None
    if message and declared_kind:
        yield Problem(where + ".cdi_kind", message)
    elif message:
        yield Problem(where + ".name", "gives the CDI kind its name, but %s (set cdi_kind)" % message)
    for position, device in enumerate(resource.devices):
        message = names.cdi_device_problem(device.id) if resource.cdi_name(device) else None
        if message and device.id:
            place = element(where + ".devices", position, device.id)
            yield Problem(place + ".id", message + "; what is not a name goes into properties")


def _device(item: Mapping[str, Any], where: str, problems: List[Problem]) -> Device:
    device_id = item["id"] or ""
    if item["id"] is not None and not device_id.strip():
        problems.append(Problem(where + ".id", "is empty"))
    elif not device_id.isprintable() or device_id != device_id.strip():
        problems.append(Problem(where + ".id", "must be printable, without spaces at its ends, not %r" % device_id))
    nodes = tuple(
        _node(node, element(where + ".nodes", position, None), problems) for position, node in enumerate(item["nodes"])
    )
    for path in _repeated(node.path for node in nodes if node.path):
        problems.append(Problem(where + ".nodes", "the path %s stands twice" % path))
    _properties(item["properties"], where + ".properties", problems)
    return Device(
        id=device_id,
        nodes=nodes,
        container_edits=container_edits(item["container_edits"], where + ".container_edits", problems),
        properties=item["properties"],
        required=item["required"],
        numa_node=item["numa_node"],
    )


def _properties(properties: Mapping[str, str], where: str, problems: List[Problem]) -> None:
    told: Dict[str, str] = {}
    for key in properties:
        place = "%s.%s" % (where, key)
        # As placeholders have it: another one would stay as it is.
        if key in env.BUILT_IN_VALUES or not (key.isidentifier() and key.isascii()):
            message = "is no name for a property: a word of letters, digits and '_', and none of %s"
            problems.append(Problem(place, message % ", ".join(env.BUILT_IN_VALUES)))
        other = told.setdefault(key.upper(), key)
        if other != key:
            message = "is %s in upper case, too: commands are told of one of the two (DEVICE_PROPERTY_%s)"
            problems.append(Problem(place, message % (other, key.upper())))


def _node(item: Mapping[str, Any], where: str, problems: List[Problem]) -> DeviceNode:
    path = item["path"] or ""
    host_path = item["host_path"] or path
    for key in ("path", "host_path"):
        fields.absolute(item[key], "%s.%s" % (where, key), problems)
        if _PATTERN.search(item[key] or ""):
            message = "is one path, not %r: discover takes patterns and placeholders" % item[key]
            problems.append(Problem("%s.%s" % (where, key), message))
    permissions = fields.permissions(item["permissions"], where + ".permissions", problems)
    mode = fields.mode(item["mode"], where + ".mode", problems)
    return DeviceNode(
        *(path, host_path, permissions, item["uid"], item["gid"], mode),
        type=item["type"],
        major=item["major"],
        minor=item["minor"],
    )


def _repetitions(placed: Sequence[Tuple[str, Resource]]) -> Iterator[Problem]:
    """The same resource, CDI kind or device id twice on one node."""
    names_seen: Dict[str, str] = {}
    kinds_seen: Dict[str, str] = {}
    ids_seen: Dict[str, str] = {}
    for where, resource in placed:
        if resource.name and names_seen.setdefault(resource.name, where) != where:
            yield Problem(where + ".name", "is declared already, as %s" % names_seen[resource.name])
        elif resource.uses_cdi and kinds_seen.setdefault(resource.cdi_kind, where) != where:
            yield Problem(where + ".cdi_kind", "is the kind of %s already" % kinds_seen[resource.cdi_kind])
        for position, device in enumerate(resource.devices):
            place = element(where + ".devices", position, device.id)
            for kubelet_id in resource.kubelet_ids(device):
                if not device.id:
                    continue
                if len(kubelet_id) > names.MAX_DEVICE_ID:
                    yield Problem(
                        place + ".id",
                        "%r has more than the %d characters of a device id" % (kubelet_id, names.MAX_DEVICE_ID),
                    )
                    break
                if ids_seen.setdefault(kubelet_id, place) != place:
                    yield Problem(
                        place + ".id",
                        "%r is the id of %s already; the kubelet tells devices apart by id alone"
                        % (kubelet_id, ids_seen[kubelet_id]),
                    )
                    break


def _repeated(values: Iterable[str]) -> List[str]:
    seen: Dict[str, int] = {}
    for value in values:
        seen[value] = seen.get(value, 0) + 1
    return [value for value, count in seen.items() if count > 1]
