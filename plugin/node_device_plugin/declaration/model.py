"""A parsed declaration: immutable data, with the names and numbers that follow from the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Callable, NamedTuple, Union

from ..support.directory_names import with_added
from .names import qualified_cdi_name
from .patterns import placeholders, wildcards
from .problems import element

#: The kubelet's APIs (``Resource.api``): of device plugins, and of DRA drivers.
DEVICE_PLUGIN, DRA = "device_plugin", "dra"
#: Types of mounts that do not name a file system.
BIND = (None, "bind", "none")


class Version(NamedTuple):
    """A version of Semantic Versioning 2.0.0, as an attribute's value."""

    text: str


#: A value of a device's attribute (k8s.io/api/resource/v1, DeviceAttribute).
AttributeValue = Union[bool, int, str, Version]


class DraDriver(NamedTuple):
    """The DRA driver of this node. name: a DNS subdomain of at most 63 characters.

    node: the node's name in the cluster. kubeconfig: path of the file for the API server; empty in a pod, which uses
    its service account.
    """

    name: str = "nodedevices.kubernetes"
    node: str = ""
    kubeconfig: str = "/etc/kubernetes/kubelet.conf"


class DeviceNode(NamedTuple):
    """A device node for a container. path: inside the container. host_path: on the host."""

    path: str
    host_path: str
    permissions: str
    #: Only a declaration may contain a name; the roles replace the name with the numeric id on the node.
    uid: int | str | None
    gid: int | str | None
    #: Permission bits.
    mode: int | None
    #: The expected type (``c`` or ``b``) and numbers of the node on the host; None for any.
    type: str | None = None
    major: int | None = None
    minor: int | None = None
    #: The placeholder whose value is ``path``; None if the node has no placeholder.
    placeholder: str | None = None


class Mount(NamedTuple):
    """A mount that a container gets."""

    host_path: str
    container_path: str
    type: str | None
    options: tuple[str, ...]

    @property
    def is_bind(self) -> bool:
        """Whether this is a bind mount of a host path. With option (r)bind the type does not matter (mount(8))."""
        return self.type in BIND or bool({"bind", "rbind"}.intersection(self.options))

    @property
    def has_source(self) -> bool:
        """Whether the mount needs an existing path of the host."""
        return self.is_bind and self.host_path.startswith("/")


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
    """Attributes that discovery found for a device on a bus; None if not applicable or unknown.

    pci_address: such as ``0000:3b:00.0``. pcie_root: the root of the PCI devices on the way to the
    device, such as ``pci0000:3a``. usb_vendor, usb_product: four hexadecimal digits in lower case.
    usb_port: the controller and the ports from there, such as ``0000:00:14.0-1.2``. driver: the
    driver that the kernel bound. subsystem: such as ``usb``. The NUMA node is a field of Device,
    because a declaration can set it.
    """

    pci_address: str | None = None
    pcie_root: str | None = None
    usb_vendor: str | None = None
    usb_product: str | None = None
    usb_serial: str | None = None
    usb_port: str | None = None
    driver: str | None = None
    subsystem: str | None = None

    def known(self) -> dict[str, str]:
        """The known attributes, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


class Device(NamedTuple):
    """One device of a node."""

    id: str
    nodes: tuple[DeviceNode, ...]
    container_edits: ContainerEdits
    properties: Mapping[str, str]
    required: bool
    #: NUMA node closest to the device; None for none or unknown.
    numa_node: int | None = None
    attributes: Attributes = Attributes()
    #: Fully qualified names of devices in other programs' CDI specs.
    cdi_devices: tuple[str, ...] = ()
    #: The device nodes of these specs; set only by a caller that has read the specs.
    foreign_nodes: tuple[DeviceNode, ...] = ()
    #: What a discovered device is as a whole, such as a PCI address; empty if its nodes identify it.
    identity: str = ""
    #: Attributes of this device that the declaration sets, for DRA.
    dra_attributes: Mapping[str, AttributeValue] = MappingProxyType({})

    @property
    def has_edits(self) -> bool:
        """Whether the device has device nodes or container edits of its own."""
        return bool(self.nodes) or self.container_edits != ContainerEdits()

    @property
    def host_paths(self) -> frozenset[str]:
        """The declared host paths of the device's nodes and bind mounts."""
        mounts = (mount.host_path for mount in self.container_edits.mounts if mount.is_bind)
        return frozenset([*(node.host_path for node in self.nodes), *mounts])

    def template_values(self) -> dict[str, str]:
        """The values of the placeholders in ``env`` and ``annotations``, except {index}."""
        values = {"id": self.id, **self.properties}
        if self.nodes:
            values.update(path=self.nodes[0].path, host_path=self.nodes[0].host_path)
        values.update((node.placeholder, node.path) for node in self.nodes if node.placeholder)
        return values


