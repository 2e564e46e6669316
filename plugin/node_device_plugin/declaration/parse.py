"""Parses raw data into a declaration, applies every rule and reports all problems at once."""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..support.tables import counted
from . import container_paths, device_plugin_api, dra_api, env, fields, foreign_cdi, injection_rules, names, schema
from .discover import discovery_problems, node_placeholder_problems
from .injection_rules import edit_problems, placeholder_problems
from .model import DEVICE_PLUGIN, DRA, Configuration, Device, DraDriver, Resource
from .named_directories import directory_problems
from .problems import DeclarationError, Problem, element

#: The directory of the role cdi_specs; CDI's directory for static specs.
STATIC_CDI_DIR = "/etc/cdi"
#: What udevadm info prints as properties, but udev's database does not have as such.
_NO_PROPERTIES = frozenset({"CURRENT_TAGS", "DEVLINKS", "TAGS", "USEC_INITIALIZED"})


def parse_resources(raw: Any, where: str = "resources") -> tuple[Resource, ...]:
    """Parse a list of resources.

    raw: the list from YAML or Ansible.
    where: the name of the list in messages.
    Raises DeclarationError with all problems.
    """
    problems: list[Problem] = []
    read = schema.normalise(raw, schema.CONFIGURATION["resources"], where, problems)
    resources = _resources(_with_api(read or (), DEVICE_PLUGIN), where, problems, DraDriver())
    if problems:
        raise DeclarationError(problems)
    return resources


def parse_configuration(raw: Any, has_names: bool = False) -> Configuration:
    """Parse the content of a configuration file. Raises DeclarationError with all problems.

    has_names: whether users and groups may have names, as in an inventory, before a role writes the file.
    """
    problems: list[Problem] = []
    if not isinstance(raw, dict):
        raise DeclarationError([Problem("configuration", "must be a mapping with the key 'resources'")])
    known = schema.OF_INVENTORY if has_names else schema.CONFIGURATION
    data = schema.normalise(raw, schema.Field("dict", "", fields=known), "", problems)
    default = data.pop("api")
    resources = _resources(_with_api(data["resources"] or (), default), "resources", problems, data["dra"])
    problems.extend(dra_api.registration_problems(data["registration"], resources))
    if data["dynamic_cdi_dir"] == STATIC_CDI_DIR and data["cdi_owner"] == "role":
        of_the_role = (
            "belongs to the role, whose specs the plugin would remove: choose another, or set cdi_owner: plugin"
        )
        problems.append(Problem("dynamic_cdi_dir", of_the_role))
    for position, resource in enumerate(resources):
        place = element("resources", position, resource.name)
        if not has_names:
            problems.extend(_account_problems(resource, place))
        if resource.discover.cdi and not data["cdi_spec_dirs"]:
            message = "looks in cdi_spec_dirs, which is empty: list the directories there"
            problems.append(Problem(place + ".discover.cdi", message))
    too_long = fields.socket_room(names.MAX_KUBELET_ROOT_DIR, data["kubelet_root_dir"])
    if too_long and (data["registration"] == "plugins_registry" or any(each.api == DRA for each in resources)):
        problems.append(Problem("kubelet_root_dir", too_long))
    if problems:
        raise DeclarationError(problems)
    if data["cdi_owner"] == "plugin":
        resources = tuple(resource._replace(cdi_by_plugin=True) for resource in resources)
    return Configuration(**{**data, "resources": resources})


def is_static(item: Any) -> bool:
    """Whether an element of a declaration is a fixed capacity. ``capacity: null`` (a missing value) also counts."""
    return isinstance(item, dict) and "capacity" in item


