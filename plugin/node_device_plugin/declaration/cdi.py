"""Renders the CDI specs of a declaration: content, file name and required CDI version."""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

from .model import BIND, ContainerEdits, Device, DeviceNode, Mount, Resource

#: The prefix of the names of our spec files.
FILE_PREFIX = "node-device-plugin_"
#: The prefix of the names of spec files that the role cdi_specs makes from templates. For the plugin, these files are
#: other programs' specs.
TEMPLATE_PREFIX = "node-devices_"

#: The prefix of a container's annotations that request CDI devices. Source: pkg/cdi/annotations.go of the CDI library.
ANNOTATION_PREFIX = "cdi.k8s.io/"

#: Maximum characters of the kind in a file name. File systems allow 255 bytes, and the temporary
#: file during a write has a longer name.
_LONGEST_NAME = 180

_NOT_A_DIGIT = re.compile(r"[^0-9]")
#: The edits that every version knows.
_OLDEST_EDITS = frozenset({"env", "deviceNodes", "hooks", "mounts"})
#: The lowest CDI version in use.
_BASE_VERSION = "0.3.0"

#: The first containerd version and the highest CDI version that containerd accepts, newest first.
#: Source: the CDI module that each release from 1.7.0 to 2.3.4 vendors. A distribution's build may
#: accept more (seen: Debian's 1.7.24 accepts 0.8.0).
_ACCEPTED_BY_CONTAINERD: tuple[tuple[tuple[int, int, int], str], ...] = (
    ((2, 2, 1), "1.1.0"),
    ((2, 0, 5), "1.0.0"),
    ((1, 7, 27), "0.8.0"),
    ((1, 7, 16), "0.7.0"),
    ((1, 7, 12), "0.6.0"),
    ((1, 7, 2), "0.5.0"),
)

#: From this version on, CDI is always on in containerd, and enable_cdi has no effect.
_ALWAYS_ON = (2, 4, 0)

#: The first kubelet minor that passes on CDI names by default (DevicePluginCDIDevices is beta).
FIRST_KUBELET = (1, 29)
#: The kubelet minors that this project is tested with, oldest first; lab/programs pins them.
TESTED_KUBELETS = ((1, 31), (1, 34), (1, 36), (1, 37))


def names_in(annotations: Mapping[str, str]) -> set[str]:
    """The CDI names that a container's annotations request."""
    values = [value for key, value in annotations.items() if key.startswith(ANNOTATION_PREFIX)]
    return {name.strip() for value in values for name in value.split(",") if name.strip()}


class Feature(NamedTuple):
    """A feature of a spec that older readers refuse. since: CDI version. where: place in it."""

    since: str
    name: str
    where: str


def render_spec(resource: Resource) -> dict[str, Any] | None:
    """The CDI spec of a resource as data, with CDI's keys; None if the resource needs no spec."""
    if not resource.has_spec:
        return None
    # CDI refuses a device without edits, so such a device repeats the kind's edits. The device does not repeat hooks,
    # because no hook may run twice. If the kind has only hooks, each device gets the hooks instead of the kind.
    repeated = resource.container_edits._replace(hooks=())
    is_any_bare = any(resource.cdi_name(d) and not d.has_edits for d in resource.devices)
    each_carries_all = is_any_bare and repeated == ContainerEdits()
    devices = []
    for device in resource.devices:
        if resource.cdi_name(device) is None:
            continue
        edits = device.container_edits if device.has_edits else repeated
        if each_carries_all:
            edits = _merged(resource.container_edits, device.container_edits)
        devices.append({"name": device.id, "containerEdits": _edits(edits, device.nodes)})
    if not devices:
        return None
    spec: dict[str, Any] = {"cdiVersion": _BASE_VERSION, "kind": resource.cdi_kind, "devices": devices}
    if not each_carries_all and resource.container_edits != ContainerEdits():
        spec["containerEdits"] = _edits(resource.container_edits, ())
    spec["cdiVersion"] = minimum_version(spec)
    return spec


def render_specs(resources: Sequence[Resource]) -> dict[str, dict[str, Any]]:
    """The specs that the role owns, by file name. The plugin owns the others (``dynamic_cdi``)."""
    specs = {}
    for resource in resources:
        spec = None if resource.dynamic_cdi else render_spec(resource)
        if spec is not None:
            specs[file_name(resource.cdi_kind)] = spec
    return specs


