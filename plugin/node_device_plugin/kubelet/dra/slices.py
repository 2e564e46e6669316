"""The ResourceSlices of this node: what a pool must have, and the writes from what the API server has.

Facts: k8s.io/api/resource/v1 (types.go) and its validation. A pool is all slices with one pool name. Schedulers use the
slices of a pool's highest generation, once there are ``resourceSliceCount`` of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Callable, NamedTuple

from ...declaration.device_plugin_api import kubelet_ids
from ...declaration.dra_api import API_VERSION, ID_ATTRIBUTE, MAX_ATTRIBUTES, RESOURCE_ATTRIBUTE
from ...declaration.model import AttributeValue, Device, DraDriver, Resource, Version
from ...declaration.names import MAX_ATTRIBUTE_TEXT, attribute_text, dns_label, hashed_label, pool_name

#: Maximum devices of a slice. Without taints 128 are possible, but a slice with a taint may have only these.
MAX_DEVICES = 64
#: The taint of a device that no pod can get now. A driver that evicts pods would decide for the administrator.
TAINT = {"key": "nodedevices.kubernetes/unhealthy", "effect": "NoSchedule"}
_INT64 = range(-(1 << 63), 1 << 63)
#: Attributes that Kubernetes names (k8s.io/dynamic-resource-allocation/deviceattribute), by our names.
_STANDARD = {
    "pciAddress": "resource.kubernetes.io/pciBusID",
    "pcieRoot": "resource.kubernetes.io/pcieRoot",
    "numaNode": "resource.kubernetes.io/numaNode",
}

#: An object of the API, as JSON.
Object = dict[str, Any]


class SliceDevice(NamedTuple):
    """A device in a slice, or a share of one. attributes: without a prefix, except for the names of Kubernetes."""

    name: str
    attributes: Mapping[str, AttributeValue]
    is_healthy: bool = True


class Pool(NamedTuple):
    """A resource's devices. name: unique in the cluster.

    left_out: the attributes that the API does not accept, each as a sentence with its device and the reason.
    """

    name: str
    devices: tuple[SliceDevice, ...]
    left_out: tuple[str, ...] = ()

    def healthy(self) -> Pool:
        """The pool for an API server without taints."""
        return self._replace(devices=tuple(each for each in self.devices if each.is_healthy))


class Write(NamedTuple):
    """A change of one ResourceSlice. old: the object to replace or to delete. new: the object to store."""

    old: Object | None
    new: Object | None


def device_name(device_id: str) -> str:
    """The name of a device in its pool, a DNS label: the id itself if possible, and different for each id.

    device_id: of the device, or of its share. No device has the name of a share, also if ``replicas`` changes.
    """
    return dns_label(device_id)


def pool_of(driver: DraDriver, resource: Resource, shown: Iterable[tuple[Device, str | None]]) -> Pool:
    """The pool of a resource. shown: its devices in order, each with the reason if it is unhealthy."""
    devices: list[SliceDevice] = []
    left_out = []
    for device, reason in shown:
        attributes: dict[str, AttributeValue] = {}
        for name, value in _attributes(resource, device).items():
            problem = _problem(value)
            if problem is None and len(attributes) == MAX_ATTRIBUTES:
                problem = f"a device has at most {MAX_ATTRIBUTES} attributes"
            if problem is None:
                attributes[name] = value
            else:
                left_out.append(f"{device.id}: the attribute {name} is left out: {problem}")
        names = map(device_name, kubelet_ids(resource, device))
        devices.extend(SliceDevice(name, attributes, reason is None) for name in names)
    return Pool(pool_name(driver.node, resource.name), tuple(devices), tuple(left_out))


def _attributes(resource: Resource, device: Device) -> dict[str, AttributeValue]:
    """The attributes of a device, the most important first. What the declaration says wins over what was found."""
    # A DeviceClass selects by these two, so every device has them, and nothing replaces them.
    always = {RESOURCE_ATTRIBUTE: attribute_text(resource.name), ID_ATTRIBUTE: attribute_text(device.id)}
    found: dict[str, AttributeValue] = {_camel_case(name): value for name, value in device.attributes.known().items()}
    if device.numa_node is not None:
        found["numaNode"] = device.numa_node
    if device.nodes:
        found["path"] = device.nodes[0].path
    by_name = {_STANDARD.get(name, name): value for name, value in found.items()}
    declared = {**resource.dra_attributes, **device.dra_attributes}
    # The last value of a name counts, at the place of the first.
    return {**always, **declared, **by_name, **declared, **always}


def _camel_case(name: str) -> str:
    return re.sub(r"_(.)", lambda found: found[1].upper(), name)


def _problem(value: AttributeValue) -> str | None:
    """Why the API does not accept a value, or None."""
    if isinstance(value, int):
        return None if value in _INT64 else "the number does not fit into 64 bits"
    size = len((value.text if isinstance(value, Version) else value).encode())
    fits = size <= MAX_ATTRIBUTE_TEXT
    return None if fits else f"its text has {size} bytes, at most {MAX_ATTRIBUTE_TEXT} are possible"


def changes(
    driver: DraDriver,
    node_uid: str,
    pools: Sequence[Pool],
    existing: Collection[Object],
    is_same: Callable[[Object, Object], bool] | None = None,
    instead: Mapping[str, str] = MappingProxyType({}),
) -> list[Write]:
    """The writes after which the API server has these pools of the driver on its node, and no other.

    node_uid: of the Node object, which owns the slices. existing: the driver's slices of the node. is_same: whether the
    first object, which exists, needs no write to become the second; by default, whether their contents are equal.
    instead: the names that others have, and the names of new slices instead.
    """
    before: dict[str, list[Object]] = {}
    for each in existing:
        before.setdefault(each["spec"]["pool"]["name"], []).append(each)
    writes: list[Write] = []
    for pool in pools:
        writes += _of_pool(driver, node_uid, pool, before.pop(pool.name, []), is_same or _is_same, instead)
    return writes + [Write(each, None) for each in itertools.chain(*before.values())]


def content(slice_object: Object) -> tuple[Any, Any]:
    """The parts of a ResourceSlice that we decide.

    The API server sets the time of a taint. Kubernetes 1.34 returns null for an empty list of devices.
    """
    spec = {key: part for key, part in slice_object["spec"].items() if part is not None}
    if any("taints" in each for each in spec.get("devices") or ()):
        spec = {**spec, "devices": list(map(_timeless, spec["devices"]))}
    return spec, slice_object["metadata"].get("ownerReferences")


def _timeless(device: Object) -> Object:
    if "taints" not in device:
        return device
    taints = [{key: value for key, value in each.items() if key != "timeAdded"} for each in device["taints"]]
    return {**device, "taints": taints}


def tainted(slice_object: Object) -> set[str]:
    """The names of the devices with our taint in a slice."""
    return {each["name"] for each in slice_object["spec"].get("devices") or () if is_tainted(each)}


def is_tainted(device: Object) -> bool:
    """Whether a device of a slice has our taint."""
    return any(map(_is_ours, device.get("taints") or ()))


def _is_ours(taint: Mapping[str, Any]) -> bool:
    return all(taint.get(key) == value for key, value in TAINT.items())


def _is_same(old: Object, new: Object) -> bool:
    return content(old) == content(new)


def _of_pool(
    driver: DraDriver,
    node_uid: str,
    pool: Pool,
    before: Sequence[Object],
    is_same: Callable[[Object, Object], bool],
    instead: Mapping[str, str],
) -> list[Write]:
    """The writes for one pool: what is needed first, because a pool is used as soon as its generation is complete."""
    by_name = {each["metadata"]["name"]: each for each in before}
    number = max(1, -(-len(pool.devices) // MAX_DEVICES))
    names = _names([_slice_name(driver, pool, index) for index in range(number)], by_name, instead)
    former = [by_name[name]["spec"].get("devices") or () if name in by_name else () for name in names]
    spread = _spread(pool.devices, [[each["name"] for each in devices] for devices in former])

    def objects(generation: int) -> list[Object]:
        of_pool = {"name": pool.name, "generation": generation, "resourceSliceCount": number}
        return [_object(driver, node_uid, *each, of_pool) for each in zip(names, spread)]

    def writes(wanted: Sequence[Object]) -> list[Write]:
        pairs = [(by_name.get(each["metadata"]["name"]), each) for each in wanted]
        return [Write(old, _over(old, new)) for old, new in pairs if old is None or not is_same(old, new)]

    deletes = [Write(each, None) for each in before if each["metadata"]["name"] not in names]
    generation = max((each["spec"]["pool"]["generation"] for each in before), default=1)
    puts = writes(objects(generation))
    if before and len(puts) + len(deletes) > 1:
        # Otherwise, a scheduler could use some slices of before the change beside some of after it.
        puts = writes(objects(generation + 1))
    return puts + deletes


def _spread(devices: Sequence[SliceDevice], former: Sequence[Collection[str]]) -> list[list[SliceDevice]]:
    """The devices of each slice. former: the names of the devices that each slice had.

    A device stays in its slice, so that another device that comes or goes changes only one slice.
    """
    home = {name: index for index, names in enumerate(former) for name in names}
    # A slice that is missing gets its devices back.
    order = iter(sorted(range(len(former)), key=lambda index: bool(former[index])))
    with_room = next(order)
    places: dict[str, int] = {}
    sizes = [0] * len(former)
    for device in sorted(devices, key=lambda each: each.name not in home):
        index = home.get(device.name, -1)
        if index < 0 or sizes[index] == MAX_DEVICES:
            # A full slice stays full.
            while sizes[with_room] == MAX_DEVICES:
                with_room = next(order)
            index = with_room
        places[device.name] = index
        sizes[index] += 1
    spread: list[list[SliceDevice]] = [[] for _each in former]
    for device in devices:
        spread[places[device.name]].append(device)
    return spread


def _slice_name(driver: DraDriver, pool: Pool, index: int) -> str:
    # The same name each time, so that two instances of the plugin cannot create one slice twice.
    return hashed_label(f"{pool.name}/{index}/{driver.name}")


def _names(first: Sequence[str], existing: Collection[str], instead: Mapping[str, str]) -> list[str]:
    """The names of a pool's slices. first: the names that they have unless others have taken these.

    A slice that exists keeps its name, so that a restart and two instances agree about the names instead.
    """
    others = iter(sorted(set(existing).difference(first)))
    return [name if name in existing else next(others, None) or _free(name, instead) for name in first]


def _free(name: str, instead: Mapping[str, str]) -> str:
    while name in instead:
        name = instead[name]
    return name


def _object(
    driver: DraDriver, node_uid: str, name: str, devices: Sequence[SliceDevice], of_pool: Mapping[str, Any]
) -> Object:
    owner = {"apiVersion": "v1", "kind": "Node", "name": driver.node, "uid": node_uid, "controller": True}
    spec: Object = {"driver": driver.name, "nodeName": driver.node, "pool": of_pool}
    if devices:
        # The API server returns no empty list.
        spec["devices"] = list(map(_device, devices))
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": spec,
    }


def _device(device: SliceDevice) -> Object:
    taints = {} if device.is_healthy else {"taints": [dict(TAINT)]}
    return {"name": device.name, "attributes": _values(device.attributes), **taints}


def _values(attributes: Mapping[str, AttributeValue]) -> dict[str, dict[str, bool | int | str]]:
    return {name: _value(value) for name, value in attributes.items()}


def _value(value: AttributeValue) -> dict[str, bool | int | str]:
    if isinstance(value, bool):
        return {"bool": value}
    if isinstance(value, int):
        return {"int": value}
    return {"version": value.text} if isinstance(value, Version) else {"string": value}


def _over(old: Object | None, new: Object) -> Object:
    """The new object with the metadata of the one that it replaces, such as its version and others' labels.

    A device that stays unhealthy keeps its taint, with the time.
    """
    if old is None:
        return new
    before = tainted(old)
    taints = {each["name"]: each["taints"] for each in old["spec"].get("devices") or () if each["name"] in before}
    for each in new["spec"].get("devices", ()):
        if "taints" in each:
            each["taints"] = taints.get(each["name"], each["taints"])
    return {**new, "metadata": {**old["metadata"], **new["metadata"]}}
