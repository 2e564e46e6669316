"""The settings of the DaemonSet: everything except the nodes' own configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...declaration import DeclarationError, Problem, names, schema
from ...declaration.fields import form
from ...declaration.schema import Field, normalise
from .. import quantity
from ..node_readiness import Taint

#: Measured: 45 MiB resident with 10 resources of 100 devices each (`python -m bench needs`). The limit is twice as
#: high, because the kernel kills a plugin that reaches the limit, and then the node loses its devices.
_MEMORY_LIMIT = "96Mi"

#: A busy node divides its CPU time by the pods' requests (cpu.weight), and pod admission waits for the plugin.
#: Seen once, on two cores with about thirty busy processes: Allocate took 310 ms on average with 10m, and 140 ms with
#: 100m.
_CPU = "100m"

#: A DNS-1123 label, because the DaemonSet's name is also part of its pods' names and a label's value.
_LABEL = form(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "lower-case letters, digits and '-' (not at an end), at most 63")
#: An identifier of the policy language, not a whole context (user:role:type:level).
_SELINUX_TYPE = form(r"[A-Za-z][A-Za-z0-9_.-]*", "the name of an SELinux type, such as container_device_plugin_t")
_UNAVAILABLE = form(r"[1-9][0-9]{0,3}|[1-9][0-9]?%|100%", "a number, 1 or more, or 1% to 100%")


def _object_name(name: str) -> str | None:
    is_name = names.is_object_name(name)
    return None if is_name else f"must be lower-case letters, digits, and '-' or '.' (not at an end), not {name!r}"


def _taint(text: str) -> str | None:
    try:
        return names.label_key_problem(Taint.of(text).key)
    except ValueError as error:
        return str(error)


TOLERATION: dict[str, Field] = {
    "key": schema.text("Key of the tolerated taint. If left out, every key is tolerated."),
    "operator": schema.text(
        "Exists tolerates any value of the taint. Equal (Kubernetes' default) tolerates only the given value.",
        choices=("Exists", "Equal"),
    ),
    "value": schema.text("Value of the tolerated taint, for Equal."),
    "effect": schema.text(
        "Effect of the tolerated taint. If left out, every effect is tolerated.",
        choices=("NoSchedule", "PreferNoSchedule", "NoExecute"),
    ),
}

RESOURCES: dict[str, Field] = {
    "requests": Field(
        "dict",
        "CPU and memory that the scheduler reserves for a pod.",
        default={"cpu": _CPU, "memory": "64Mi"},
        elements="str",
    ),
    "limits": Field(
        "dict",
        "Maximum CPU and memory of a pod. Do not set a CPU limit: while the plugin is throttled, pod admission waits.",
        default={"memory": _MEMORY_LIMIT},
        elements="str",
    ),
}

#: Every key of a deployment.
DEPLOYMENT: dict[str, Field] = {
    "image": schema.text("Image of the plugin.", required=True, rule=form(r"\S+", "an image name without spaces")),
    "image_pull_policy": schema.text(
        "When the kubelet pulls the image: only if the node does not have it (IfNotPresent), always, or never.",
        default="IfNotPresent",
        choices=("IfNotPresent", "Always", "Never"),
    ),
    "image_pull_secrets": schema.texts(
        "Secrets in the namespace that the kubelet uses to pull the image.", rule=_object_name
    ),
    "namespace": schema.text(
        "Namespace of all objects. A run creates a missing namespace. The uninstall removes the namespace, unless it "
        "existed before or has other users.",
        default="node-devices",
        rule=_LABEL,
    ),
    "name": schema.text(
        "Name of the DaemonSet, the ConfigMap and the monitors. Nodes whose kubelets use different directories need a "
        "second DaemonSet with a different name.",
        default="node-device-plugin",
        rule=_LABEL,
    ),
    "node_selector": schema.named_texts(
        "Labels of the DaemonSet's nodes, such as those of a node pool. A play then sets no label, and the DaemonSet "
        "does not serve nodes that a play has labelled for another DaemonSet. If empty, the DaemonSet serves the nodes "
        "with the label nodedevices.kubernetes/device-plugin=NAME, which a play sets.",
    ),
    "priority_class": schema.text(
        "Priority class of the pods. If empty, the cluster's default applies. On a full node, the scheduler preempts "
        "pods of lower priority to place the plugin's pod.",
        default="system-node-critical",
        rule=lambda name: _object_name(name) if name else None,
    ),
    "selinux_type": schema.text(
        "SELinux type of the plugin's container, such as container_device_plugin_t. If left out, the runtime chooses.",
        rule=_SELINUX_TYPE,
    ),
    "tolerations": Field(
        "list",
        "Taints that the pods tolerate. By default, they tolerate every taint.",
        default=[{"operator": "Exists"}],
        elements="dict",
        fields=TOLERATION,
    ),
    "startup_taint": schema.text(
        "Taint with which new nodes join, as KEY:EFFECT, such as nodedevices.kubernetes/not-ready:NoSchedule. The "
        "pods tolerate this taint, and remove it once the node object shows the devices as allocatable. For a node "
        "with the plugin as a service, the play removes the taint. If left out, no taint is removed.",
        rule=_taint,
    ),
    "node_condition": Field(
        "bool",
        "Whether the pods keep the condition NodeDevicesReady of their node. Like startup_taint, this gives the pods "
        "a token and the right to change their own node object.",
        default=False,
    ),
    "resources": Field("dict", "CPU and memory of a pod.", default={}, fields=RESOURCES),
    "max_unavailable": schema.text(
        "How many pods an update may replace at the same time: a number, or a percentage of the nodes. If pods "
        "overlap, this value has no effect, and an update replaces one pod after the other.",
        default="10%",
        rule=_UNAVAILABLE,
    ),
    "overlap": schema.text(
        "Whether a node's new pod serves before the old one ends, so that the kubelet always has the devices. This "
        "requires kubelet 1.37 or later on all nodes, unless all resources have api: dra. auto: pods overlap only if "
        "a play finds such kubelets on all nodes, or if all resources have api: dra. The command node-device-plugin "
        "manifests cannot check the kubelets, so with auto its pods overlap only in the second case. Set never for "
        "an older image.",
        default="auto",
        choices=("auto", "always", "never"),
    ),
    "pod_monitor": Field(
        "bool", "Whether to create a PodMonitor, so that the Prometheus operator scrapes the pods.", default=False
    ),
    "alert_rules": Field("bool", "Whether to create a PrometheusRule with the plugin's alerts.", default=False),
    "monitoring_labels": schema.named_texts("Labels with which your Prometheus selects PodMonitors and rules."),
}

#: The label of a node whose devices a DaemonSet serves. The label's value is the DaemonSet's name.
NODE_LABEL = "nodedevices.kubernetes/device-plugin"
#: The label of every object that we may change, and of a namespace that we may remove.
MANAGED_BY = {"app.kubernetes.io/managed-by": "nodedevices"}
# The container resources without a domain (IsStandardContainerResourceName), except hugepages-SIZE.
_STANDARD = ("cpu", "memory", "ephemeral-storage")


class Deployment(NamedTuple):
    """A parsed deployment with the fields of DEPLOYMENT."""

    image: str
    image_pull_policy: str
    image_pull_secrets: tuple[str, ...]
    namespace: str
    name: str
    node_selector: Mapping[str, str]
    priority_class: str
    selinux_type: str | None
    tolerations: tuple[Mapping[str, str], ...]
    startup_taint: str | None
    node_condition: bool
    resources: Mapping[str, Mapping[str, str]]
    max_unavailable: int | str
    overlap: str
    pod_monitor: bool
    alert_rules: bool
    monitoring_labels: Mapping[str, str]

    @property
    def selector(self) -> Mapping[str, str]:
        """The labels of the DaemonSet's nodes."""
        return self.node_selector or {NODE_LABEL: self.name}

    @property
    def tells_node(self) -> bool:
        """Whether the pods change their node object, so that they need a token."""
        return bool(self.startup_taint) or self.node_condition


