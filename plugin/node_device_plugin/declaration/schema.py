"""The schema: every key that a declaration or a plugin configuration may have, with its meaning.

This schema is the source of validation, defaults, the roles' argument_specs and the reference in
docs/.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, TypeVar

from . import dra_api, model, shorthands
from . import fields as rules
from .names import (
    foreign_cdi_name_problem,
    foreign_kind_problem,
    node_name_problem,
    placeholder_problem,
    resource_name_problem,
)
from .patterns import pattern_problem
from .problems import Problem, kind, shown

A = TypeVar("A")
T = TypeVar("T")

#: Each type with its Python types and its name in messages.
_TYPES: dict[str, tuple[Any, str]] = {
    "str": (str, "text"),
    "int": (int, "a whole number"),
    "raw": ((int, str), "a number or a name"),
    "bool": (bool, "true or false"),
    "list": ((list, tuple), "a list"),
    "dict": (dict, "a mapping"),
    "attribute": ((bool, int, str, dict), 'true or false, a whole number, text, or {version: "1.2.3"}'),
}

#: To check that a quantity is an integer, the API server reads its thousandths as a signed 64-bit
#: number (ValidateResourceQuantityValue). Therefore the API server reports 10**18 as not an
#: integer.
LARGEST_CAPACITY = (2**63 - 1) // 1000
#: Seconds. The limit is one day, because a longer time is a mistake.
LONGEST_TIME = 86400
#: The largest device numbers in Linux: 12 and 20 bits (include/linux/kdev_t.h).
LARGEST_MAJOR, LARGEST_MINOR = 2**12 - 1, 2**20 - 1
#: A NUMA node's number is an int32 in Linux.
_LARGEST_NUMA_NODE = 2**31 - 1
#: Seconds. The kubelet allows PreStartContainer 30 seconds, and the response needs time, too.
_LONGEST_PRE_START = 25


class Field(NamedTuple):
    """One key: its type (a type of Ansible's argument specs; raw is a number or a name) and its meaning.

    The type ``attribute`` is an attribute's value: true, false, a number, text or a version.

    fields: the keys of a dict (or of each element of a list of dicts); None allows any key.
    elements: the type of a list's elements, or of the values of a dict with any key.
    rule: returns the problem with a value (or list element, or value of a dict with any key) of the right type, or None
    or empty.
    read: converts a value (or list element). A dict with known keys becomes keyword arguments.
    shorthand: the text that may stand for an element of a list of dicts.
    attribute: the name in the model, if it differs.
    """

    type: str
    description: str
    required: bool = False
    default: Any = None
    choices: tuple[str, ...] | None = None
    elements: str | None = None
    fields: Mapping[str, Field] | None = None
    minimum: int | None = None
    maximum: int | None = None
    rule: rules.Rule | None = None
    read: Callable[..., Any] | None = None
    shorthand: shorthands.Shorthand | None = None
    attribute: str = ""


def text(description: str, **others: Any) -> Field:
    """A text."""
    return Field("str", description, **others)


def texts(description: str, rule: rules.Rule | None = None) -> Field:
    """A list of text."""
    return Field("list", description, default=[], elements="str", rule=rule)


def named_texts(description: str, rule: rules.Rule | None = None) -> Field:
    """A mapping with any keys and text values."""
    return Field("dict", description, default={}, elements="str", rule=rule)


def _mappings(
    read: Callable[..., Any],
    fields: Mapping[str, Field],
    description: str,
    shorthand: shorthands.Shorthand | None = None,
) -> Field:
    """A list of mappings with these keys."""
    return Field("list", description, default=[], elements="dict", fields=fields, read=read, shorthand=shorthand)


def _mapping(read: Callable[..., Any], fields: Mapping[str, Field], description: str) -> Field:
    """A mapping with these keys."""
    return Field("dict", description, default={}, fields=fields, read=read)


def _number(description: str, minimum: int = 0, maximum: int | None = None, default: int | None = None) -> Field:
    """A whole number."""
    return Field("int", description, default=default, minimum=minimum, maximum=maximum)


def _account(description: str) -> Field:
    """The number or name of a user or group."""
    return Field("raw", description, minimum=0, maximum=rules.LARGEST_ID, rule=rules.account)


def _device_node(path: str, host_path: str | None, **others: Any) -> model.DeviceNode:
    return model.DeviceNode(path, host_path or path, **others)


def _resource(name: str, cdi_kind: str | None, api: str | None, **others: Any) -> model.Resource:
    """A resource from its keys; without a cdi_kind, the resource's name is the kind. ``parse`` fills an empty api."""
    return model.Resource(name, cdi_kind or name, api=api or "", **others)


def _bus_id(whose: str, example: str) -> Field:
    """A vendor, product or device id of a bus."""
    description = f'{whose} id: four hexadecimal digits, e.g. "{example}". If left out, any id matches.'
    return text(description, rule=rules.bus_id, read=str.lower)


_PLACEHOLDER = text(
    "Name of a placeholder for env, joined_env and annotations, e.g. tty for {tty}. Its value is the path of this node "
    "inside the container.",
    rule=placeholder_problem,
)

#: The value of an attribute that is a version.
VERSION: dict[str, Field] = {
    "version": text(
        'A version of Semantic Versioning 2.0.0, e.g. "1.2.3".',
        required=True,
        rule=dra_api.version_problem,
        attribute="text",
    ),
}
_VERSION = Field("dict", "", fields=VERSION, read=model.Version)


def _attributes(whose: str) -> Field:
    """Attributes for DRA."""
    return Field(
        "dict",
        f"Attributes of {whose} for selectors of ResourceClaims, by name or DOMAIN/name: true, false, a whole number, "
        'text of at most 64 bytes, or {version: "1.2.3"}. They apply only with api: dra.',
        default={},
        elements="attribute",
        rule=dra_api.value_problem,
        attribute="dra_attributes",
    )


DEVICE_NODE: dict[str, Field] = {
    "path": text("Absolute path of the device node inside the container.", required=True, rule=rules.node_path),
    "host_path": text(
        "Absolute path of the device node on the host. The default is the value of path. Symbolic links are followed.",
        rule=rules.host_node_path,
    ),
    "permissions": text(
        "What the container may do with the device node: any of r (read), w (write) and m (mknod).",
        default="rw",
        rule=rules.permissions,
    ),
    "uid": _account(
        "Owner of the device node inside the container: a number, or the name of a user on the node, which the roles "
        "replace by its number. The default is the container's own user."
    ),
    "gid": _account(
        "Group of the device node inside the container: a number, or the name of a group on the node, which the roles "
        "replace by its number. The default is the container's own group."
    ),
    "mode": text(
        'Octal file mode of the device node inside the container, e.g. "0660". If left out, the runtime uses either '
        "0666 or the mode on the host.",
        rule=rules.mode,
        read=functools.partial(int, base=8),
    ),
    "type": text(
        "Required type of the host's device node: c (character) or b (block). If left out, both types are accepted.",
        choices=("c", "b"),
    ),
    "major": _number(
        "Required major number of the host's device node. If left out, any number is accepted.", maximum=LARGEST_MAJOR
    ),
    "minor": _number(
        "Required minor number of the host's device node. If left out, any number is accepted.", maximum=LARGEST_MINOR
    ),
    "placeholder": _PLACEHOLDER,
}

MOUNT: dict[str, Field] = {
    "host_path": text(
        "Source of the mount: an absolute path on the host, or a name such as tmpfs.",
        required=True,
        rule=rules.not_empty,
    ),
    "container_path": text("Absolute path of the mount inside the container.", required=True, rule=rules.mount_path),
    "type": text("File system type, e.g. tmpfs. If left out, the mount is a bind mount.", rule=rules.not_empty),
    "options": texts(
        "Mount options, e.g. [ro, nosuid, nodev, bind]. ro does not apply to file systems that are mounted below the "
        "source: add bind to leave them out, or rro to make them read-only, too.",
        rule=rules.not_empty,
    ),
}

HOOK: dict[str, Field] = {
    "name": text(
        "Point of the container's lifecycle at which the runtime runs the hook, as the OCI runtime specification "
        "names it.",
        required=True,
        choices=("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"),
    ),
    "path": text("Absolute path of the hook's program.", required=True, rule=rules.absolute),
    "args": texts("Arguments of the program. The first argument is the program's own name."),
    "env": texts("Environment of the program, as NAME=value.", rule=rules.assignment),
    "timeout": _number("Time limit of the hook in seconds.", minimum=1, maximum=LONGEST_TIME),
}

CONTAINER_EDITS: dict[str, Field] = {
    "env": texts(
        "Environment variables, as NAME=value. Values are literal: to use placeholders, set env of the resource.",
        rule=rules.assignment,
    ),
    "mounts": _mappings(model.Mount, MOUNT, "Mounts that the container gets.", shorthands.MOUNT),
    "hooks": _mappings(
        model.Hook,
        HOOK,
        "OCI hooks. A resource's hooks run once per container, even if the container gets several of its devices. "
        "Exception: they run once per device if a device has neither nodes nor edits, and the resource's only edits "
        "are hooks.",
    ),
    "additional_gids": Field(
        "list",
        "Supplementary group ids of the container's process; 0 is not allowed.",
        default=[],
        elements="int",
        rule=rules.group,
    ),
}

DEVICE: dict[str, Field] = {
    "id": text(
        "Name of the device, unique among all devices of the node. If a spec of this project contains the device, this "
        "is also its CDI device name.",
        required=True,
        rule=rules.device_id,
    ),
    "nodes": _mappings(_device_node, DEVICE_NODE, "Device nodes that a container gets.", shorthands.NODE),
    "container_edits": _mapping(model.ContainerEdits, CONTAINER_EDITS, "CDI edits that apply only to this device."),
    "cdi_devices": texts(
        "Fully qualified names of devices in other programs' CDI specs, e.g. nvidia.com/gpu=0. A container that gets "
        "the device gets these as well.",
        rule=foreign_cdi_name_problem,
    ),
    "properties": named_texts(
        "Values for placeholders in env, joined_env and annotations. Unlike a device's id, a value may be any text."
    ),
    "required": Field(
        "bool",
        "If true, provisioning fails while a device node is missing. If false, the plugin lists the device only after "
        "its first successful health check.",
        default=True,
    ),
    "numa_node": _number(
        "NUMA node closest to the device, for the kubelet's Topology Manager.", maximum=_LARGEST_NUMA_NODE
    ),
    "attributes": _attributes("the device, beside and before the resource's,"),
}


def _driver(whose: str) -> Field:
    """The driver of a device on a bus."""
    return text(
        f"Name or pattern of the driver that the kernel bound to {whose}. If left out, a device matches with any "
        "driver, or without one.",
        rule=rules.driver,
    )


USB_SELECTOR: dict[str, Field] = {
    "vendor": _bus_id("Vendor", "0403"),
    "product": _bus_id("Product", "6001"),
    "serial": text(
        "Pattern of the serial number, e.g. A50*. If left out, a device matches with any serial number, or without "
        "one.",
        rule=pattern_problem,
    ),
    "driver": _driver("at least one of the device's interfaces, e.g. ftdi_sio"),
}

PCI_SELECTOR: dict[str, Field] = {
    "vendor": _bus_id("Vendor", "10de"),
    "device": _bus_id("Device", "1eb8"),
    "class_code": text(
        'First two, four or all six hexadecimal digits of the class code, e.g. "0302". If left out, any class matches.',
        rule=rules.class_code,
        read=str.lower,
    ),
    "driver": _driver("the device, e.g. vfio-pci"),
}

UDEV_SELECTOR: dict[str, Field] = {
    "subsystem": text("Subsystem of the device nodes, e.g. video4linux.", required=True, rule=rules.subsystem),
    "properties": named_texts(
        "Patterns of properties, by name, e.g. ID_SERIAL: Logitech*. A device must have all of them. The names and "
        "values are those that udevadm info prints after E:, except links, tags and USEC_INITIALIZED. No wildcard "
        "matches a '/'.",
        rule=pattern_problem,
    ),
}

CDI_SELECTOR: dict[str, Field] = {
    "kind": text(
        "CDI kind (vendor/class) of another program's specs, e.g. nvidia.com/gpu.",
        required=True,
        rule=foreign_kind_problem,
    ),
    "match": texts("Patterns of device names. If left out, every name matches.", rule=rules.exclusion),
    "exclude": texts("Patterns of device names to leave out.", rule=rules.exclusion),
}

GROUPED_NODE: dict[str, Field] = {
    "path": text(
        "Absolute path with placeholders ({match1}, {address} …) and wildcards. With paths, udev and cdi, the plugin "
        "adds every existing node that matches. With usb, pci and vfio, a path with a wildcard matches only nodes of "
        "the device itself, and a path without one adds any existing node.",
        required=True,
        rule=rules.path_template,
    ),
    "optional": Field("bool", "Whether the plugin lists a device without this node.", default=False),
    "container_path": text(
        "Absolute path of the node inside a container. The default is the path on the host. Accepts the same "
        "placeholders as path, and {name} for the last part of the path on the host. If several nodes have the same "
        "path inside a container, the container gets only the first node.",
        rule=rules.container_path,
    ),
    "placeholder": _PLACEHOLDER._replace(
        description=_PLACEHOLDER.description + " A device with several nodes that match is left out."
    ),
}

#: The keys for access, of one device node or of all discovered ones.
_ACCESS: dict[str, Field] = {name: DEVICE_NODE[name] for name in ("permissions", "uid", "gid", "mode")}

DISCOVER: dict[str, Field] = {
    "paths": texts(
        "Patterns of device nodes, or of links to device nodes. Each match is a device, named after the matching "
        "path. The properties match1, match2 … contain the texts that the wildcards matched.",
        rule=rules.path_pattern,
    ),
    "usb": _mappings(
        model.UsbSelector,
        USB_SELECTOR,
        "Selectors of USB devices; a device must match at least one. A device is named after vendor, product and "
        "serial number. The port is added if the serial number is missing or shared. With identify_by: port, a device "
        "is named after its port alone. Properties: vendor, product, serial, port, busnum, devnum.",
    ),
    "pci": _mappings(
        model.PciSelector,
        PCI_SELECTOR,
        "Selectors of PCI devices; a device must match at least one. A device is named after its address and gets its "
        "NUMA node. Properties: address, vendor, device, class_code, iommu_group.",
    ),
    "vfio": _mappings(
        model.PciSelector,
        PCI_SELECTOR,
        "Selectors of PCI functions for VFIO. Each IOMMU group with a matching function is a device, with "
        "/dev/vfio/<group> and /dev/vfio/vfio. The device is named after the lowest address of these functions. The "
        "plugin lists the group only if VFIO can use the group. Properties: address, addresses (of all matching "
        "functions of the group, separated by commas), vendor, device, class_code, iommu_group.",
    ),
    "udev": _mappings(
        model.UdevSelector,
        UDEV_SELECTOR,
        "Selectors of device nodes by udev properties; a device node must match at least one. Each matching node is a "
        "device, named after a by-id link, else a by-path link, else its node. Properties: each property that "
        "every selector names.",
    ),
    "cdi": Field(
        "dict",
        "Devices of a kind in other programs' CDI specs, in the directories of cdi_spec_dirs. A container gets the "
        "device by its CDI name. Names with the same edits are one device, named after its UUID if it has one. A "
        "device that consists of several others (all) is left out, and so is a GPU beside its MIG parts. "
        "Properties: kind, name, pci_address.",
        fields=CDI_SELECTOR,
        read=model.CdiSelector,
    ),
    "nodes": _mappings(
        model.GroupedNode,
        GROUPED_NODE,
        "Nodes of each device. With paths, udev and cdi, they are added to what the device has. With usb, pci and "
        "vfio, they replace the default, which is every node of the device. The plugin lists a device only if all "
        "nodes exist that are not optional.",
        shorthands.NODE,
    ),
    "container_path": text(
        "For paths and udev: absolute path of the matching node inside a container. The default is the matching path. "
        "Placeholders are the device's properties, and {name} for the last part of the matching path. A path without a "
        "placeholder requires container_limit: 1.",
        rule=rules.container_path,
    ),
    "exclude": texts(
        "Patterns of devices to exclude. With paths, a pattern may match the path or the target of a link. With "
        "udev, it may match the device node, or its by-id or by-path link. With usb, pci and vfio, it may match a "
        "device node, the USB port or the PCI address (with vfio, of any function in the IOMMU group). With cdi, it "
        "may match the name of a device. A USB port is 1-1.2, or 0000:00:14.0-1.2 with its controller.",
        rule=rules.exclusion,
    ),
    "id_prefix": text(
        "Text before the id of each discovered device, e.g. rack- for rack-ttyUSB0. Set it if devices of another "
        "resource have the same ids.",
        default="",
        rule=rules.id_prefix,
    ),
    "identify_by": text(
        "What a USB device keeps while it stays the same device. With serial, these are vendor, product and serial "
        "number. With port, a device that matches any selector is the same device as long as it is at the same port. "
        "Set port if a device changes its ids, for example when its firmware is loaded.",
        default="serial",
        choices=("serial", "port"),
    ),
    **_ACCESS,
}

PRE_START: dict[str, Field] = {
    "command": texts(
        "Absolute path of the program and its arguments. The program's environment has RESOURCE_NAME, DEVICE_ID, "
        "DEVICE_PATH (the first node's path on the host) and DEVICE_PROPERTY_<NAME> for each property. For a "
        "discovered device, the environment also has, as far as known, DEVICE_PCI_ADDRESS, DEVICE_PCIE_ROOT, "
        "DEVICE_USB_VENDOR, DEVICE_USB_PRODUCT, DEVICE_USB_SERIAL, DEVICE_USB_PORT, DEVICE_DRIVER and DEVICE_SUBSYSTEM."
    ),
    "timeout": _number(
        "Time limit in seconds for all devices of a container together, at most 25.",
        minimum=1,
        maximum=_LONGEST_PRE_START,
        default=10,
    ),
}

HEALTH: dict[str, Field] = {
    "open": Field(
        "bool",
        "Whether every scan opens each device node as a container would. Enable this only if opening does not disturb "
        "the device: some devices reset, start or lock. An unprivileged pod cannot open device nodes, so leave this "
        "off there.",
        default=False,
    ),
    "command": texts(
        "Absolute path of a program and its arguments. Exit code 0 means that the device is healthy. Otherwise, the "
        "device is unhealthy, and the last line on stderr is the reason. The program's environment is the same as for "
        "pre_start."
    ),
    "timeout": _number("Time limit of the command in seconds.", minimum=1, maximum=LONGEST_TIME, default=5),
    "period": _number(
        "Seconds between two runs of the command for a device.", minimum=1, maximum=LONGEST_TIME, default=30
    ),
}

_APIS = (model.DEVICE_PLUGIN, model.DRA)

RESOURCE: dict[str, Field] = {
    "name": text(
        "Name of the extended resource, e.g. devices.example.com/serial.", required=True, rule=resource_name_problem
    ),
    "devices": _mappings(
        model.Device,
        DEVICE,
        "Declared devices of this node. If a resource has no devices, the plugin registers it with an empty list.",
        shorthands.DEVICE,
    ),
    "discover": _mapping(
        model.Discovery,
        DISCOVER,
        "How the plugin finds more devices while it runs. If the kind needs a CDI spec, the plugin then writes it, in "
        "dynamic_cdi_dir.",
    ),
    "env": named_texts(
        "Environment variables that a container gets for each device. In names and values, {index} is the device's "
        "number within the container (with api: dra, within the claim), from 0. Values may also contain {id}, {path} "
        "and {host_path} (both of the first node), and the name of any property in braces."
    ),
    "container_edits": _mapping(
        model.ContainerEdits, CONTAINER_EDITS, "CDI edits for every container that gets a device of this resource."
    ),
    "joined_env": named_texts(
        "Environment variables that have one value for all devices of a container (with api: dra, of a claim): the "
        "devices' values, separated by commas, e.g. 0000:01:00.0,0000:02:00.0 for {address}. An empty value is left "
        "out, and a comma in a value is not escaped. Values accept the same placeholders as env."
    ),
    "cdi_kind": text("CDI kind (vendor/class). The default is the resource's name."),
    "replicas": _number("How many containers may share each device.", minimum=1, maximum=LARGEST_CAPACITY, default=1),
    "container_limit": _number(
        "How many devices a container may request. If a container requests more, the pod's admission fails.",
        minimum=1,
        maximum=LARGEST_CAPACITY,
    ),
    "min_devices": _number(
        "How many devices, declared or discovered, this node must have. If fewer of them are healthy, verification "
        "fails. A shared device counts once.",
        maximum=LARGEST_CAPACITY,
        default=0,
    ),
    "preference": text(
        "Which free shares the plugin recommends to the kubelet. packed: devices with the fewest free shares first, "
        "so that whole devices stay free for other pods. distributed: on as many devices as possible, the least used "
        "first. numa: on as few NUMA nodes as possible. If left out, the kubelet chooses.",
        choices=("packed", "distributed", "numa"),
    ),
    "pre_start": _mapping(
        model.PreStart,
        PRE_START,
        "Command that the plugin runs for each device before its container starts, e.g. to reset the device. If the "
        "command fails, the container does not start.",
    ),
    "health": _mapping(
        model.HealthChecks,
        HEALTH,
        "Additional health checks. The built-in checks: device nodes exist with the expected type and numbers. A CDI "
        "spec defines the CDI name. The sources of bind mounts and the hooks exist. In a pod, the plugin does not see "
        "these sources and hooks.",
    ),
    "injection": text(
        "How a container gets its devices. cdi: by CDI names. device_nodes: as device nodes, mounts and variables in "
        "the answer to Allocate, for runtimes and kubelets that do not support CDI.",
        default="cdi",
        choices=("cdi", "device_nodes"),
    ),
    "annotations": named_texts(
        "Annotations that the runtime gets for each device of a container. Values accept the same placeholders as env."
    ),
    "api": text(
        "The kubelet's API that serves the resource on this node. device_plugin: pods request the extended resource. "
        "dra: pods request devices by ResourceClaims. The default is the api of the plugin's configuration.",
        choices=_APIS,
    ),
    "attributes": _attributes("every device of the resource"),
}

#: A fixed capacity of a node, which no plugin serves.
STATIC_RESOURCE: dict[str, Field] = {
    "name": RESOURCE["name"],
    "capacity": Field(
        "int",
        "A fixed count with no device attached, such as licences. If you set capacity, you may set no other key "
        "except name. The role extended_resources patches the count into the node's status.",
        required=True,
        minimum=0,
        maximum=LARGEST_CAPACITY,
    ),
}

#: Every key that an element of a declaration may have.
DECLARED_RESOURCE: dict[str, Field] = {**RESOURCE, "capacity": STATIC_RESOURCE["capacity"]._replace(required=False)}

#: What the DRA driver of a node needs.
DRA: dict[str, Field] = {
    "driver": text(
        "Name of the driver, which ResourceSlices and DeviceClasses contain: a DNS name of at most 63 characters. Set "
        "the same name for all nodes of a cluster.",
        default=model.DraDriver().name,
        rule=dra_api.driver_problem,
        attribute="name",
    ),
    "node": text(
        "The node's name in the cluster. The role device_plugin sets it.",
        default=model.DraDriver().node,
        rule=node_name_problem,
    ),
    "kubeconfig": text(
        "Path of a kubeconfig file on the node, whose user needs the rights of a kubelet. The default is the path that "
        "kubeadm uses. The pods of a DaemonSet use their service account instead.",
        default=model.DraDriver().kubeconfig,
        rule=rules.directory,
    ),
}

CONFIGURATION: dict[str, Field] = {
    "resources": Field(
        "list", "Resources of this node.", required=True, elements="dict", fields=RESOURCE, read=_resource
    ),
    "kubelet_device_plugin_dir": text(
        "The kubelet's device plugin directory. The kubelet's --root-dir does not change this directory, but some "
        "distributions use a different one.",
        default="/var/lib/kubelet/device-plugins",
        rule=rules.device_plugin_directory,
    ),
    "cdi_spec_dirs": Field(
        "list",
        "Directories from which the runtime reads CDI specs; a later one takes precedence. If no valid spec there "
        "defines a device's CDI name, the device is unhealthy. An empty list disables this check.",
        default=["/etc/cdi", "/var/run/cdi"],
        elements="str",
        rule=rules.directory,
    ),
    "registration": text(
        "How the plugin registers. device_plugins: the plugin calls the kubelet in kubelet_device_plugin_dir. "
        "plugins_registry: the kubelet finds the plugin's sockets in the directory plugins_registry of "
        "kubelet_root_dir.",
        default="device_plugins",
        choices=("device_plugins", "plugins_registry"),
    ),
    "recovery_delay": _number(
        "If a device fails again within this many seconds after a recovery, it becomes healthy only after the same "
        "number of seconds without a failure. With 0, every recovery counts at once.",
        maximum=LONGEST_TIME,
        default=10,
    ),
    "log_level": text("Lowest level of log messages.", default="info", choices=("debug", "info", "warning", "error")),
    "log_format": text(
        "Format of log lines: text for people, or one JSON object per line for programs.",
        default="text",
        choices=("text", "json"),
    ),
    "http_address": text(
        "Address of /metrics, /healthz and /readyz: address:port, with an IPv6 address in brackets. If only the "
        "address part is empty (:port), the plugin listens on all addresses of the node. If the whole value is empty, "
        "the plugin does not listen.",
        default="127.0.0.1:9819",
        rule=rules.http_address_problem,
    ),
    "dynamic_cdi_dir": text(
        "Directory for the CDI specs that the plugin writes; the runtime must read this directory. The plugin writes "
        "specs of kinds with discovered devices or with declared nodes that are links, and of all kinds if cdi_owner "
        "is plugin. If you change the directory, old specs stay in the former one, until a reboot clears it or you "
        "run node-device-plugin cdi prune --dir FORMER.",
        default="/var/run/cdi",
        rule=rules.directory,
    ),
    "cdi_owner": text(
        "Who writes the CDI specs of kinds without discovered devices. role: the role cdi_specs, in /etc/cdi. plugin: "
        "the plugin, in dynamic_cdi_dir, for nodes that are reachable only through the Kubernetes API.",
        default="role",
        choices=("role", "plugin"),
    ),
    "kubelet_root_dir": text(
        "The kubelet's --root-dir. It contains plugins_registry and the pod-resources socket, which the plugin asks "
        "for the pods that hold devices.",
        default="/var/lib/kubelet",
        rule=rules.directory,
    ),
    "api": text("The api of each resource that sets none.", default=model.DEVICE_PLUGIN, choices=_APIS),
    "dra": _mapping(model.DraDriver, DRA, "The DRA driver, for resources with api: dra."),
}

#: The same, for settings of an inventory. Their resources are in variables of their own.
OF_INVENTORY: dict[str, Field] = dict(CONFIGURATION)
SETTINGS: dict[str, Field] = {name: field for name, field in CONFIGURATION.items() if name != "resources"}
#: The variables of an inventory with resources (a prefix) and with settings.
VARIABLES = ("node_devices_resources", "node_devices_settings")

#: Keys with their place: where a key is unknown, the keys that are known elsewhere, and what to do.
_ELSEWHERE: tuple[tuple[Mapping[str, Field], Mapping[str, Field], str], ...] = (
    (
        RESOURCE,
        STATIC_RESOURCE,
        "belongs to the role extended_resources, not to the plugin: declare the resource in node_devices_resources of "
        "the inventory, and remove it here",
    ),
    (STATIC_RESOURCE, RESOURCE, "cannot be combined with capacity, a count without devices: remove one of the two"),
    (
        RESOURCE,
        _ACCESS,
        "belongs to a device node: write it in devices[0].nodes[0], or in discover for discovered devices",
    ),
)
#: Minimum similarity of a misspelled variable, which "resources" does not have.
_NEARLY = 0.8
#: Rules of text that looks like a number, often with a leading 0.
_NUMERALS = (rules.mode, rules.bus_id, rules.class_code)
#: NUL, which no path may contain, and surrogates, which UTF-8 cannot encode. YAML and JSON can
#: write both as escapes.
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_IS_UNWRITABLE = "contains a NUL character or half of a surrogate pair: remove it"


def normalise(value: Any, field: Field, where: str, problems: list[Problem]) -> Any:
    """The converted ``value`` with all defaults. Adds a Problem to ``problems`` per invalid value.

    A list becomes a tuple. So that one call reports every problem, an invalid value becomes the
    field's default, or empty text if text is required.
    """
    types, named = _TYPES[field.type]
    if not isinstance(value, types) or (field.type in ("int", "raw") and isinstance(value, bool)):
        # Text, and what stands for a list or mapping of text, may be a secret.
        found = kind(value) if field.type in ("str", "list", "dict", "attribute") else shown(value)
        message = f"must be {named}, not {found}{_hint(field, value, where)}"
        problems.append(Problem(where, message))
        return _default(field)
    if field.type == "dict" and field.fields is not None:
        return _made(field, _normalise_keys(value, field.fields, where, problems))
    if field.type == "attribute" and isinstance(value, dict):
        return normalise(value, _VERSION, where, problems)
    if field.type == "dict":
        return _normalise_free_dict(value, field, where, problems)
    if field.type == "list":
        element = _once(_element, field)
        return tuple(
            _normalise_element(item, element, "%s[%d]" % (where, position), problems)
            for position, item in enumerate(value)
        )
    if isinstance(value, str):
        # Ansible stores tags in subclasses of str, but the result must be plain data.
        value = str.__str__(value)
    problem = _value_problem(value, field)
    if problem:
        problems.append(Problem(where, problem))
        return _default(field)
    return value if field.read is None else field.read(value)


def _element(field: Field) -> Field:
    """An element of a list."""
    default = "" if field.elements == "str" else None
    return field._replace(type=field.elements or "str", default=default, required=False)


def _normalise_element(item: Any, field: Field, where: str, problems: list[Problem]) -> Any:
    """An element of a list; ``normalise`` says the rest. Each problem with a shorthand shows the long form, too."""
    if field.shorthand is None or not isinstance(item, str):
        return normalise(item, field, where + _label(item), problems)
    text = str.__str__(item)
    if _UNWRITABLE.search(text):
        problems.append(Problem(where, _IS_UNWRITABLE))
        return _default(field)
    long, meaning = field.shorthand.long(text), field.shorthand.explain(text)
    if long is None:
        problems.append(Problem(where, f"must be a mapping or its short form, not {text!r}; for example, {meaning}"))
        return _default(field)
    found: list[Problem] = []
    result = normalise(long, field, where + _label(long), found)
    problems.extend(each._replace(message=f"{each.message} ({meaning})") for each in found)
    return result


def _value_problem(value: Any, field: Field) -> str | None:
    """The problem with a value of the right type; None or empty if the value is valid."""
    if field.choices is not None and value not in field.choices:
        return "must be one of {}, not {!r}".format(", ".join(field.choices), value)
    if field.minimum is not None and not isinstance(value, str) and value < field.minimum:
        return "must be at least %d, not %d" % (field.minimum, value)
    if field.maximum is not None and not isinstance(value, str) and value > field.maximum:
        return "must be at most %d, not %d" % (field.maximum, value)
    if isinstance(value, str) and _UNWRITABLE.search(value):
        return _IS_UNWRITABLE
    return field.rule(value) if field.rule is not None else None


def _normalise_keys(
    value: Mapping[Any, Any], fields: Mapping[str, Field], where: str, problems: list[Problem]
) -> dict[str, Any]:
    prefix = where + "." if where else ""
    for key in value:
        if key not in fields:
            name = key if key and isinstance(key, str) else shown(key)
            problems.append(Problem(prefix + name, _unknown_key(name, fields)))
    result = {}
    for key, field in fields.items():
        given = value.get(key)
        if given is not None:
            result[field.attribute or key] = normalise(given, field, prefix + key, problems)
            continue
        if field.required:
            message = f"is empty, but must be {_TYPES[field.type][1]}" if key in value else "is missing"
            problems.append(Problem(prefix + key, message))
        default = _once(_default, field)
        # Each caller gets its own dict. A shallow copy is enough for empty defaults, and a deep copy
        # took half of the parse time.
        result[field.attribute or key] = dict(default) if isinstance(default, dict) else default
    return result


def _unknown_key(key: str, fields: Mapping[str, Field]) -> str:
    # The import is here because most declarations have no unknown key.
    import difflib

    for here, others, message in _ELSEWHERE:
        if fields is here and key in others:
            return message
    if fields is CONFIGURATION and key.startswith(VARIABLES):
        return "is a variable of the inventory, not a key of this file: list the plugin's resources below 'resources'"
    variables = difflib.get_close_matches(key, VARIABLES, n=1, cutoff=_NEARLY)
    if fields is CONFIGURATION and variables:
        return f"is not a known key; did you mean {variables[0]}, a variable of the inventory?"
    if fields is OF_INVENTORY:
        fields = SETTINGS
    near = difflib.get_close_matches(key, DECLARED_RESOURCE if fields is RESOURCE else fields, n=1)
    below = [name + "[0]" * (field.type == "list") for name, field in fields.items() if key in (field.fields or ())]
    meant = [*near, *(f"{name}.{key}" for name in below)]
    return f"is not a known key; {f'did you mean {meant[0]}?' if meant else 'known keys: ' + ', '.join(sorted(fields))}"


def _made(field: Field, keys: dict[str, Any]) -> Any:
    return keys if field.read is None else field.read(**keys)


def _default(field: Field) -> Any:
    """The value of a missing key; for a dict with known keys, the defaults of all its keys."""
    if field.type == "dict" and field.fields is not None:
        return _made(field, {inner.attribute or key: _default(inner) for key, inner in field.fields.items()})
    if field.required and field.type == "str":
        return ""
    if isinstance(field.default, dict):
        return dict(field.default)
    return tuple(field.default) if isinstance(field.default, list) else field.default


#: By function and identity of its argument: the argument, which must stay, and the result.
_ONCE: dict[tuple[Callable[..., Any], int], tuple[Any, Any]] = {}


def _once(function: Callable[[A], T], argument: A) -> T:
    """The function's result, computed once for a part of this schema: thousands of devices have the same keys."""
    known = _ONCE.get((function, id(argument)))
    if known is None:
        known = _ONCE[function, id(argument)] = argument, function(argument)
    result: T = known[1]
    return result


def _normalise_free_dict(value: Mapping[Any, Any], field: Field, where: str, problems: list[Problem]) -> dict[str, Any]:
    element = Field(field.elements or "str", "", default="", rule=field.rule)
    result = {}
    for key, item in value.items():
        if not isinstance(key, str):
            why = "YAML reads a key such as ON, yes or 1 as true or a number, so write it in quotes"
            problems.append(Problem(where, f"the key {shown(key)} must be text: {why}"))
            continue
        if _UNWRITABLE.search(key):
            problems.append(Problem(where, f"the key {key!r} {_IS_UNWRITABLE}"))
            continue
        # An invalid value becomes empty text, because later rules expect text.
        result[str.__str__(key)] = normalise(item, element, f"{where}.{key}", problems)
    return result


def _label(item: Any) -> str:
    """The name or id of a list's element for messages: `` (example.com/serial)``."""
    if isinstance(item, dict):
        name = item.get("name", item.get("id"))
        if isinstance(name, str):
            return f" ({name})"
    return ""


def _hint(field: Field, value: Any, where: str) -> str:
    """How to write a value of the right type. YAML changes some: unquoted 0403 becomes 259, unquoted on true."""
    if isinstance(value, int) and 0o100 <= value <= 0o777 and field.rule in _NUMERALS:
        return " (write it in quotes: YAML reads 0%o as the number %d)" % (value, value)
    if field.type == "str" and isinstance(value, dict) and list(value.values()) == [None]:
        return " (write the text in quotes: YAML reads braces as a mapping)"
    if field.type == "list" and value is not None:
        if field.fields and isinstance(value, dict) and any(value.values()):
            key, first = next(iter(field.fields)), next(iter(value))
            named = value[key] if isinstance(value.get(key), str) else first
            return f" (write a list, e.g. - {key}: {named})"
        of_pairs = isinstance(value, dict) and field.elements != "dict"
        return " (write each element as text)" if of_pairs else " (write it in brackets: [...])"
    if field.type == "dict":
        return " (its keys: {})".format(", ".join(field.fields)) if field.fields else " (write NAME: value)"
    if field.type in ("str", "attribute") and not isinstance(value, (str, dict, list, tuple)) and value is not None:
        return " (write it in quotes, so that YAML reads text)"
    hints = []
    if field.type == "int" and isinstance(value, str) and value.isdecimal():
        hints.append("write it without quotes")
    if where.endswith((".capacity", ".min_devices")) and (hints or isinstance(value, float)):
        # Facts are often text, such as a disk's sectors, and a division gives a float.
        hints.append("for an expression, add '| int'")
    if hints:
        return " ({})".format("; ".join(hints))
    return ""
