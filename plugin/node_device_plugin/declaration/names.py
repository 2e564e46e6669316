"""The name rules of the kubelet and of CDI. A rule returns the problem with a name, or None."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

_DNS1123_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_CDI_VENDOR_OR_CLASS = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]")
#: Prefixes of CDI kinds that other allocators write.
_OF_ALLOCATORS = ("k8s.", "management.")
_CDI_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
#: Two colons mark a share of a device (device_plugin_api).
_ILLEGAL_IN_ID = re.compile(r"[^A-Za-z0-9_.:-]|::+")
_ENDS = "_.:-"
_HASH = 8
#: The end of a hashed label: 16 digits of SHA-256.
_HASHED = re.compile(r".*--[0-9a-f]{16}")
_DIGITS = 16
_NOT_IN_LABEL = re.compile(r"[^a-z0-9]+")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DEV = "/dev/"
# The names of environment variables that every API server accepts (IsEnvVarName).
_ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
#: The same rule in words, for messages.
ENV_NAME = "letters, digits, '_', '-' and '.', without a leading digit"

#: Placeholders that every device has.
_BUILT_IN = ("id", "path", "host_path", "index")

_MAX_DNS = 253
# The kubelet checks "requests." + name as a label key.
_MAX_DOMAIN = _MAX_DNS - len("requests.")
_MAX_LABEL_NAME = 63
#: Maximum characters of a DNS label, and bytes of a text in an attribute (k8s.io/api/resource/v1).
MAX_DNS_LABEL = 63
MAX_ATTRIBUTE_TEXT = 64
#: Characters. Source: a comment in the v1beta1 proto. Nothing enforces the limit, but longer ids are less tested.
MAX_DEVICE_ID = 63
#: Maximum bytes. A socket's path has at most 107, and our sockets add up to 44 to the directory.
MAX_DEVICE_PLUGIN_DIR = 107 - 44
#: Maximum bytes. Our sockets in plugins_registry add up to 61 to the kubelet's root directory.
MAX_KUBELET_ROOT_DIR = 107 - 61


def resource_name_problem(name: str) -> str | None:
    """Why the kubelet refuses the resource name ``name`` (IsExtendedResourceName), or None."""
    if name.count("/") != 1:
        return f"{name!r} is not an extended resource: use the form domain/name, with exactly one '/'"
    domain, label = name.split("/")
    if "kubernetes.io/" in name:
        return f"{name!r} is in the domain kubernetes.io, which is reserved for Kubernetes: use your own domain"
    if name.startswith("requests."):
        return f"{name!r} begins with 'requests.', which is reserved for quotas: use another domain"
    if len(domain) > _MAX_DOMAIN or not _DNS1123_SUBDOMAIN.fullmatch(domain):
        return "the domain %r is not a lower-case DNS name of at most %d characters" % (domain, _MAX_DOMAIN)
    if len(label) > _MAX_LABEL_NAME or not _LABEL_NAME.fullmatch(label):
        return (
            "the name %r after the '/' must have at most %d characters (letters, digits, '-', '_' and '.'), "
            "and begin and end with a letter or digit" % (label, _MAX_LABEL_NAME)
        )
    return None


def node_name_problem(name: str) -> str | None:
    """Why Kubernetes would refuse ``name`` for a node, or None."""
    if is_object_name(name):
        return None
    return "%r is not a node name: use a lower-case DNS name of at most %d characters" % (name, _MAX_DNS)


def is_object_name(name: str) -> bool:
    """Whether ``name`` is legal for a Kubernetes object (a DNS-1123 subdomain)."""
    return len(name) <= _MAX_DNS and bool(_DNS1123_SUBDOMAIN.fullmatch(name))


def label_key_problem(key: str) -> str | None:
    """Why Kubernetes would refuse ``key`` for a label or taint (IsQualifiedName), or None."""
    domain, slash, label = key.rpartition("/")
    if (not slash or is_object_name(domain)) and len(label) <= _MAX_LABEL_NAME and _LABEL_NAME.fullmatch(label):
        return None
    return f"{key!r} is not a label or taint key: use name or domain/name, of letters, digits, '-', '_' and '.'"


def label_value_problem(value: str) -> str | None:
    """Why Kubernetes would refuse ``value`` for a label or taint (IsValidLabelValue), or None."""
    if not value or (len(value) <= _MAX_LABEL_NAME and _LABEL_NAME.fullmatch(value)):
        return None
    return (
        "%r is not a label or taint value: use at most %d letters, digits, '-', '_' and '.', and begin and end with a "
        "letter or digit" % (value, _MAX_LABEL_NAME)
    )


def cdi_kind_problem(kind: str) -> str | None:
    """Why ``kind`` is not a usable CDI kind (vendor/class), or None.

    Each part needs at least two characters. The CDI specification allows one, but containerd's
    parser then panics, and the runtime crash-loops until someone removes the file.
    """
    crashing = crashing_part(kind)
    if crashing:
        return (
            f"the CDI {crashing} has fewer than two characters, which crashes containerd's parser: choose a longer name"
        )
    if kind.count("/") != 1:
        return f"{kind!r} is not a CDI kind: use the form vendor/class, with exactly one '/'"
    for part, text in zip(("vendor", "class"), kind.split("/")):
        if not _CDI_VENDOR_OR_CLASS.fullmatch(text):
            return (
                f"the CDI {part} {text!r} must begin with a letter, end with a letter or digit, "
                "and contain only letters, digits, '_', '-' and '.'"
            )
    return None


def crashing_part(kind: str) -> str | None:
    """The vendor or class that crashes runtimes' CDI library before 1.1.1, or None.

    As in that library (ParseQualifier and validateVendorOrClassName in pkg/parser), the class may contain a slash.
    """
    vendor, _slash, device_class = kind.partition("/")
    if vendor and device_class and _is_letter(vendor):
        return f"vendor {vendor!r}"
    return f"class {device_class!r}" if _CDI_VENDOR_OR_CLASS.fullmatch(vendor) and _is_letter(device_class) else None


def _is_letter(text: str) -> bool:
    return len(text) == 1 and text.isascii() and text.isalpha()


def foreign_kind_problem(kind: str) -> str | None:
    """Why a resource must not offer devices of another program's CDI kind, or None.

    NVIDIA's device plugin, DRA driver and GPU operator write such kinds for the containers to
    which they give devices themselves.
    """
    if kind.startswith(_OF_ALLOCATORS):
        return (
            f"{kind!r} belongs to another allocator, which gives these devices to its own containers: use the kind "
            "that the vendor's generator writes, e.g. nvidia.com/gpu of nvidia-ctk cdi generate"
        )
    return cdi_kind_problem(kind)


def foreign_cdi_name_problem(name: str) -> str | None:
    """The problem with the fully qualified CDI name of a device to offer, or None."""
    kind, equals, device = name.partition("=")
    if not equals:
        return f"{name!r} is not a fully qualified CDI name: it takes the form vendor/class=device"
    return foreign_kind_problem(kind) or cdi_device_problem(device)


def cdi_device_problem(name: str) -> str | None:
    """Why ``name`` is not a legal CDI device name, or None."""
    if _CDI_DEVICE.fullmatch(name):
        return None
    return (
        f"{name!r} is not a valid CDI device name: it must begin and end with a letter or digit, "
        "and contain only letters, digits, '_', '-', '.' and ':'"
    )


def env_name_problem(name: str) -> str | None:
    """Why ``name`` is not a legal name of an environment variable, or None."""
    if _ENV_NAME.fullmatch(name) and not name.startswith(".."):
        return None
    return f"{name!r} is not a variable name: use {ENV_NAME}"


def placeholder_problem(name: str) -> str | None:
    """Why a property or a device node cannot have ``name`` as its placeholder, or None."""
    # Templates match only such names; a placeholder with another name would stay unfilled.
    if name not in _BUILT_IN and name.isidentifier() and name.isascii():
        return None
    return (
        f"{name!r} is not a placeholder's name: use letters, digits and '_', no leading digit, and none of "
        + ", ".join(_BUILT_IN)
    )


def qualified_cdi_name(kind: str, device: str) -> str:
    """The fully qualified CDI name, ``vendor.com/class=device``."""
    return f"{kind}={device}"


def kinds_of(names: Iterable[str]) -> frozenset[str]:
    """The kinds of fully qualified CDI names."""
    return frozenset(name.partition("=")[0] for name in names)


def kind_and_name(qualified: str) -> str:
    """The kind and the device's name of a fully qualified CDI name: ``vendor.com-gpu-0`` for ``vendor.com/gpu=0``."""
    return qualified.replace("/", "-", 1).replace("=", "-", 1)


