"""A declaration that has been read: plain immutable data, with the names and numbers that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from .names import qualified_cdi_name
from .patterns import placeholders, wildcards
from .problems import element

#: Between a device's id and the number of its share, where replicas are more than one.
SHARE = "::"


def devices_behind(kubelet_id: str) -> frozenset[str]:
    """The ids of devices that the kubelet's one may stand for: a share's device, and one that has the id itself."""
    device, share, number = kubelet_id.rpartition(SHARE)
    return frozenset({kubelet_id, device} if share and number.isdecimal() else {kubelet_id})


#: Properties of a USB device: its ids, serial number (empty for none) and port (as sysfs calls it, e.g. 1-1.2).
USB_PROPERTIES = ("vendor", "product", "serial", "port")
#: Properties of a PCI device: address (0000:3b:00.0), ids, class code, IOMMU group (empty for none).
PCI_PROPERTIES = ("address", "vendor", "device", "class_code", "iommu_group")


#: Types of mounts that name no file system.
BIND = (None, "bind", "none")


class DeviceNode(NamedTuple):
    """A device node that a container gets. ``path`` is inside the container, ``host_path`` on the node."""

    path: str
    host_path: str
    permissions: str
    uid: int | None
    gid: int | None
    #: Permission bits.
    mode: int | None
    #: What the node on the host has to be: ``c`` or ``b``, and its numbers; None for any.
    type: str | None = None
    major: int | None = None
    minor: int | None = None


class Mount(NamedTuple):
    """A mount that a container gets."""

    host_path: str
    container_path: str
    type: str | None
    options: tuple[str, ...]

    @property
    def is_bind(self) -> bool:
        """Whether it is a part of the host's file systems (mount(8): for a bind mount the type is none, or ignored)."""
        return self.type in BIND or bool({"bind", "rbind"}.intersection(self.options))


class Hook(NamedTuple):
    """An OCI hook; ``timeout`` in seconds."""

    name: str
    path: str
    args: tuple[str, ...]
    env: tuple[str, ...]
    timeout: int | None


class ContainerEdits(NamedTuple):
    """CDI edits apart from device nodes."""

    env: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()


class Attributes(NamedTuple):
    """What discovery learnt of a device on a bus; None where it does not apply or is unknown.

    pci_address: such as ``0000:3b:00.0``. usb_vendor, usb_product: four hexadecimal digits in lower case. driver: that
    the kernel bound. subsystem: such as ``usb``. A device's NUMA node is its own field, because it can be declared.
    """

    pci_address: str | None = None
    usb_vendor: str | None = None
    usb_product: str | None = None
    usb_serial: str | None = None
    driver: str | None = None
    subsystem: str | None = None

    def known(self) -> dict[str, str]:
        """Those that are known, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class Device(NamedTuple):
    """One device of a node."""

    id: str
    nodes: tuple[DeviceNode, ...]
    container_edits: ContainerEdits
    properties: Mapping[str, str]
    required: bool
    #: NUMA node that the device is near to; None for none or unknown.
    numa_node: int | None = None
    attributes: Attributes = Attributes()

    @property
    def has_edits(self) -> bool:
        """Whether a container gets anything of this device by CDI."""
        return bool(self.nodes) or self.container_edits != ContainerEdits()

    @property
    def host_paths(self) -> frozenset[str]:
        """What it gives of the host, as declared: nodes and bind mounts."""
        mounts = (mount.host_path for mount in self.container_edits.mounts if mount.is_bind)
        return frozenset([*(node.host_path for node in self.nodes), *mounts])

    def template_values(self) -> dict[str, str]:
        """What may stand in a value of ``env``, apart from {index}."""
        values = {"id": self.id, **self.properties}
        if self.nodes:
            values.update(path=self.nodes[0].path, host_path=self.nodes[0].host_path)
        return values


class UsbSelector(NamedTuple):
    """USB devices: hexadecimal ids of four digits in lower case, and a pattern of the serial number; None for any."""

    vendor: str | None = None
    product: str | None = None
    serial: str | None = None


class PciSelector(NamedTuple):
    """PCI devices: hexadecimal ids of four digits, and the front of the class code's six; None for any."""

    vendor: str | None = None
    device: str | None = None
    class_code: str | None = None


class GroupedNode(NamedTuple):
    """A device node that belongs to a discovered device; ``path`` is a pattern with placeholders.

    container_path: template of its path in a container; None for the path that was found.
    """

    path: str
    optional: bool
    container_path: str | None = None

    @property
    def is_common(self) -> bool:
        """Whether every device is given the same one."""
        return not wildcards(self.path) and not placeholders(self.path)


#: The keys of ``discover`` that are methods; devices.discovery has a DiscoveryMethod for each.
DISCOVERY_METHODS = ("paths", "usb", "pci")


