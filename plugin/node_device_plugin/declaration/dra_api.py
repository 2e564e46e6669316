"""The rules of DRA (resource.k8s.io/v1): the attributes of devices, and the keys of a declaration without counterpart.

Source of the limits: k8s.io/api/resource/v1/types.go, and pkg/apis/resource/validation of Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import names
from .model import DEVICE_PLUGIN, DRA, AttributeValue, Resource
from .problems import Problem

#: Kubernetes' group and version. Source: 1.34 is the first release with it.
API_VERSION = "resource.k8s.io/v1"
#: The first minor of the kubelet with the API v1 of DRA drivers.
FIRST_KUBELET = (1, 34)
#: The first minor of the kubelet that gives a pod the devices of a claim which the scheduler made for its limits.
#: An older kubelet starts such a pod without a device. Source: the feature gate DRAExtendedResource, on from 1.36 on.
FIRST_KUBELET_FOR_LIMITS = (1, 36)
#: Why a running pod lacks a device that it has in its limits, and what to do.
NO_CLAIM = (
    "but the resource (api: dra) needs a claim, which only the scheduler makes: create the pod again without "
    "spec.nodeName, and not as a static pod"
)
#: Maximum number of a device's attributes and capacities.
MAX_ATTRIBUTES = 32
#: Maximum number of the devices of a claim (AllocationResultsMaxSize).
MAX_CLAIMED = 32
#: Maximum shares of a device. Each is a device in ResourceSlices, which all schedulers and autoscalers read.
MAX_SHARES = 128
#: The driver's attributes that each device has, and by which DeviceClasses and claims select.
RESOURCE_ATTRIBUTE, ID_ATTRIBUTE = "resource", "id"
#: How many attributes the driver itself may give to a device.
OUR_MOST = 12
#: A number is a signed 64-bit integer.
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_MAX_DOMAIN, _MAX_IDENTIFIER = 63, 32
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER, _PRE_RELEASE = r"(0|[1-9][0-9]*)", r"(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_VERSION = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(-{_PRE_RELEASE}(\.{_PRE_RELEASE})*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?"
)
#: Each key without counterpart, its default, and why DRA refuses another value, with the way to say it there.
_WITHOUT_COUNTERPART: tuple[tuple[str, Any, str], ...] = (
    (
        "annotations",
        {},
        "a DRA driver gives a container only CDI names, no annotations: remove it, and use env or container_edits",
    ),
    ("injection", "cdi", "a DRA driver gives devices only by CDI names: remove it"),
    (
        "preference",
        None,
        "the scheduler chooses a claim's devices: remove it, and use selectors or constraints in the ResourceClaim",
    ),
    (
        "container_limit",
        None,
        "a claim, not a container, requests devices: remove it, and set count in the ResourceClaim",
    ),
)


def driver_problem(name: str) -> str | None:
    """Why Kubernetes would refuse ``name`` for a DRA driver, or None."""
    if len(name) <= _MAX_DOMAIN and names.is_object_name(name):
        return None
    return "%r is not a driver's name: use a lower-case DNS name of at most %d characters" % (name, _MAX_DOMAIN)


def attribute_name_problem(name: str) -> str | None:
    """Why Kubernetes would refuse ``name`` for an attribute, or None."""
    domain, slash, identifier = name.rpartition("/")
    if slash and (len(domain) > _MAX_DOMAIN or not names.is_object_name(domain)):
        return "the domain %r is not a lower-case DNS name of at most %d characters" % (domain, _MAX_DOMAIN)
    if len(identifier) <= _MAX_IDENTIFIER and _IDENTIFIER.fullmatch(identifier):
        return None
    return (
        "%r is not an attribute's name: use NAME or DOMAIN/NAME, with a NAME of at most %d letters, digits and '_', "
        "and no leading digit" % (name, _MAX_IDENTIFIER)
    )


def value_problem(value: bool | int | str) -> str | None:
    """Why Kubernetes would refuse the value of an attribute, or None."""
    if isinstance(value, str):
        return _length_problem(value)
    return None if _SMALLEST <= value <= _LARGEST else "must fit into 64 bits, not %d" % value


def version_problem(text: str) -> str | None:
    """Why Kubernetes would refuse ``text`` for a version, or None."""
    if _VERSION.fullmatch(text):
        return _length_problem(text)
    return f"must be a version of Semantic Versioning 2.0.0, such as 1.2.3, not {text!r}"


def _length_problem(text: str) -> str | None:
    length = len(text.encode())
    return (
        None
        if length <= names.MAX_ATTRIBUTE_TEXT
        else "must have at most %d bytes, not %d" % (names.MAX_ATTRIBUTE_TEXT, length)
    )


def problems(resource: Resource, where: str, driver: str) -> Iterator[Problem]:
    """The problems of a resource with DRA. driver: the name of the driver."""
    yield from _attribute_problems(resource.dra_attributes, where + ".attributes", driver)
    placed = [(place, device.dra_attributes) for place, device in resource.placed_devices(where)]
    for place, own in placed:
        yield from _attribute_problems(own, place + ".attributes", driver)
    for place, own in [(where, {}), *((place, own) for place, own in placed if own)]:
        count = len({**resource.dra_attributes, **own})
        if count > MAX_ATTRIBUTES - OUR_MOST:
            message = "a device may have %d attributes, of which the driver needs %d: declare at most %d, not %d"
            limits = MAX_ATTRIBUTES, OUR_MOST, MAX_ATTRIBUTES - OUR_MOST, count
            yield Problem(place + ".attributes", message % limits)
    if resource.api != DRA:
        return
    for key, default, why in _WITHOUT_COUNTERPART:
        if getattr(resource, key) != default:
            yield Problem(f"{where}.{key}", "has no effect with api: dra, because " + why)


def size_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """A problem if the devices have too many shares for ResourceSlices."""
    if resource.replicas > MAX_SHARES:
        message = "must be at most %d with api: dra, because each share is a device in ResourceSlices" % MAX_SHARES
        yield Problem(where + ".replicas", message)


def _attribute_problems(attributes: Mapping[str, AttributeValue], where: str, driver: str) -> Iterator[Problem]:
    for name in attributes:
        place = f"{where}.{name}"
        message = attribute_name_problem(name)
        domain, slash, identifier = name.rpartition("/")
        if message:
            yield Problem(place, message)
        elif domain == driver:
            yield Problem(place, f"has the driver's own domain: write {identifier}, which means the same")
        elif not slash and name in (RESOURCE_ATTRIBUTE, ID_ATTRIBUTE):
            yield Problem(place, "is set by the driver, and DeviceClasses select by it: choose another name")


def registration_problems(registration: str, resources: Sequence[Resource]) -> Iterator[Problem]:
    """A problem if the way of registration is set, but no resource uses the API that has a choice."""
    if registration != "device_plugins" and resources and DEVICE_PLUGIN not in (each.api for each in resources):
        why = "applies only to device plugins, and every resource has api: dra, which the kubelet always finds in"
        yield Problem("registration", f"{why} plugins_registry: remove it")