def ids_of(qualified: str) -> set[str]:
    """The ids that a device of a fully qualified CDI name has, unless its configuration or its PCI address decides."""
    return {qualified.partition("=")[2], kind_and_name(qualified)}


def device_id(name: str, room: int = MAX_DEVICE_ID) -> str:
    """A legal CDI device name of at most ``room`` characters for ``name``; the same name always gives the same id.

    If characters are illegal or the name is too long, they are replaced and part of its SHA-256 keeps the id unique.
    """
    legal = _ILLEGAL_IN_ID.sub("_", name).strip(_ENDS)
    if legal == name and len(legal) <= room:
        return legal
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_HASH]
    return (legal[: room - _HASH - 1].rstrip(_ENDS) + "-" + digest).lstrip("-")


def dns_label(name: str) -> str:
    """A DNS label for ``name``: the name itself if possible. The same name always gives the same label.

    Two names never give the same label, because a name that ends like a hashed label is hashed, too.
    """
    if len(name) <= MAX_DNS_LABEL and _DNS_LABEL.fullmatch(name) and not _HASHED.fullmatch(name):
        return name
    return hashed_label(name)


def class_name(resource: str) -> str:
    """The name of a resource's DeviceClass, such as ``camera.example.com`` for ``example.com/camera``."""
    domain, _slash, label = resource.partition("/")
    name = f"{dns_label(label)}.{domain}"
    return name if len(name) <= _MAX_DNS else hashed_label(name)