def parse_capacities(raw: Sequence[Any], plugins: Mapping[str, str]) -> dict[str, int]:
    """Parse the elements for which is_static is true. Returns resource to capacity, in their order.

    plugins: names of resources with devices, each with its place. No name may be in both groups.
    Raises DeclarationError with all problems.
    """
    problems: list[Problem] = []
    field = schema.Field("list", "", elements="dict", fields=schema.STATIC_RESOURCE)
    seen: dict[str, str] = dict(plugins)
    capacities: dict[str, int] = {}
    for position, item in enumerate(schema.normalise(raw, field, "resources", problems)):
        name, capacity = item["name"], item["capacity"]
        place = element("resources", position, name)
        if name and seen.setdefault(name, place) != place:
            problems.append(Problem(place + ".name", f"is already declared as {seen[name]}: remove or rename one"))
        capacities[name] = capacity
    if problems:
        raise DeclarationError(problems)
    return capacities


def _account_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """Names of users and groups, which the plugin cannot look up: a pod has other ones than its node."""
    nodes = [
        ("%s.nodes[%d]" % (place, position), node)
        for place, device in resource.placed_devices(where)
        for position, node in enumerate(device.nodes)
        if isinstance(node.uid, str) or isinstance(node.gid, str)
    ]
    for place, owned in (*nodes, (where + ".discover", resource.discover)):
        for key, database in (("uid", "passwd"), ("gid", "group")):
            name = getattr(owned, key)
            if isinstance(name, str):
                message = "must be a number in the plugin's configuration, because only the roles look names up"
                yield Problem(f"{place}.{key}", f"{message}: 'getent {database} {name}' on the node prints the number")


def _with_api(read: Sequence[Resource], default: str) -> list[Resource]:
    """The resources, of which each has an api. default: of a resource that sets none."""
    return [resource if resource.api else resource._replace(api=default) for resource in read]


def _resources(
    read: Sequence[Resource], where: str, problems: list[Problem], driver: DraDriver
) -> tuple[Resource, ...]:
    refused = frozenset(problem.where for problem in problems)
    placed = []
    for position, resource in enumerate(read):
        place = element(where, position, resource.name)
        problems.extend(_problems(resource, place, refused))
        problems.extend(dra_api.problems(resource, place, driver.name))
        too_long = list((dra_api if resource.api == DRA else device_plugin_api).size_problems(resource, place))
        problems.extend(too_long)
        # Later checks iterate over every share, so a resource that is too large continues with one share.
        placed.append((place, resource._replace(replicas=1) if too_long else resource))
    problems.extend(_repetitions(placed))
    problems.extend(env.collision_problems(placed))
    problems.extend(foreign_cdi.repetition_problems(placed))
    return tuple(resource for _, resource in placed)


def _problems(resource: Resource, where: str, refused: Collection[str]) -> Iterator[Problem]:
    """The problems of a single resource. refused: fields with a known problem."""
    for place, device in resource.placed_devices(where):
        paths = [node.path for node in device.nodes if node.path]
        repeated = collections.Counter(paths) if len(set(paths)) < len(paths) else {}
        for path, count in repeated.items():
            if count > 1:
                yield Problem(place + ".nodes", f"the path {path} is listed twice: remove one entry")
        yield from _property_problems(device.properties, place + ".properties")
        yield from node_placeholder_problems(device.nodes, place, device.properties)
        yield from edit_problems(device.container_edits, place)
    for position, selector in enumerate(resource.discover.udev):
        place = "%s.discover.udev[%d].properties" % (where, position)
        yield from _property_problems(selector.properties, place)
        for name in sorted(_NO_PROPERTIES.intersection(selector.properties)):
            fix = "use discover.paths" if name == "DEVLINKS" else "choose another property"
            yield Problem(f"{place}.{name}", f"is no property in udev's database, and would match no device: {fix}")
    yield from edit_problems(resource.container_edits, where)
    yield from discovery_problems(resource.discover, where + ".discover", refused)
    if resource.min_devices > len(resource.devices) and not resource.discover.methods:
        declared = counted(len(resource.devices), "device")
        message = "is %d, but the resource declares only %s and discovers none: declare more devices, or lower it"
        yield Problem(where + ".min_devices", message % (resource.min_devices, declared))
    yield from _cdi_problems(resource, where)
    yield from env.template_problems(resource, where)
    yield from directory_problems(resource, where)
    yield from placeholder_problems(resource, where)
    yield from injection_rules.problems(resource, where, refused)
    yield from container_paths.problems(resource, where)
    yield from foreign_cdi.problems(resource, where, refused)


