"""What a container gets for the devices that the kubelet chose: the answer to Allocate."""

from __future__ import annotations

from typing import List

from .declaration.env import allocate_env
from .device_table import DeviceTable
from .wire import device_plugin_v1beta1_pb2 as api


class NotAllocatable(Exception):
    """A device that the kubelet asks for cannot be given; the message names it and says why."""


class UnknownDevice(NotAllocatable):
    """The id is none of this resource's."""


class UnhealthyDevice(NotAllocatable):
    """The device is unhealthy or gone."""


def allocate(table: DeviceTable, kubelet_ids: List[str]) -> api.ContainerAllocateResponse:
    """The answer for one container. The kubelet sends ids in no order; numbers follow the declaration's.

    Raises NotAllocatable. Touches no file: the kubelet holds a lock of the whole node while it waits.
    """
    resource = table.resource
    try:
        devices = resource.devices_of(kubelet_ids)
    except KeyError as error:
        raise UnknownDevice("%s has no device %s" % (resource.name, error.args[0])) from error
    for device in devices:
        reason = table.reason(device)
        if reason is not None:
            raise UnhealthyDevice("%s: device %s: %s" % (resource.name, device.id, reason))
    names = [resource.cdi_name(device) for device in devices]
    return api.ContainerAllocateResponse(
        envs=allocate_env(resource, devices),
        cdi_devices=[api.CDIDevice(name=name) for name in names if name is not None],
    )