def _resource_problems(resources: Mapping[str, Mapping[str, str]]) -> Iterator[Problem]:
    """The problems of a pod's resources. The API server would report them only after it has stored other objects."""
    for kind in ("requests", "limits"):
        for name, text in resources[kind].items():
            if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
                message = "is not a resource of a container; known resources: {}".format(", ".join(_STANDARD))
                yield Problem(f"resources.{kind}.{name}", message)
                continue
            number = quantity.number(text)
            if number is None or number < 0:
                message = f"must be a quantity such as 96Mi or 100m, not {text!r}"
                yield Problem(f"resources.{kind}.{name}", message)
    for name, limit in resources["limits"].items():
        request = resources["requests"].get(name)
        asked, most = quantity.number(request), quantity.number(limit)
        if asked is not None and most is not None and asked > most >= 0:
            message = f"{request} is more than limits.{name} ({limit}), which Kubernetes refuses: change one of them"
            yield Problem(f"resources.requests.{name}", message)


def _toleration_problems(tolerations: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    for position, toleration in enumerate(tolerations):
        where = "tolerations[%d]." % position
        key, value = toleration.get("key"), toleration.get("value")
        if toleration.get("operator") == "Exists" and value is not None:
            yield Problem(where + "value", "must not be set with operator Exists: remove it")
        elif value is not None and names.label_value_problem(value):
            yield Problem(where + "value", str(names.label_value_problem(value)))
        if not key:
            if toleration.get("operator") != "Exists":
                yield Problem(where + "key", "is missing: only operator Exists works without a key")
        elif names.label_key_problem(key):
            yield Problem(where + "key", str(names.label_key_problem(key)))


def _label_problems(field: str, labels: Mapping[str, str]) -> Iterator[Problem]:
    for key, value in labels.items():
        where = f"{field}.{key}"
        if key in MANAGED_BY:
            # With another value, the next run would treat the monitors as foreign.
            yield Problem(where, "is reserved, because it marks the objects of this project: remove it")
        if key == NODE_LABEL:
            yield Problem(where, "is reserved, because plays set it: remove it, and the DaemonSet's name selects nodes")
        for message in (names.label_key_problem(key), names.label_value_problem(value)):
            if message:
                yield Problem(where, message)


def parse_deployment(raw: Mapping[str, Any], where: str = "") -> Deployment:
    """Read a deployment. Raises DeclarationError with all problems.

    where: a prefix for the keys in messages.
    """
    problems: list[Problem] = []
    number = raw.get("max_unavailable")
    if isinstance(number, int) and not isinstance(number, bool):
        raw = {**raw, "max_unavailable": str(number)}
    data = normalise(raw, Field("dict", "", fields=DEPLOYMENT), "", problems)
    said = {problem.where for problem in problems}
    problems.extend(problem for problem in _resource_problems(data["resources"]) if problem.where not in said)
    problems.extend(_toleration_problems(data["tolerations"]))
    for field in ("node_selector", "monitoring_labels"):
        problems.extend(_label_problems(field, data[field]))
    if problems:
        raise DeclarationError([Problem(where + problem.where, problem.message) for problem in problems])
    unavailable = data["max_unavailable"]
    return Deployment(
        **{
            **data,
            "tolerations": tuple(
                {key: value for key, value in each.items() if value is not None} for each in data["tolerations"]
            ),
            "max_unavailable": int(unavailable) if unavailable.isdigit() else unavailable,
        }
    )
