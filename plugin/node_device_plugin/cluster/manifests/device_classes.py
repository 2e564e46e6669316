"""The DeviceClass of a resource with ``api: dra``, by which ResourceClaims and ordinary pods request its devices.

An ordinary pod has the resource in ``limits``. The scheduler then makes a claim for it, if the API server keeps the
field ``extendedResourceName``: from Kubernetes 1.36 on, or with the feature gate DRAExtendedResource.

The annotation NODES of a DeviceClass records the nodes that use it, so that it goes with its last node. Nodes that
no inventory lists are recorded as their DaemonSet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from ...declaration.dra_api import API_VERSION, RESOURCE_ATTRIBUTE
from ...declaration.names import attribute_text, class_name
from .deployment import MANAGED_BY

#: The annotation with the names of nodes, a list in JSON.
NODES = "nodedevices.kubernetes/nodes"
#: Maximum bytes of an object's annotations. Source: TotalAnnotationSizeLimitB of k8s.io/apimachinery.
MOST_BYTES = 256 << 10
#: Selects the DeviceClasses of this project.
SELECTOR = ",".join(f"{key}={value}" for key, value in MANAGED_BY.items())


def profile(namespace: str, name: str) -> str:
    """What the record has for a DaemonSet that serves nodes without names. No node has such a name."""
    return f"{namespace}/{name}"


def content(driver: str, resource: str, nodes: Collection[str], is_named: bool = True) -> dict[str, Any]:
    """The DeviceClass of a resource. driver: the name of the DRA driver. nodes: those that use the class.

    is_named: whether it has an extendedResourceName.
    """
    # If a device has no such attribute, the scheduler would not look at any other node for the pod. Each device of the
    # plugin has it, but whoever has a pod's token can publish one without it.
    attribute = f'device.attributes["{driver}"].{RESOURCE_ATTRIBUTE}'
    expression = f'device.driver == "{driver}" && has({attribute}) && {attribute} == "{attribute_text(resource)}"'
    return {
        "apiVersion": API_VERSION,
        "kind": "DeviceClass",
        "metadata": {
            "name": class_name(resource),
            "labels": dict(MANAGED_BY),
            "annotations": record(nodes),
        },
        "spec": {
            "selectors": [{"cel": {"expression": expression}}],
            **({"extendedResourceName": resource} if is_named else {}),
        },
    }


def record(nodes: Collection[str]) -> dict[str, str]:
    """The annotation for the nodes that use a DeviceClass."""
    return {NODES: json.dumps(sorted(nodes))}


def size(device_class: Mapping[str, Any]) -> int:
    """The bytes of a DeviceClass's annotations, as Kubernetes counts them."""
    annotations = device_class["metadata"]["annotations"].items()
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations)


def resource_of(device_class: Mapping[str, Any]) -> str:
    """The name by which ordinary pods request devices of a DeviceClass, of whatever owner; empty if it has none."""
    return str(device_class["spec"].get("extendedResourceName") or "")


def nodes_of(device_class: Mapping[str, Any]) -> frozenset[str]:
    """The nodes that use a DeviceClass. Without a readable record, the class has no nodes."""
    text = (device_class["metadata"].get("annotations") or {}).get(NODES)
    try:
        found = json.loads(text or "[]")
    except (RecursionError, ValueError):
        return frozenset()
    return frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()