def _cdi_problems(resource: Resource, where: str) -> Iterator[Problem]:
    has_own_name = resource.cdi_kind != resource.name
    # An invalid resource name is reported already and is empty here.
    is_asked_for = has_own_name or (resource.has_spec and resource.name)
    message = names.cdi_kind_problem(resource.cdi_kind) if is_asked_for else None
    if message and has_own_name:
        yield Problem(where + ".cdi_kind", message)
    elif message:
        yield Problem(where + ".name", f"is also the CDI kind, but {message}; or set cdi_kind")
    for place, device in resource.placed_devices(where):
        message = names.cdi_device_problem(device.id) if resource.cdi_name(device) else None
        if message and device.id:
            yield Problem(place + ".id", message + "; put other text into properties")


def _property_problems(properties: Mapping[str, str], where: str) -> Iterator[Problem]:
    told: dict[str, str] = {}
    for key in properties:
        place = f"{where}.{key}"
        message = names.placeholder_problem(key)
        if message:
            yield Problem(place, message)
        other = told.setdefault(key.upper(), key)
        if other != key:
            message = "differs from %s only in case, and both would set DEVICE_PROPERTY_%s for commands: rename one"
            yield Problem(place, message % (other, key.upper()))


def _repetitions(placed: Sequence[tuple[str, Resource]]) -> Iterator[Problem]:
    """Resources, CDI kinds and device ids that appear twice on one node."""
    names_seen: dict[str, str] = {}
    kinds_seen: dict[str, str] = {}
    ids_seen: dict[str, str] = {}
    used = {device.id for _, resource in placed for device in resource.devices}
    for where, resource in placed:
        if resource.name and names_seen.setdefault(resource.name, where) != where:
            yield Problem(where + ".name", f"is already declared as {names_seen[resource.name]}: remove or rename one")
        elif resource.has_spec and kinds_seen.setdefault(resource.cdi_kind, where) != where:
            yield Problem(
                where + ".cdi_kind", f"is already the kind of {kinds_seen[resource.cdi_kind]}: set another cdi_kind"
            )
        for place, device in resource.placed_devices(where):
            ids = (device.id, *device_plugin_api.kubelet_ids(resource, device)) if device.id else ()
            free = _prefixed(resource, device, used)
            used_twice = (_id_problem(kubelet_id, place, ids_seen, free) for kubelet_id in ids)
            message = _length_problem(resource, device) or next(filter(None, used_twice), None)
            if message:
                used.add(free)
                yield Problem(place + ".id", message)


def _prefixed(resource: Resource, device: Device, used: Collection[str]) -> str:
    """The device's id after the last part of the resource's name; empty if another device may have this id."""
    free = f"{resource.name.partition('/')[2]}-{device.id}"
    has_room = len(free) <= device_plugin_api.longest_device_id(resource)
    return free if resource.name and has_room and free not in used else ""


def _length_problem(resource: Resource, device: Device) -> str | None:
    longest = device_plugin_api.longest_device_id(resource)
    if len(device.id) <= longest:
        return None
    added = device_plugin_api.kubelet_ids(resource, device)[-1][len(device.id) :]
    why = f" to which replicas adds {added!r}" if added else ""
    return "%r has more than %d characters, the limit for a device id%s" % (device.id, longest, why)


def _id_problem(kubelet_id: str, place: str, seen: dict[str, str], free: str) -> str | None:
    """The problem with an id that another device has, too. free: an id to propose, or empty."""
    other = seen.setdefault(kubelet_id, place)
    example = f", e.g. {free!r}" if free else ""
    same = f"{kubelet_id!r} is already the id of {other}: choose another{example}, because the kubelet knows devices"
    return f"{same} by id only" if other != place else None