class UsbSelector(NamedTuple):
    """Selects USB devices. vendor, product: four hexadecimal digits in lower case, or None for any.

    serial: pattern of the serial number, or None for any. driver: pattern of an interface's driver, or None.
    """

    vendor: str | None = None
    product: str | None = None
    serial: str | None = None
    driver: str | None = None


class PciSelector(NamedTuple):
    """Selects PCI devices. vendor, device: four hexadecimal digits in lower case, or None for any.

    class_code: the first two, four or all six hexadecimal digits, or None for any. driver: pattern of the driver that
    the kernel bound, or None.
    """

    vendor: str | None = None
    device: str | None = None
    class_code: str | None = None
    driver: str | None = None


class UdevSelector(NamedTuple):
    """Selects device nodes. subsystem: such as video4linux. properties: patterns of udev properties, by name."""

    subsystem: str
    properties: Mapping[str, str] = MappingProxyType({})


class CdiSelector(NamedTuple):
    """Selects devices of a kind in other programs' CDI specs, by patterns of device names.

    match: if empty, every name matches. exclude: names that match are left out.
    """

    kind: str = ""
    match: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether the selector is in use; a resource without the key ``cdi`` has an empty kind."""
        return bool(self.kind)


class GroupedNode(NamedTuple):
    """A device node that belongs to a discovered device; ``path`` is a pattern with placeholders.

    container_path: template of the node's path in a container; None means the path on the host. placeholder: see
    DeviceNode; only one node may then match.
    """

    path: str
    optional: bool
    container_path: str | None = None
    placeholder: str | None = None

    @property
    def is_common(self) -> bool:
        """Whether every device gets the same node."""
        return not wildcards(self.path) and not placeholders(self.path)


#: The keys of ``discover`` that are methods; devices.discovery has a DiscoveryMethod for each.
DISCOVERY_METHODS = ("paths", "usb", "pci", "vfio", "udev", "cdi")
#: Methods whose devices are nodes. The other methods find devices that have nodes, or have none.
NODE_METHODS = frozenset({"paths", "udev"})
#: Methods whose devices may have no node, or several in any order.
_WITHOUT_FIRST_NODE = frozenset({"usb", "pci", "cdi"})
#: The properties of a method's devices. usb: serial is empty for none, port is the name in sysfs (1-1.2), busnum and
#: devnum name the node in /dev/bus/usb. pci: address is 0000:3b:00.0, and iommu_group is empty for none. vfio: those of
#: the first matching function, and addresses of all in the group that match. cdi: pci_address is empty if unknown.
_PROPERTIES = {
    "usb": frozenset({"vendor", "product", "serial", "port", "busnum", "devnum"}),
    "pci": frozenset({"address", "vendor", "device", "class_code", "iommu_group"}),
    "vfio": frozenset({"address", "addresses", "vendor", "device", "class_code", "iommu_group"}),
    "cdi": frozenset({"kind", "name", "pci_address"}),
}


class Discovery(NamedTuple):
    """How the running plugin finds devices. Without a method, the plugin finds no devices."""

    paths: tuple[str, ...] = ()
    usb: tuple[UsbSelector, ...] = ()
    pci: tuple[PciSelector, ...] = ()
    vfio: tuple[PciSelector, ...] = ()
    udev: tuple[UdevSelector, ...] = ()
    cdi: CdiSelector = CdiSelector()
    nodes: tuple[GroupedNode, ...] = ()
    exclude: tuple[str, ...] = ()
    permissions: str = "rw"
    uid: int | str | None = None
    gid: int | str | None = None
    mode: int | None = None
    #: For ``paths``: template of the matching node's path in a container; None means the host's path.
    container_path: str | None = None
    #: Text before the id of each device.
    id_prefix: str = ""
    #: For ``usb``: ``serial``, or ``port`` if any matching device at a port is the same device.
    identify_by: str = "serial"

    @property
    def methods(self) -> tuple[str, ...]:
        """The keys of the methods in use."""
        return tuple(name for name in DISCOVERY_METHODS if getattr(self, name))

    def property_names(self) -> frozenset[str]:
        """The properties that every discovered device has, for all methods in use."""
        sets = [frozenset("match%d" % (n + 1) for n in range(wildcards(pattern))) for pattern in self.paths]
        sets += [frozenset(selector.properties) for selector in self.udev]
        sets += [_PROPERTIES[name] for name in self.methods if name in _PROPERTIES]
        return frozenset.intersection(*sets) if sets else frozenset()

    def template_names(self) -> frozenset[str]:
        """The placeholders in ``env`` that every discovered device supports, except {index}.

        A device on a bus or of a CDI spec may have no node, or several: then only ``nodes`` decides which is the first.
        """
        has_node = _WITHOUT_FIRST_NODE.isdisjoint(self.methods) or any(not node.optional for node in self.nodes)
        of_nodes = {node.placeholder for node in self.nodes if node.placeholder and not node.optional}
        return self.property_names() | {"id", *of_nodes} | ({"path", "host_path"} if has_node else set())


class PreStart(NamedTuple):
    """The command to run before a container starts, or empty. timeout: seconds for all devices."""

    command: tuple[str, ...] = ()
    timeout: int = 10


class HealthChecks(NamedTuple):
    """Health checks beyond nodes and CDI names. timeout and period of the command: seconds."""

    open: bool = False
    command: tuple[str, ...] = ()
    timeout: int = 5
    period: int = 30


class Resource(NamedTuple):
    """An extended resource and its devices on this node, in the order of the declaration."""

    name: str
    cdi_kind: str
    devices: tuple[Device, ...]
    env: Mapping[str, str]
    container_edits: ContainerEdits
    replicas: int
    discover: Discovery = Discovery()
    #: Maximum number of devices that a container may request; None for no limit.
    container_limit: int | None = None
    #: The number of devices, declared or discovered, that the node must have.
    min_devices: int = 0
    #: ``packed``, ``distributed`` or ``numa``; None leaves the choice to the kubelet.
    preference: str | None = None
    pre_start: PreStart = PreStart()
    #: ``cdi`` or ``device_nodes``.
    injection: str = "cdi"
    annotations: Mapping[str, str] = MappingProxyType({})
    #: Variables whose value joins the values of all devices of a container.
    joined_env: Mapping[str, str] = MappingProxyType({})
    health: HealthChecks = HealthChecks()
    #: Whether only the plugin can write the kind's spec; ``cdi_owner`` sets this for all resources.
    cdi_by_plugin: bool = False
    #: The kubelet's API that serves the resource on this node.
    api: str = DEVICE_PLUGIN
    #: Attributes of every device of the resource that the declaration sets, for DRA. A device's own attribute wins.
    dra_attributes: Mapping[str, AttributeValue] = MappingProxyType({})

    def cdi_name(self, device: Device) -> str | None:
        """The device's fully qualified name in our CDI spec; None if the spec omits the device."""
        if self.injection != "cdi":
            return None
        return qualified_cdi_name(self.cdi_kind, device.id) if self.edits(device) else None

    def cdi_names(self, *devices: Device) -> list[str]:
        """Every CDI name that a container gets for these devices: those of other programs' specs first.

        Our edits come last, so that our variables replace those of the other specs.
        """
        foreign = (name for device in devices for name in device.cdi_devices)
        own = filter(None, map(self.cdi_name, devices))
        return list(dict.fromkeys([*foreign, *own]))

    def edits(self, device: Device) -> bool:
        """Whether the device has device nodes or edits, or the resource has edits."""
        return device.has_edits or self.container_edits != ContainerEdits()

    @property
    def gives_anything(self) -> bool:
        """Whether a container gets anything with a device that has nothing of its own."""
        of_all = (self.env, self.joined_env, self.annotations, self.pre_start.command)
        return any(of_all) or self.container_edits != ContainerEdits()

    @property
    def uses_cdi(self) -> bool:
        """Whether a device of the resource uses CDI, or a device discovered later may use CDI."""
        return bool(self.has_spec or self.discover.cdi or any(device.cdi_devices for device in self.devices))

    @property
    def has_spec(self) -> bool:
        """Whether the resource has its own CDI spec, or may get one after a later discovery."""
        return self.dynamic_cdi or any(self.cdi_name(device) for device in self.devices)

    @property
    def dynamic_cdi(self) -> bool:
        """Whether the plugin, not the role, owns the kind's spec, including declared devices.

        If a declared device node is a link on the host, the plugin writes the kind in addition to
        the role (``cdi.writer``).
        """
        if self.injection != "cdi":
            return False
        # A device that another program's spec defines has nothing in ours, unless the resource adds nodes or edits.
        has_more = self.discover.nodes or self.container_edits != ContainerEdits()
        if any(name != "cdi" or has_more for name in self.discover.methods):
            return True
        return self.cdi_by_plugin and any(map(self.edits, self.devices))

    def edits_of(self, devices: Sequence[Device]) -> list[ContainerEdits]:
        """The edits for a container that gets these devices: the resource's, then each device's."""
        edited = [device for device in devices if self.edits(device)]
        return [self.container_edits, *(device.container_edits for device in edited)] if edited else []

    def with_nodes(self, change: Callable[[Device, DeviceNode], DeviceNode]) -> Resource:
        """The resource with other device nodes. change: gives what replaces a device's node."""
        devices = (
            device._replace(nodes=tuple(change(device, node) for node in device.nodes)) for device in self.devices
        )
        return self._replace(devices=tuple(devices))

    def placed_devices(self, where: str) -> Iterator[tuple[str, Device]]:
        """Each declared device with its field's path. where: the path of the resource's field."""
        for position, device in enumerate(self.devices):
            yield element(where + ".devices", position, device.id), device


class Configuration(NamedTuple):
    """The plugin's configuration."""

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
    dra: DraDriver = DraDriver()

    @property
    def needs_cdi(self) -> bool:
        """Whether containers get devices by CDI. True without resources, so that a role alone enables CDI."""
        return not self.resources or any(resource.injection == "cdi" for resource in self.resources)

    @property
    def uses_device_plugin(self) -> bool:
        """Whether the device plugin API serves any resource."""
        return any(resource.api == DEVICE_PLUGIN for resource in self.resources)

    @property
    def uses_dra(self) -> bool:
        """Whether a DRA driver serves any resource."""
        return any(resource.api == DRA for resource in self.resources)

    @property
    def checked_spec_dirs(self) -> tuple[str, ...]:
        """Where the runtime reads CDI specs; empty if the plugin does not check CDI names."""
        return with_added(self.cdi_spec_dirs, self.dynamic_cdi_dir) if self.cdi_spec_dirs else ()