def pool_name(node: str, resource: str) -> str:
    """The name of a resource's pool on a node, such as ``worker1/camera.example.com`` for ``example.com/camera``.

    It begins with the node's name, so that an API server sees whose pool it is, unless that has over 189 characters.
    """
    of_resource = class_name(resource)
    names = (f"{node}/{of_resource}", f"{node}/{hashed_label(of_resource)}", hashed_label(f"{node}/{of_resource}"))
    return next(name for name in names if len(name) <= _MAX_DNS)


def hashed_label(name: str) -> str:
    """A DNS label of the readable beginning of ``name`` and part of its SHA-256."""
    return _hashed(name, _NOT_IN_LABEL.sub("-", name.lower()).lstrip("-"), MAX_DNS_LABEL)


def attribute_text(name: str) -> str:
    """A name as the text of a device's attribute; if the name is too long, part of its SHA-256 keeps the text unique.

    name: only ASCII characters.
    """
    return name if len(name) <= MAX_ATTRIBUTE_TEXT else _hashed(name, name, MAX_ATTRIBUTE_TEXT)


def _hashed(name: str, readable: str, room: int) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]
    return f"{readable[: room - _DIGITS - 2].rstrip('-') or 'x'}--{digest}"


def name_of_path(path: str) -> str:
    """The name of the device at an absolute path: ``serial-by-id-x`` for ``/dev/serial/by-id/x``."""
    return (path[len(_DEV) :] if path.startswith(_DEV) else path[1:]).replace("/", "-")
