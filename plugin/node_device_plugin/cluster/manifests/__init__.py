"""Renders the plugin as a DaemonSet: every object that a cluster needs, from the nodes' configurations.

Only ``files`` reads files. On the controller, Ansible imports the package from the collection's path. Therefore all
modules except ``files`` need only the standard library and Python 3.9. From the rest of the plugin, they import only
the declaration, host directories, socket paths and quantities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ...declaration import Configuration, DeclarationError, Problem
from ...declaration.model import DRA
from ...support.sockets import ALWAYS, CLAIMS_ALONE
from . import device_classes, grants, monitoring, node_access, slice_access
from .deployment import DEPLOYMENT, MANAGED_BY, NODE_LABEL, Deployment, parse_deployment
from .grants import cluster_name
from .nodes import (
    DEFAULT,
    CommonGround,
    common_ground,
    configuration_text,
    overlaps,
    read_configuration_text,
    sha256_of,
)
from .pod import CONTAINER, DEFAULT_ACCOUNT, pod_spec, pods_overlap, reads_default

# What other packages use of the modules.
__all__ = [
    "CONTAINER",
    "DEFAULT",
    "DEPLOYMENT",
    "MANAGED_BY",
    "NODE_LABEL",
    "CommonGround",
    "Deployment",
    "common_ground",
    "configuration_text",
    "overlaps",
    "parse_deployment",
    "pods_overlap",
    "read_configuration_text",
    "reads_default",
    "sha256_of",
]

#: Labels of every DaemonSet of the plugin.
LABELS = {"app.kubernetes.io/name": "node-device-plugin", **MANAGED_BY}
#: The API server's limit for all data of a ConfigMap, in bytes.
_LARGEST_CONFIG_MAP = 1 << 20


class Manifest(NamedTuple):
    """An object. why: the reason for its settings, as a comment for readers."""

    why: str
    content: dict[str, Any]


def render(deployment: Deployment, configurations: Mapping[str, Configuration]) -> list[Manifest]:
    """All objects, in the order in which to apply them.

    configurations: maps each node, or DEFAULT for all other nodes, to its configuration. Raises DeclarationError with
    all problems.
    """
    ground = common_ground(configurations)
    texts = {node: configuration_text(configurations[node]) for node in sorted(configurations)}
    require_room(texts)
    return [
        namespace(deployment),
        *rights(deployment, ground.drivers),
        config_map(deployment, texts),
        daemon_set(deployment, ground),
        *_device_classes(deployment, configurations.values()),
        *monitors(deployment),
    ]


def require_room(texts: Mapping[str, str]) -> None:
    """Raise DeclarationError if the nodes' configurations do not fit in a ConfigMap. texts: by node."""
    size = sum(len(node) + len(text.encode("utf-8")) for node, text in texts.items())
    if size > _LARGEST_CONFIG_MAP:
        message = "have configurations of %d bytes, but a ConfigMap holds at most %d: use several DaemonSets"
        raise DeclarationError([Problem("nodes", (message + " (name)") % (size, _LARGEST_CONFIG_MAP))])


def namespace(deployment: Deployment) -> Manifest:
    """The namespace of all objects."""
    return Manifest(
        "Pod Security allows directories of the host (hostPath) only at the level privileged. The pods themselves are\n"
        "not privileged: they drop every capability, and see only the directories of their volumes.",
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": deployment.namespace,
                "labels": {**MANAGED_BY, "pod-security.kubernetes.io/enforce": "privileged"},
            },
        },
    )


def config_map(deployment: Deployment, texts: Mapping[str, str]) -> Manifest:
    """The ConfigMap with the nodes' configurations. texts: maps each node, or DEFAULT, to its file's text."""
    return Manifest(
        f"The configuration of each node, in a key with the node's name. {DEFAULT} is the one of every other node.\n"
        "Running pods apply a change without a restart.",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(deployment),
            **({"data": dict(texts)} if texts else {}),
        },
    )


def rights(deployment: Deployment, drivers: Collection[str] = ()) -> list[Manifest]:
    """The objects that give the pods their rights in the cluster, in the order in which to create them.

    drivers: the DRA drivers that the pods serve. Without a setting that needs a right, there are no objects.
    """
    labels = {**_labels(deployment), **MANAGED_BY}
    granted = [*node_access.grants(deployment), *slice_access.grants(deployment, drivers)]
    return [Manifest(*each) for each in grants.objects(deployment, granted, metadata(deployment), labels)]


def grant_names(deployment: Deployment) -> list[str]:
    """The names of all objects without a namespace that ``rights`` may have."""
    return [cluster_name(deployment), slice_access.name(deployment)]


