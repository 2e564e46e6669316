"""What a container gets for the devices that the kubelet chose: the answer to Allocate."""

from __future__ import annotations

from typing import Dict, List, Sequence

from ...declaration import Device
from ...declaration.env import allocate_annotations, allocate_env
from ...declaration.model import ContainerEdits, DeviceNode, Mount, Resource
from ...wire import device_plugin_v1beta1_pb2 as api
from .device_list import DeviceList


class NotAllocatable(Exception):
    """A device that the kubelet asks for cannot be given; the message names it and says why."""


class UnknownDevice(NotAllocatable):
    """The id is none of this resource's."""


class UnhealthyDevice(NotAllocatable):
    """The device is unhealthy or gone."""


class OverLimit(NotAllocatable):
    """A container asks for more than the resource's limit."""


def allocate(offered: DeviceList, kubelet_ids: List[str]) -> api.ContainerAllocateResponse:
    """The answer for one container. The kubelet sends ids in no order; numbers follow the declaration's.

    Raises NotAllocatable. Touches no file and waits for nothing: the kubelet holds a lock of the whole node, without a
    time limit, until it has the answer.
    """
    resource = offered.table.resource
    devices = devices_of(offered, kubelet_ids)
    limit = resource.container_limit
    if limit is not None and len(kubelet_ids) > limit:
        raise OverLimit(
            "a container may have %d of %s (container_limit), not %d" % (limit, resource.name, len(kubelet_ids))
        )
    for device in devices:
        reason = offered.table.reason(device)
        if reason is not None:
            raise UnhealthyDevice("%s: device %s: %s" % (resource.name, device.id, reason))
    answer = api.ContainerAllocateResponse(
        envs=allocate_env(resource, devices), annotations=allocate_annotations(resource, devices)
    )
    if resource.injection == "cdi":
        names = [resource.cdi_name(device) for device in devices]
        answer.cdi_devices.extend(api.CDIDevice(name=name) for name in names if name is not None)
    else:
        _add_edits(answer, resource, devices)
    return answer


def devices_of(offered: DeviceList, kubelet_ids: Sequence[str]) -> List[Device]:
    """The devices behind ids, in the order of the declaration. Raises UnknownDevice."""
    try:
        return offered.devices_of(kubelet_ids)
    except KeyError as error:
        raise UnknownDevice("%s has no device %s" % (offered.table.resource.name, error.args[0])) from error


def _add_edits(answer: api.ContainerAllocateResponse, resource: Resource, devices: Sequence[Device]) -> None:
    """What CDI would have done, as far as the kubelet can: of two variables with one name the edits' stays."""
    edited = [device for device in devices if resource.edits(device)]
    all_edits: List[ContainerEdits] = [resource.container_edits] if edited else []
    all_edits += [device.container_edits for device in edited]
    for edits in all_edits:
        for assignment in edits.env:
            name, _, value = assignment.partition("=")
            answer.envs[name] = value
    mounts: Dict[str, Mount] = {mount.container_path: mount for edits in all_edits for mount in edits.mounts}
    nodes: Dict[str, DeviceNode] = {node.path: node for device in edited for node in device.nodes}
    answer.mounts.extend(
        api.Mount(host_path=mount.host_path, container_path=mount.container_path, read_only="ro" in mount.options)
        for mount in mounts.values()
    )
    answer.devices.extend(
        api.DeviceSpec(host_path=node.host_path, container_path=node.path, permissions=node.permissions)
        for node in nodes.values()
    )
