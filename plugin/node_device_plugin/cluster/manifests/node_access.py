"""The objects that let a pod change its own node object: the startup taint, and the condition NodeDevicesReady.

A role cannot limit a right to the pod's own node. Therefore a policy of the API server compares the node's name with
the token's claim (default from Kubernetes 1.30 on), and the new object with the old one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ..in_pod import DIRECTORY
from ..node_readiness import CONDITION, Taint
from .deployment import Deployment

_ADMISSION, _RBAC = "admissionregistration.k8s.io/v1", "rbac.authorization.k8s.io/v1"
#: The claim of a token that is bound to a pod.
_CLAIM = "authentication.kubernetes.io/node-name"
#: Seconds until a token expires. The kubelet renews it earlier.
_TOKEN = 3600
_VOLUME = "service-account"
#: The plugin's option that makes it set the condition.
CONDITION_OPTION = "--node-condition"


def objects(
    deployment: Deployment, metadata: Mapping[str, Any], labels: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in the order in which to create them: each with the reason for its settings.

    The policy comes before the rights. metadata: of objects in the namespace. labels: of objects without a namespace.
    """
    if not deployment.tells_node:
        return
    account = {"kind": "ServiceAccount", "name": deployment.name, "namespace": deployment.namespace}
    # A policy's name is unique in the cluster.
    of_cluster = {"name": cluster_name(deployment), "labels": dict(labels)}
    yield (
        "The user of the pods. Only the plugin's own volume mounts its token.",
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": dict(metadata),
            "automountServiceAccountToken": False,
        },
    )
    yield (
        "Limits the rights below: a token may change only the node of its pod, and there only what the plugin must\n"
        "change. Create the policy before the rights.",
        {
            "apiVersion": _ADMISSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": of_cluster,
            "spec": _policy(deployment),
        },
    )
    yield (
        "Turns the policy on.",
        {
            "apiVersion": _ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": of_cluster,
            "spec": {"policyName": of_cluster["name"], "validationActions": ["Deny"]},
        },
    )
    parts = [
        *(["nodes"] if deployment.startup_taint else []),
        *(["nodes/status"] if deployment.node_condition else []),
    ]
    yield (
        "The pods' rights. The answer to a patch shows the node, so the pods need no right to read.",
        {
            "apiVersion": _RBAC,
            "kind": "ClusterRole",
            "metadata": of_cluster,
            "rules": [{"apiGroups": [""], "resources": parts, "verbs": ["patch"]}],
        },
    )
    yield (
        "Gives the pods their rights.",
        {
            "apiVersion": _RBAC,
            "kind": "ClusterRoleBinding",
            "metadata": of_cluster,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": of_cluster["name"]},
            "subjects": [account],
        },
    )


def cluster_name(deployment: Deployment) -> str:
    """The name of the objects without a namespace. Neither part contains a dot, so no two deployments share a name."""
    return f"{deployment.name}.{deployment.namespace}"


def options(deployment: Deployment) -> list[str]:
    """The plugin's options."""
    return [
        *(["--startup-taint", deployment.startup_taint] if deployment.startup_taint else []),
        *([CONDITION_OPTION] if deployment.node_condition else []),
    ]


def volume() -> dict[str, Any]:
    """The volume with the token and the API server's authority."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN}}
    authority = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    return {"name": _VOLUME, "projected": {"sources": [token, authority]}}


def mount() -> dict[str, Any]:
    """The volume's mount."""
    return {"name": _VOLUME, "mountPath": DIRECTORY, "readOnly": True}


def _policy(deployment: Deployment) -> dict[str, Any]:
    user = f"system:serviceaccount:{deployment.namespace}:{deployment.name}"
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["UPDATE"],
                    "resources": ["nodes", "nodes/status"],
                }
            ]
        },
        "matchConditions": [{"name": "is-the-plugin", "expression": f"request.userInfo.username == '{user}'"}],
        "variables": [
            {"name": "node", "expression": f"request.userInfo.?extra[?'{_CLAIM}'][0].orValue('')"},
            *(
                {"name": f"{age}{part.title()}", "expression": f"dyn({source}).?{part}.orValue({{}})"}
                for age, source in (("old", "oldObject"), ("new", "object"))
                for part in ("metadata", "spec", "status")
            ),
        ],
        "validations": [
            {
                "expression": "variables.node != ''",
                "message": "the token names no node: the plugin needs the token of a pod on a node",
            },
            {"expression": "variables.node == request.name", "message": "the token is of a pod on another node"},
            *_equal("Metadata", but=["managedFields"]),
            *_equal("Spec", but=["taints"]),
            _same_list("Spec", "taints", _without_taint(deployment.startup_taint)),
            *_equal("Status", but=["conditions"]),
            _same_list("Status", "conditions", _without_condition(deployment.node_condition)),
        ],
    }


def _equal(part: str, but: Collection[str]) -> Iterator[dict[str, str]]:
    """Rules that a part of the node object is equal to the old one, except the keys in ``but``."""
    old, new = f"variables.old{part}", f"variables.new{part}"
    keys = " || ".join(f"key == '{each}'" for each in but)
    message = f"the plugin must not change the node's {part.lower()}"
    yield {"expression": f"{new}.all(key, {keys} || (key in {old} && {old}[key] == {new}[key]))", "message": message}
    yield {"expression": f"{old}.all(key, {keys} || key in {new})", "message": message}


def _same_list(part: str, key: str, changed: str) -> dict[str, str]:
    """A rule that a list is equal to the old one, or differs only as ``changed`` says."""
    old, new = (f"variables.{age}{part}.?{key}.orValue([])" for age in ("old", "new"))
    expression = f"{new} == {old}" + (changed.format(old=old, new=new) if changed else "")
    return {"expression": expression, "message": f"the plugin must not change the node's other {key}"}


def _without_taint(text: str | None) -> str:
    if not text:
        return ""
    taint = Taint.of(text)
    kept = f"!(each.key == '{taint.key}' && each.effect == '{taint.effect}')"
    return " || {new} == {old}.filter(each, " + kept + ")"


def _without_condition(is_set: bool) -> str:
    if not is_set:
        return ""
    others = f".filter(each, each.type != '{CONDITION}')"
    return (
        " || ({new}"
        + others
        + " == {old}"
        + others
        + f" && {{new}}.filter(each, each.type == '{CONDITION}').size() < 2)"
    )