def daemon_set(deployment: Deployment, ground: CommonGround, kubelets_overlap: bool = False) -> Manifest:
    """The DaemonSet. kubelets_overlap: whether every kubelet accepts two sockets of a resource (overlap ``auto``)."""
    labels = _labels(deployment)
    overlap = _overlap(deployment, ground, kubelets_overlap)
    pod = pod_spec(deployment, ground, _affinity(deployment), overlap)
    if overlap:
        accepts = "from 1.37 on accepts both" if overlap == ALWAYS else "accepts two sockets of a DRA driver"
        why = (
            "A pod on each selected node. An update starts the new pod before the old pod ends: a kubelet\n"
            f"{accepts}, so that the node always has its devices."
        )
        update: dict[str, Any] = {"maxSurge": 1, "maxUnavailable": 0}
    else:
        why = (
            "A pod on each selected node. An update ends the old pod before the new pod starts: when the\n"
            "stream of the old instance ends, a kubelet up to 1.36 drops the plugin that is registered by that name,\n"
            "even if it is the new instance (kubernetes#127803)."
        )
        update = {"maxSurge": 0, "maxUnavailable": deployment.max_unavailable}
    return Manifest(
        why,
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": metadata(deployment),
            "spec": {
                "selector": {"matchLabels": labels},
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": update},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    )


def _device_classes(deployment: Deployment, configurations: Iterable[Configuration]) -> Iterator[Manifest]:
    """Yield the DeviceClass of each resource that pods get by claims. A play keeps it as long as the DaemonSet.

    Raises DeclarationError if a resource has several drivers.
    """
    found: dict[str, str] = {}
    for configuration in configurations:
        driver = configuration.dra.name
        for name in (resource.name for resource in configuration.resources if resource.api == DRA):
            if found.setdefault(name, driver) != driver:
                why = f"is {driver} for some nodes and {found[name]} for others, but {name} has one DeviceClass"
                raise DeclarationError([Problem("dra.driver", why)])
    user = device_classes.profile(deployment.namespace, deployment.name)
    for name, driver in sorted(found.items()):
        yield Manifest(
            f"By this class, ResourceClaims request {name}. From Kubernetes 1.36 on, pods with the resource in their\n"
            "limits request it, too; an older API server drops extendedResourceName.",
            device_classes.content(driver, name, [user]),
        )


def _overlap(deployment: Deployment, ground: CommonGround, kubelets_overlap: bool) -> str:
    """How the pods overlap: a value of the variable OVERLAP, or empty.

    Every kubelet with the API v1 of DRA (1.34) accepts two sockets of a driver: it calls the newer one
    (pkg/kubelet/cm/dra/plugin of Kubernetes).
    """
    if deployment.overlap == "always" or (deployment.overlap == "auto" and kubelets_overlap):
        return ALWAYS
    serves_claims_alone = ground.drivers and not ground.serves_device_plugins
    return CLAIMS_ALONE if deployment.overlap == "auto" and serves_claims_alone else ""


def monitors(deployment: Deployment) -> list[Manifest]:
    """The objects for the Prometheus operator that the deployment requests."""
    found = []
    if deployment.pod_monitor:
        content = monitoring.pod_monitor(_monitor_metadata(deployment), _labels(deployment))
        found.append(Manifest("For the Prometheus operator: scrape every pod.", content))
    if deployment.alert_rules:
        content = monitoring.prometheus_rule(_monitor_metadata(deployment))
        found.append(Manifest("For the Prometheus operator: the plugin's alerts.", content))
    return found


def pod_rights(spec: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether pods of this spec have rights in the cluster, and whether they set their node's condition."""
    has_condition = any(node_access.CONDITION_OPTION in (each.get("args") or ()) for each in spec["containers"])
    return spec.get("serviceAccountName", DEFAULT_ACCOUNT) != DEFAULT_ACCOUNT, has_condition


def metadata(deployment: Deployment) -> dict[str, Any]:
    """The metadata of every object in the namespace."""
    return {
        "name": deployment.name,
        "namespace": deployment.namespace,
        "labels": {**_labels(deployment), **MANAGED_BY},
    }


def _monitor_metadata(deployment: Deployment) -> dict[str, Any]:
    common = metadata(deployment)
    return {**common, "labels": {**common["labels"], **deployment.monitoring_labels}}


def _labels(deployment: Deployment) -> dict[str, str]:
    return {"app.kubernetes.io/name": "node-device-plugin", "app.kubernetes.io/instance": deployment.name}


def _affinity(deployment: Deployment) -> dict[str, Any]:
    selected = {"nodeSelector": dict(deployment.selector)}
    if not deployment.node_selector:
        return selected
    # A label that a play has set may choose another DaemonSet, so no node has two.
    chosen = {"key": NODE_LABEL, "operator": "In", "values": [deployment.name]}
    either = ({"key": NODE_LABEL, "operator": "DoesNotExist"}, chosen)
    return {**selected, **_required(*({"matchExpressions": [each]} for each in either))}


def on_node(node: str) -> dict[str, Any]:
    """The part of a pod spec that selects a node by its name."""
    return _required({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]})


def _required(*alternatives: Mapping[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(alternatives)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
