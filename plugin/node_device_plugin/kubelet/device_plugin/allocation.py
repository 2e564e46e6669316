"""What a container gets of its devices: the answer to Allocate."""

from __future__ import annotations

from collections.abc import Sequence

from ...declaration import Device
from ...declaration.env import allocate_annotations, allocate_env
from ...declaration.model import DeviceNode, Mount, Resource
from ...devices.reason import told
from ...support.channels import grpc
from ...wire import device_plugin_v1beta1_pb2 as api
from .device_list import DeviceList, NotAllocatable


def allocate(offered: DeviceList, kubelet_ids: list[str]) -> api.ContainerAllocateResponse:
    """The answer for one container. Devices follow the declaration's order, because the kubelet's ids have none.

    Raises NotAllocatable. Reads no file and never waits: the kubelet holds a node-wide lock without a time limit until
    the answer arrives.
    """
    resource = offered.table.resource
    devices = offered.devices_of(kubelet_ids)
    limit = resource.container_limit
    if limit is not None and len(kubelet_ids) > limit:
        message = "a container may have at most %d of %s (container_limit), not %d"
        message %= limit, resource.name, len(kubelet_ids)
        raise NotAllocatable(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
    for device in devices:
        reason = offered.table.reason(device)
        if reason is not None:
            message = f"{resource.name}: device {device.id}: {told(reason)}"
            raise NotAllocatable(grpc.StatusCode.FAILED_PRECONDITION, message)
    answer = api.ContainerAllocateResponse(
        envs=allocate_env(resource, devices), annotations=allocate_annotations(resource, devices)
    )
    if resource.injection == "cdi":
        answer.cdi_devices.extend(api.CDIDevice(name=name) for name in resource.cdi_names(*devices))
    else:
        _add_edits(answer, resource, devices)
    return answer


def _add_edits(answer: api.ContainerAllocateResponse, resource: Resource, devices: Sequence[Device]) -> None:
    """Add the CDI edits that the kubelet can make itself. A variable of the edits replaces a variable of ``env``."""
    all_edits = resource.edits_of(devices)
    for edits in all_edits:
        for assignment in edits.env:
            name, _, value = assignment.partition("=")
            answer.envs[name] = value
    mounts: dict[str, Mount] = {mount.container_path: mount for edits in all_edits for mount in edits.mounts}
    nodes: dict[str, DeviceNode] = {node.path: node for device in devices for node in device.nodes}
    answer.mounts.extend(
        api.Mount(host_path=mount.host_path, container_path=mount.container_path, read_only="ro" in mount.options)
        for mount in mounts.values()
    )
    answer.devices.extend(
        api.DeviceSpec(host_path=node.host_path, container_path=node.path, permissions=node.permissions)
        for node in nodes.values()
    )