def render_awaited(resource: Resource) -> dict[str, Any] | None:
    """The spec that the plugin will write for a kind; None if the plugin writes no spec.

    The device "discovered" stands for all devices that discovery will find.
    """
    if not resource.dynamic_cdi:
        return None
    if not resource.discover.methods:
        return render_spec(resource)
    discover = resource.discover
    node = DeviceNode(
        path="/dev/discovered",
        host_path="/dev/discovered",
        permissions=discover.permissions,
        uid=discover.uid,
        gid=discover.gid,
        mode=discover.mode,
    )
    found = Device("discovered", (node,), ContainerEdits(), {}, required=False)
    return render_spec(resource._replace(devices=(*resource.devices, found)))


def with_kept(
    wanted: Mapping[str, Any] | None, present: Mapping[str, Any], staying: Sequence[str]
) -> Mapping[str, Any]:
    """The wanted spec plus the staying devices of the present spec, with their kind's former edits.

    If no device stays, returns ``wanted``. If ``wanted`` is None, returns only the staying devices.
    """
    if wanted is not None and not staying:
        return wanted
    kept = [device for device in present["devices"] if device["name"] in staying]
    if wanted is None:
        return {**present, "devices": kept}
    if present.get("containerEdits") != wanted.get("containerEdits"):
        common = present.get("containerEdits") or {}
        kept = [{**device, "containerEdits": joined(common, device.get("containerEdits") or {})} for device in kept]
    merged = {**wanted, "devices": [*wanted["devices"], *kept]}
    return {**merged, "cdiVersion": minimum_version(merged)}


def file_name(kind: str, prefix: str = FILE_PREFIX) -> str:
    """The file name of a kind: one path component, unique, and short enough for file systems."""
    name = kind.replace("/", "_")
    if "_" in kind.partition("/")[0] or len(name) > _LONGEST_NAME:
        # The hash separates "a_b/cc" from "a/b_cc", and keeps shortened names unique.
        name = f"{name[:_LONGEST_NAME]}-{hashlib.sha256(kind.encode()).hexdigest()[:8]}"
    return f"{prefix}{name}.json"


#: A shared encoder, because json.dumps would create one for each of thousands of devices.
_encode = json.JSONEncoder(ensure_ascii=False).encode
#: Legal in JSON. Runtimes read a spec as YAML, which refuses these characters, or reads them as a line break.
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def serialise(spec: Mapping[str, Any]) -> str:
    """The text of a spec file, with one line per device. Equal content always gives equal bytes."""
    lines = []
    for key, value in spec.items():
        if key == "devices":
            text = "[\n{}\n  ]".format(",\n".join("    " + _encode(device) for device in value))
        else:
            text = _encode(value)
        lines.append(f"  {json.dumps(key)}: {text}")
    text = "{{\n{}\n}}\n".format(",\n".join(lines))
    if text.isascii() and "\x7f" not in text:
        return text
    return _NOT_IN_YAML.sub(lambda match: "\\u%04x" % ord(match[0]), text)


def _is_needed(part: Mapping[str, Any], key: str) -> bool:
    """Whether a field needs the version that added it (requiresV110 and others of the CDI library)."""
    # Empty, these two count as well.
    return part.get(key) is not None if key in ("intelRdt", "schemata") else bool(part.get(key))


def features(spec: Mapping[str, Any], has: Callable[[Mapping[str, Any], str], bool] = _is_needed) -> Iterator[Feature]:
    """Features that need more than the base version. Source: CDI's table of required versions.

    has: whether a part of the spec has a field.
    """
    if "." in str(spec.get("kind", "")).partition("/")[2]:
        yield Feature("0.6.0", "a '.' in the class", "kind")
    if has(spec, "annotations"):
        yield Feature("0.6.0", "annotations", "annotations")
    yield from _edit_features(spec.get("containerEdits") or {}, "containerEdits", has)
    for device in spec.get("devices") or []:
        where = "device {}".format(device.get("name"))
        if not str(device.get("name", "a"))[:1].isalpha():
            yield Feature("0.5.0", "a device name that begins with a digit", where)
        if has(device, "annotations"):
            yield Feature("0.6.0", "annotations", where)
        yield from _edit_features(device.get("containerEdits") or {}, where, has)


def minimum_version(spec: Mapping[str, Any]) -> str:
    """The lowest CDI version that the content of ``spec`` needs."""
    return max({_BASE_VERSION, *(feature.since for feature in features(spec))}, key=version_tuple)


def accepted_version(containerd_version: str) -> str | None:
    """The highest CDI version that a containerd release accepts; None below 1.7.2 (without CDI)."""
    version = version_tuple(containerd_version)
    for since, accepted in _ACCEPTED_BY_CONTAINERD:
        if version >= since:
            return accepted
    return None


