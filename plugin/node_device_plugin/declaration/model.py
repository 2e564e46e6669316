"""A declaration that has been read: plain immutable data, with the names and numbers that follow from it."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from .names import qualified_cdi_name

#: Between a device's id and the number of its share, where replicas are more than one.
_SHARE = "::"


class DeviceNode(NamedTuple):
    """A device node that a container gets. ``path`` is inside the container, ``host_path`` on the node."""

    path: str
    host_path: str
    permissions: str
    uid: Optional[int]
    gid: Optional[int]
    #: Permission bits.
    mode: Optional[int]


class Mount(NamedTuple):
    """A mount that a container gets."""

    host_path: str
    container_path: str
    type: Optional[str]
    options: Tuple[str, ...]


class Hook(NamedTuple):
    """An OCI hook; ``timeout`` in seconds."""

    name: str
    path: str
    args: Tuple[str, ...]
    env: Tuple[str, ...]
    timeout: Optional[int]


class ContainerEdits(NamedTuple):
    """CDI edits apart from device nodes."""

    env: Tuple[str, ...] = ()
    mounts: Tuple[Mount, ...] = ()
    hooks: Tuple[Hook, ...] = ()
    additional_gids: Tuple[int, ...] = ()


class Device(NamedTuple):
    """One device of a node."""

    id: str
    nodes: Tuple[DeviceNode, ...]
    container_edits: ContainerEdits
    properties: Mapping[str, str]
    required: bool

    @property
    def has_edits(self) -> bool:
        """Whether a container gets anything of this device by CDI."""
        return bool(self.nodes) or self.container_edits != ContainerEdits()

    def template_values(self) -> Dict[str, str]:
        """What may stand in a value of ``env``, apart from {index}."""
        values = {"id": self.id, **self.properties}
        if self.nodes:
            values.update(path=self.nodes[0].path, host_path=self.nodes[0].host_path)
        return values


class Resource(NamedTuple):
    """An extended resource and the devices that this node has of it, in the order of the declaration."""

    name: str
    cdi_kind: str
    devices: Tuple[Device, ...]
    env: Mapping[str, str]
    container_edits: ContainerEdits
    replicas: int

    def cdi_name(self, device: Device) -> Optional[str]:
        """The device's fully qualified CDI name; None where CDI has nothing to do for it."""
        if device.has_edits or self.container_edits != ContainerEdits():
            return qualified_cdi_name(self.cdi_kind, device.id)
        return None

    @property
    def uses_cdi(self) -> bool:
        """Whether any device of it is given by CDI."""
        return any(self.cdi_name(device) for device in self.devices)

    def kubelet_ids(self, device: Device) -> List[str]:
        """The ids under which the kubelet lists the device: one for each share."""
        if self.replicas == 1:
            return [device.id]
        return ["%s%s%d" % (device.id, _SHARE, share) for share in range(self.replicas)]

    def devices_of(self, kubelet_ids: List[str]) -> List[Device]:
        """The devices behind kubelet ids (in any order), each once, in the order of the declaration.

        Raises KeyError with the first id that is no device of this resource.
        """
        known = {kubelet_id: device for device in self.devices for kubelet_id in self.kubelet_ids(device)}
        for kubelet_id in kubelet_ids:
            if kubelet_id not in known:
                raise KeyError(kubelet_id)
        chosen = {known[kubelet_id].id for kubelet_id in kubelet_ids}
        return [device for device in self.devices if device.id in chosen]


class Configuration(NamedTuple):
    """What the plugin runs with."""

    resources: Tuple[Resource, ...]
    kubelet_device_plugin_dir: str
    log_level: str