class Discovery(NamedTuple):
    """How devices are found while the plugin runs. Without a method nothing is discovered."""

    paths: tuple[str, ...] = ()
    usb: tuple[UsbSelector, ...] = ()
    pci: tuple[PciSelector, ...] = ()
    nodes: tuple[GroupedNode, ...] = ()
    exclude: tuple[str, ...] = ()
    permissions: str = "rw"
    uid: int | None = None
    gid: int | None = None
    mode: int | None = None
    #: Template of a path's own node in a container; None for the path that was found.
    container_path: str | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods in use, by the names of their keys."""
        return tuple(name for name in DISCOVERY_METHODS if getattr(self, name))

    def property_names(self) -> frozenset[str]:
        """The properties that every device found has, whichever method found it."""
        sets = [frozenset("match%d" % (n + 1) for n in range(wildcards(pattern))) for pattern in self.paths]
        if self.usb:
            sets.append(frozenset(USB_PROPERTIES))
        if self.pci:
            sets.append(frozenset(PCI_PROPERTIES))
        return frozenset.intersection(*sets) if sets else frozenset()

    def template_names(self) -> frozenset[str]:
        """What may stand in a value of ``env`` beside {index}. A PCI device may have no node, and so no path."""
        has_node = not self.pci or any(not node.optional for node in self.nodes)
        return self.property_names() | {"id"} | ({"path", "host_path"} if has_node else set())


class PreStart(NamedTuple):
    """A command before a container starts; without one there is nothing to do. timeout: seconds, for all devices."""

    command: tuple[str, ...] = ()
    timeout: int = 10


class HealthChecks(NamedTuple):
    """What is asked beside device nodes and CDI names. timeout and period (of the command): seconds."""

    open: bool = False
    command: tuple[str, ...] = ()
    timeout: int = 5
    period: int = 30


class Resource(NamedTuple):
    """An extended resource and the devices that this node has of it, in the order of the declaration."""

    name: str
    cdi_kind: str
    devices: tuple[Device, ...]
    env: Mapping[str, str]
    container_edits: ContainerEdits
    replicas: int
    discover: Discovery = Discovery()
    #: Most that a container may ask for; None for no limit.
    container_limit: int | None = None
    #: ``packed``, ``distributed`` or ``numa``; None leaves the choice to the kubelet.
    preference: str | None = None
    pre_start: PreStart = PreStart()
    #: ``cdi`` or ``device_nodes``.
    injection: str = "cdi"
    annotations: Mapping[str, str] = MappingProxyType({})
    health: HealthChecks = HealthChecks()
    #: Whether nobody but the plugin can write the kind's spec; a setting of all resources (``cdi_owner``).
    cdi_by_plugin: bool = False

    def cdi_name(self, device: Device) -> str | None:
        """The device's fully qualified CDI name; None where CDI has nothing to do for it."""
        if self.injection != "cdi":
            return None
        return qualified_cdi_name(self.cdi_kind, device.id) if self.edits(device) else None

    def edits(self, device: Device) -> bool:
        """Whether a container that gets the device gets more than Allocate's variables and annotations."""
        return device.has_edits or self.container_edits != ContainerEdits()

    @property
    def uses_cdi(self) -> bool:
        """Whether any device of it is given by CDI, or may be once it is discovered."""
        return self.dynamic_cdi or any(self.cdi_name(device) for device in self.devices)

    @property
    def dynamic_cdi(self) -> bool:
        """Whether the plugin writes the kind's spec while it runs, declared devices too: a kind has one owner.

        A kind with a declared node that is a link on the node it writes beside the role (``cdi.writer``).
        """
        if self.injection != "cdi":
            return False
        return bool(self.discover.methods) or (self.cdi_by_plugin and any(map(self.edits, self.devices)))

    def kubelet_ids(self, device: Device) -> list[str]:
        """The ids under which the kubelet lists the device: one for each share."""
        if self.replicas == 1:
            return [device.id]
        return ["%s%s%d" % (device.id, SHARE, share) for share in range(self.replicas)]

    @property
    def share_length(self) -> int:
        """Characters that the kubelet's ids have beyond a device's, at the most."""
        return 0 if self.replicas == 1 else len("%s%d" % (SHARE, self.replicas - 1))

    def devices_of(self, kubelet_ids: Sequence[str]) -> list[Device]:
        """The devices behind kubelet ids (in any order), each once, in the order of the declaration.

        Raises KeyError with the first id that is no device of this resource.
        """
        places = self.places()
        return [self.devices[place] for place in sorted({places[kubelet_id] for kubelet_id in kubelet_ids})]

    def places(self) -> dict[str, int]:
        """Each kubelet id with the place of its device."""
        return {
            kubelet_id: place for place, device in enumerate(self.devices) for kubelet_id in self.kubelet_ids(device)
        }

    def edits_of(self, devices: Sequence[Device]) -> list[ContainerEdits]:
        """The edits for a container that gets these devices: first those of the kind, if any device is edited."""
        edited = [device for device in devices if self.edits(device)]
        return [self.container_edits, *(device.container_edits for device in edited)] if edited else []

    def placed_devices(self, where: str) -> Iterator[tuple[str, Device]]:
        """Each declared device with the path of its field. where: that of the resource."""
        for position, device in enumerate(self.devices):
            yield element(where + ".devices", position, device.id), device


class Configuration(NamedTuple):
    """What the plugin runs with."""

    resources: tuple[Resource, ...]
    kubelet_device_plugin_dir: str
    log_level: str
    log_format: str
    http_address: str
    dynamic_cdi_dir: str
    kubelet_root_dir: str
    registration: str
    recovery_delay: int
    cdi_spec_dirs: tuple[str, ...]
    #: ``role`` or ``plugin``.
    cdi_owner: str = "role"
