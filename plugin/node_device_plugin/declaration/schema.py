"""The one schema: every key that a declaration or a plugin configuration may have, with its meaning.

Everything else is derived from it: validation, the defaults, the roles' argument_specs and the reference in docs/.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .problems import Problem

_TYPES: Dict[str, Any] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "list": (list, tuple),
    "dict": (dict,),
}


#: The largest uid or gid: an unsigned number of 32 bits in CDI, of which Linux keeps the last for "none".
LARGEST_ID = 2**32 - 2
#: An API server looks at a quantity's thousandths as a signed number of 64 bits to see that it is whole
#: (ValidateResourceQuantityValue): of 10**18 it says that it is not an integer.
LARGEST_CAPACITY = (2**63 - 1) // 1000
#: Seconds: a day, beyond which nobody means a time limit.
LONGEST_TIME = 86400
#: A device's numbers in Linux: 12 and 20 bits (include/linux/kdev_t.h).
LARGEST_MAJOR, LARGEST_MINOR = 2**12 - 1, 2**20 - 1


class Field(NamedTuple):
    """One key: its type as Ansible's argument specs name it, and what it means.

    fields: the keys of a dict (or of each element of a list of dicts); None leaves a dict's keys free.
    elements: the type of a list's elements, or of a free dict's values.
    """

    type: str
    description: str
    required: bool = False
    default: Any = None
    choices: Optional[Tuple[str, ...]] = None
    elements: Optional[str] = None
    fields: Optional[Mapping[str, Field]] = None
    minimum: Optional[int] = None
    maximum: Optional[int] = None


DEVICE_NODE: Dict[str, Field] = {
    "path": Field("str", "Absolute path of the node inside the container.", required=True),
    "host_path": Field("str", "Absolute path of the node on the host, where it differs from path; a link is followed."),
    "permissions": Field("str", "What the container may do with it: any of r, w and m.", default="rw"),
    "uid": Field(
        "int",
        "Owner of the node inside the container; the container's own user where it is left out.",
        minimum=0,
        maximum=LARGEST_ID,
    ),
    "gid": Field(
        "int",
        "Group of the node inside the container; the container's own group where it is left out.",
        minimum=0,
        maximum=LARGEST_ID,
    ),
    "mode": Field(
        "str",
        'Octal file mode of the node inside the container, e.g. "0660"; '
        "the runtime's choice if left out (0666, or the host's).",
    ),
    "type": Field(
        "str", "What the host's node has to be: c or b (character or block); either if left out.", choices=("c", "b")
    ),
    "major": Field(
        "int", "Major number that the host's node has to have; any if left out.", minimum=0, maximum=LARGEST_MAJOR
    ),
    "minor": Field(
        "int", "Minor number that the host's node has to have; any if left out.", minimum=0, maximum=LARGEST_MINOR
    ),
}

MOUNT: Dict[str, Field] = {
    "host_path": Field("str", "What is mounted: an absolute path on the host, or a word such as tmpfs.", required=True),
    "container_path": Field("str", "Absolute path inside the container.", required=True),
    "type": Field("str", "File system type, e.g. tmpfs; left out: a bind mount, with what is mounted below."),
    "options": Field("list", "Mount options, e.g. [ro, nosuid, nodev, bind].", default=[], elements="str"),
}

HOOK: Dict[str, Field] = {
    "name": Field(
        "str",
        "When it runs, in the OCI runtime's words.",
        required=True,
        choices=("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"),
    ),
    "path": Field("str", "Absolute path of the program.", required=True),
    "args": Field("list", "Its arguments, the program's own name first.", default=[], elements="str"),
    "env": Field("list", "Its environment, as NAME=value.", default=[], elements="str"),
    "timeout": Field("int", "Seconds that it may take.", minimum=1, maximum=LONGEST_TIME),
}

CONTAINER_EDITS: Dict[str, Field] = {
    "env": Field(
        "list",
        "Environment variables, as NAME=value. Nothing is filled in here: placeholders stand in a resource's env.",
        default=[],
        elements="str",
    ),
    "mounts": Field("list", "Mounts.", default=[], elements="dict", fields=MOUNT),
    "hooks": Field(
        "list",
        "OCI hooks. A kind's run once for a container, however many of its devices it has; once for each only where "
        "one of them has neither nodes nor edits, and the kind no edits but hooks.",
        default=[],
        elements="dict",
        fields=HOOK,
    ),
    "additional_gids": Field(
        "list", "Supplementary groups of the container's process, never 0.", default=[], elements="int"
    ),
}

DEVICE: Dict[str, Field] = {
    "id": Field(
        "str",
        "Name of the device, unique on its node across resources; its CDI device name where it has nodes or edits.",
        required=True,
    ),
    "nodes": Field("list", "Device nodes that a container gets.", default=[], elements="dict", fields=DEVICE_NODE),
    "container_edits": Field("dict", "CDI edits of this device alone.", default={}, fields=CONTAINER_EDITS),
    "properties": Field(
        "dict", "Values for the templates in env, free of the rules for names.", default={}, elements="str"
    ),
    "required": Field(
        "bool",
        "Whether provisioning stops where a device node is missing; if false, the device is left out until it exists.",
        default=True,
    ),
    "numa_node": Field("int", "NUMA node that the device is near to, for the kubelet's topology manager.", minimum=0),
}

USB_SELECTOR: Dict[str, Field] = {
    "vendor": Field("str", 'Vendor id, four hexadecimal digits, e.g. "0403"; any if left out.'),
    "product": Field("str", 'Product id, four hexadecimal digits, e.g. "6001"; any if left out.'),
    "serial": Field("str", "Pattern of the serial number, e.g. A50*; any, or none, if left out."),
}

PCI_SELECTOR: Dict[str, Field] = {
    "vendor": Field("str", 'Vendor id, four hexadecimal digits, e.g. "10de"; any if left out.'),
    "device": Field("str", 'Device id, four hexadecimal digits, e.g. "1eb8"; any if left out.'),
    "class_code": Field("str", 'Class: the first two, four or all six hexadecimal digits of its code, e.g. "0302".'),
}

GROUPED_NODE: Dict[str, Field] = {
    "path": Field(
        "str",
        "Absolute path with placeholders ({match1}, {iommu_group} …), which may be a pattern. A pattern below paths "
        "takes what is there, below usb and pci it chooses among the device's own nodes.",
        required=True,
    ),
    "optional": Field("bool", "Whether the device is complete without it.", default=False),
    "container_path": Field(
        "str",
        "Its absolute path inside a container, where that is not the one that was found; placeholders as in path, and "
        "{name} for the last part of the path that was found. Of several that would have the same, the first is given.",
    ),
}

DISCOVER: Dict[str, Field] = {
    "paths": Field(
        "list",
        "Patterns of device nodes, or of links to them; each is a device, named after the path that matched. What the "
        "wildcards matched are the properties match1, match2 …",
        default=[],
        elements="str",
    ),
    "usb": Field(
        "list",
        "USB devices, found where any of these fits; named after vendor, product and serial number, or the port where "
        "that is none. Properties: vendor, product, serial, port.",
        default=[],
        elements="dict",
        fields=USB_SELECTOR,
    ),
    "pci": Field(
        "list",
        "PCI devices, found where any of these fits; named after their address, with their NUMA node. Properties: "
        "address, vendor, device, class_code, iommu_group.",
        default=[],
        elements="dict",
        fields=PCI_SELECTOR,
    ),
    "nodes": Field(
        "list",
        "What else makes one device. A device that lacks one which is not optional is not listed. Without it a USB or "
        "PCI device has all nodes that its drivers made.",
        default=[],
        elements="dict",
        fields=GROUPED_NODE,
    ),
    "container_path": Field(
        "str",
        "Absolute path of a path's node inside a container, where that is not the one that was found: {match1} and the "
        "like stand in it, and {name} for the last part of the path that was found. Without any of them it asks for "
        "container_limit: 1.",
    ),
    "exclude": Field(
        "list",
        "Patterns of what is left out: paths (that matched, or that a link leads to), USB ports and PCI addresses.",
        default=[],
        elements="str",
    ),
    **{name: DEVICE_NODE[name] for name in ("permissions", "uid", "gid", "mode")},
}

PRE_START: Dict[str, Field] = {
    "command": Field(
        "list",
        "The program's absolute path and its arguments. Its environment has RESOURCE_NAME, DEVICE_ID, DEVICE_PATH (the "
        "first node's, on the host), DEVICE_PROPERTY_<NAME> for each property and, for a device on a bus, what is "
        "known of DEVICE_PCI_ADDRESS, DEVICE_USB_VENDOR, DEVICE_USB_PRODUCT, DEVICE_USB_SERIAL, DEVICE_DRIVER and "
        "DEVICE_SUBSYSTEM.",
        default=[],
        elements="str",
    ),
    "timeout": Field(
        "int", "Seconds that all devices of a container may take together, 25 at most.", default=10, minimum=1
    ),
}

HEALTH: Dict[str, Field] = {
    "open": Field(
        "bool",
        "Open each device node as a container would, at every look. Only for devices that take no notice of it (some "
        "reset, start or lock when they are opened), and not in a pod without privileges, which may open none.",
        default=False,
    ),
    "command": Field(
        "list",
        "The absolute path of a program, and its arguments, that ends with 0 where the device is healthy; its last "
        "line to stderr is the reason otherwise. Its environment is that of pre_start's.",
        default=[],
        elements="str",
    ),
    "timeout": Field("int", "Seconds that the command may take.", default=5, minimum=1, maximum=LONGEST_TIME),
    "period": Field(
        "int", "Seconds between two runs of the command for a device.", default=30, minimum=1, maximum=LONGEST_TIME
    ),
}

RESOURCE: Dict[str, Field] = {
    "name": Field("str", "Extended resource, e.g. devices.example.com/serial.", required=True),
    "devices": Field(
        "list",
        "The devices of this node; none registers the resource with an empty list.",
        default=[],
        elements="dict",
        fields=DEVICE,
    ),
    "discover": Field(
        "dict",
        "How more devices are found while the plugin runs; it then owns the kind's CDI spec, in /var/run/cdi.",
        default={},
        fields=DISCOVER,
    ),
    "env": Field(
        "dict",
        "Variables that Allocate adds for each device: {index} counts the devices of this resource in a container "
        "from 0; {id}, {path}, {host_path} (both of the first node) and every property stand in values.",
        default={},
        elements="str",
    ),
    "container_edits": Field(
        "dict", "CDI edits for every container that gets a device of this kind.", default={}, fields=CONTAINER_EDITS
    ),
    "cdi_kind": Field("str", "CDI kind (vendor/class), where it is not the resource's name."),
    "replicas": Field("int", "How many containers may share each device.", default=1, minimum=1),
    "container_limit": Field(
        "int",
        "How many a container may ask for; the admission of a pod that asks for more fails.",
        minimum=1,
        maximum=LARGEST_CAPACITY,
    ),
    "preference": Field(
        "str",
        "Which free devices the kubelet should take: packed (as few devices as possible, those in use first), "
        "distributed (as many as possible, the least used first), numa (of as few NUMA nodes as possible); its own "
        "choice if left out.",
        choices=("packed", "distributed", "numa"),
    ),
    "pre_start": Field(
        "dict",
        "A command that is run for each device before a container that has it starts, e.g. to reset it; if it fails, "
        "the container does not start.",
        default={},
        fields=PRE_START,
    ),
    "health": Field(
        "dict",
        "What makes a device healthy, beside nodes that are there with the expected type and numbers, and a CDI name "
        "that resolves.",
        default={},
        fields=HEALTH,
    ),
    "injection": Field(
        "str",
        "How a container gets its devices: by CDI names, or as device nodes, mounts and variables in the answer to "
        "Allocate, for runtimes and kubelets without CDI.",
        default="cdi",
        choices=("cdi", "device_nodes"),
    ),
    "annotations": Field(
        "dict",
        "Annotations that the runtime gets for a container, for each device; templates as in env.",
        default={},
        elements="str",
    ),
}

#: A fixed capacity of a node, which no plugin serves.
STATIC_RESOURCE: Dict[str, Field] = {
    "name": RESOURCE["name"],
    "capacity": Field(
        "int",
        "How many the node has, where that is a fixed number which no plugin serves; nothing but name beside it. The "
        "role extended_resources patches it on the node's status.",
        required=True,
        minimum=0,
        maximum=LARGEST_CAPACITY,
    ),
}

#: Every key that an element of a declaration may have.
DECLARED_RESOURCE: Dict[str, Field] = {**RESOURCE, "capacity": STATIC_RESOURCE["capacity"]._replace(required=False)}

CONFIGURATION: Dict[str, Field] = {
    "resources": Field("list", "The resources of this node.", required=True, elements="dict", fields=RESOURCE),
    "kubelet_device_plugin_dir": Field(
        "str",
        "The kubelet's device plugin directory (the kubelet's --root-dir does not move it; some distributions do).",
        default="/var/lib/kubelet/device-plugins",
    ),
    "cdi_spec_dirs": Field(
        "list",
        "Where the runtime reads CDI specs, a later one going before an earlier one: a device whose CDI name is in no "
        "valid spec there is unhealthy. Empty to leave that unchecked.",
        default=["/etc/cdi", "/var/run/cdi"],
        elements="str",
    ),
    "registration": Field(
        "str",
        "How the kubelet gets to know of us: we register in kubelet_device_plugin_dir, or it finds our sockets in the "
        "folder plugins_registry of kubelet_root_dir.",
        default="device_plugins",
        choices=("device_plugins", "plugins_registry"),
    ),
    "recovery_delay": Field(
        "int",
        "Seconds that a device which was lost again so soon after it came back has to be fine before it counts as "
        "healthy; 0 trusts every recovery at once.",
        default=10,
        minimum=0,
        maximum=LONGEST_TIME,
    ),
    "log_level": Field("str", "How much is logged.", default="info", choices=("debug", "info", "warning", "error")),
    "log_format": Field(
        "str", "Log lines for people, or an object a line for programs.", default="text", choices=("text", "json")
    ),
    "http_address": Field(
        "str",
        "Where /metrics, /healthz and /readyz are served: address:port (an IPv6 address in brackets; without an "
        "address: every one of the node); nowhere if empty.",
        default="127.0.0.1:9819",
    ),
    "dynamic_cdi_dir": Field(
        "str",
        "Where the plugin writes the CDI specs of kinds with discovered devices, or with declared nodes that are links "
        "on the node; the runtime has to read it. What is in a former one stays until a boot takes it, or "
        "node-device-plugin cdi prune --dir FORMER.",
        default="/var/run/cdi",
    ),
    "cdi_owner": Field(
        "str",
        "Who writes the CDI specs of kinds that have no discovered devices: the role, in /etc/cdi, or the plugin, in "
        "dynamic_cdi_dir, where only the Kubernetes API reaches the node.",
        default="role",
        choices=("role", "plugin"),
    ),
    "kubelet_root_dir": Field(
        "str",
        "The kubelet's --root-dir: its pod-resources socket there tells who holds what; plugins_registry is there too.",
        default="/var/lib/kubelet",
    ),
}


#: Text that looks like a number, often one that begins with 0.
_NUMERALS = frozenset({"mode", "vendor", "product", "device", "class_code"})
#: Characters that no path may hold, or that UTF-8 cannot encode. YAML and JSON can write both as escapes.
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_IS_UNWRITABLE = "holds a NUL character or half of a surrogate pair"


def normalise(value: Any, field: Field, where: str, problems: List[Problem]) -> Any:
    """``value`` as plain data with every default filled in; what does not fit is appended to ``problems``.

    A value that does not fit comes back as the field's default, so that one reading reports every problem.
    """
    if not isinstance(value, _TYPES[field.type]) or (field.type == "int" and isinstance(value, bool)):
        message = "must be %s, not %s%s" % (_named(field.type), _shown(value), _hint(field.type, value, where))
        problems.append(Problem(where, message))
        return _default(field)
    if field.type == "dict" and field.fields is not None:
        return _normalise_keys(value, field.fields, where, problems)
    if field.type == "dict":
        return _normalise_free_dict(value, field, where, problems)
    if field.type == "list":
        element = Field(field.elements or "str", "", fields=field.fields)
        return [
            normalise(item, element, "%s[%d]%s" % (where, position, _label(item)), problems)
            for position, item in enumerate(value)
        ]
    if field.choices is not None and value not in field.choices:
        problems.append(Problem(where, "must be one of %s, not %r" % (", ".join(field.choices), str(value))))
        return _default(field)
    if field.minimum is not None and value < field.minimum:
        problems.append(Problem(where, "must be at least %d, not %d" % (field.minimum, value)))
        return _default(field)
    if field.maximum is not None and value > field.maximum:
        problems.append(Problem(where, "must be at most %d, not %d" % (field.maximum, value)))
        return _default(field)
    if field.type == "str" and _UNWRITABLE.search(value):
        problems.append(Problem(where, _IS_UNWRITABLE))
        return _default(field)
    # Subclasses carry Ansible's tags; the result is plain data.
    return str.__str__(value) if field.type == "str" else value


def _normalise_keys(
    value: Mapping[Any, Any], fields: Mapping[str, Field], where: str, problems: List[Problem]
) -> Dict[str, Any]:
    prefix = where + "." if where else ""
    for key in value:
        if key not in fields:
            problems.append(
                Problem(
                    "%s%s" % (prefix, key or repr(key)), "is not a known key; known are %s" % ", ".join(sorted(fields))
                )
            )
    result = {}
    for key, field in fields.items():
        if key in value and value[key] is not None:
            result[key] = normalise(value[key], field, prefix + key, problems)
        else:
            if field.required:
                problems.append(Problem(prefix + key, "is missing"))
            result[key] = _default(field)
    return result


def _default(field: Field) -> Any:
    """What a key that is left out stands for; a dict with known keys is all of their defaults."""
    if field.type == "dict" and field.fields is not None:
        return {key: _default(inner) for key, inner in field.fields.items()}
    # A list or dict of its own for each. They are empty by default: copying deeply was half the time of reading.
    return field.default.copy() if isinstance(field.default, (list, dict)) else field.default


def _normalise_free_dict(value: Mapping[Any, Any], field: Field, where: str, problems: List[Problem]) -> Dict[str, Any]:
    element = Field(field.elements or "str", "", default="")
    result = {}
    for key, item in value.items():
        if not isinstance(key, str):
            problems.append(Problem(where, "the key %s must be text" % _shown(key)))
            continue
        if _UNWRITABLE.search(key):
            problems.append(Problem(where, "the key %r %s" % (key, _IS_UNWRITABLE)))
            continue
        read = normalise(item, element, "%s.%s" % (where, key), problems)
        # A value that was refused is no value: what comes after meets text only.
        if read is not None:
            result[str.__str__(key)] = read
    return result


def _label(item: Any) -> str:
    """Whose list element it is, in the reader's own words: `` (example.com/serial)``."""
    if isinstance(item, dict):
        name = item.get("name", item.get("id"))
        if isinstance(name, str):
            return " (%s)" % name
    return ""


def _named(kind: str) -> str:
    return {"str": "text", "int": "a whole number", "bool": "true or false", "list": "a list", "dict": "a mapping"}[
        kind
    ]


def _hint(kind: str, value: Any, where: str) -> str:
    """What YAML made of it is often not what was written: 0403 is 259, and on is true."""
    if isinstance(value, int) and 0o100 <= value <= 0o777 and where.rpartition(".")[2] in _NUMERALS:
        return " (in quotes it is text: YAML takes 0%o for %d)" % (value, value)
    if kind == "str" and not isinstance(value, (str, dict, list, tuple)) and value is not None:
        return " (in quotes it is text)"
    hints = []
    if kind == "int" and isinstance(value, str) and value.isdecimal():
        hints.append("without quotes it is a number")
    if where.endswith(".capacity") and (hints or isinstance(value, float)):
        # Facts are often text, such as a disk's sectors, and a quotient is no whole number.
        hints.append("of an expression's result '| int' makes one")
    if hints:
        return " (%s)" % "; ".join(hints)
    return ""


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return "the text %r" % str.__str__(value)
    if isinstance(value, (dict, list, tuple)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return repr(value)