def always_on(containerd_version: str | None) -> bool:
    """Whether CDI is always on in this version of containerd."""
    return containerd_version is not None and version_tuple(containerd_version) >= _ALWAYS_ON


def untested_kubelet(version: Sequence[int]) -> str:
    """A warning if a kubelet passes on CDI names but is older than all tested minors, or empty."""
    if FIRST_KUBELET <= tuple(version[:2]) < TESTED_KUBELETS[0]:
        return "this project is not tested with kubelets older than %d.%d" % TESTED_KUBELETS[0]
    return ""


def refused_features(spec: Mapping[str, Any], accepted: str) -> list[Feature]:
    """Features of ``spec`` that a runtime refuses if its highest CDI version is ``accepted``.

    Such a runtime refuses the whole file for a field that its library does not know, even if the field is empty.
    """
    limit = version_tuple(accepted)
    return [feature for feature in features(spec, operator.contains) if version_tuple(feature.since) > limit]


def version_tuple(version: str) -> tuple[int, ...]:
    """The first three numbers of a version: (1, 7, 24) for ``1.7.24~ds1`` or ``v1.7.24+ds1``."""
    numbers = [_NOT_A_DIGIT.split(part, maxsplit=1)[0] or "0" for part in version.removeprefix("v").split(".")[:3]]
    return tuple(map(int, [*numbers, "0", "0"][:3]))


def joined(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The edits that a container gets for a device. common: of the kind. own: of the device."""
    # Intel RDT is the only edit that is not a list. A template may have any edit as null.
    return {
        key: value if isinstance(value, dict) else [*(common.get(key) or ()), *(own.get(key) or ())]
        for key, value in {**_given(common), **_given(own)}.items()
    }


def _given(edits: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in edits.items() if value is not None}


def _edit_features(
    edits: Mapping[str, Any], where: str, has: Callable[[Mapping[str, Any], str], bool]
) -> Iterator[Feature]:
    for node in edits.get("deviceNodes") or []:
        if has(node, "hostPath"):
            place = "{}, {}".format(where, node.get("path"))
            yield Feature("0.5.0", "a host path that differs from the container's", place)
    for mount in edits.get("mounts") or []:
        if has(mount, "type"):
            yield Feature("0.4.0", "the type of a mount", "{}, {}".format(where, mount.get("containerPath")))
    if edits.keys() <= _OLDEST_EDITS:
        return
    rdt = edits.get("intelRdt") or {}
    for since, name, part, key in (
        ("0.7.0", "additional gids", edits, "additionalGids"),
        ("0.7.0", "Intel RDT", edits, "intelRdt"),
        ("1.1.0", "Intel RDT's schemata", rdt, "schemata"),
        ("1.1.0", "Intel RDT's enableMonitoring", rdt, "enableMonitoring"),
        ("1.1.0", "network devices", edits, "netDevices"),
    ):
        if has(part, key):
            yield Feature(since, name, where)


def _merged(common: ContainerEdits, own: ContainerEdits) -> ContainerEdits:
    return ContainerEdits._make(of_kind + of_device for of_kind, of_device in zip(common, own))


def _edits(edits: ContainerEdits, nodes: Sequence[DeviceNode]) -> dict[str, Any]:
    return _without_nothing(
        env=edits.env,
        deviceNodes=[
            _without_nothing(
                path=node.path,
                hostPath=node.host_path if node.host_path != node.path else None,
                permissions=node.permissions,
                fileMode=node.mode,
                uid=node.uid,
                gid=node.gid,
            )
            for node in nodes
        ],
        hooks=[
            _without_nothing(hookName=hook.name, path=hook.path, args=hook.args, env=hook.env, timeout=hook.timeout)
            for hook in edits.hooks
        ],
        mounts=[
            _without_nothing(
                hostPath=mount.host_path,
                containerPath=mount.container_path,
                type=mount.type,
                options=_mount_options(mount),
            )
            for mount in edits.mounts
        ],
        additionalGids=edits.additional_gids,
    )


def _mount_options(mount: Mount) -> list[str]:
    """The options of a mount. Adds "rbind" to a bind mount that has neither "bind" nor "rbind".

    runc recognises a bind mount only by these options. Without them, the container does not start
    (seen with runc 1.1.5: "no such device"). The kubelet's own mounts (``injection: device_nodes``)
    are recursive, too.
    """
    if mount.type not in BIND or {"bind", "rbind"} & set(mount.options):
        return list(mount.options)
    return ["rbind", *mount.options]


def _without_nothing(**fields: Any) -> dict[str, Any]:
    """The fields that are not None or empty. Tuples become lists, as in data from JSON."""
    given = {key: value for key, value in fields.items() if value not in (None, [], ())}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
