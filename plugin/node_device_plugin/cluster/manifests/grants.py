"""The rights of the pods' token, and the policies that limit them to the pod's own node.

A role cannot limit a right to the pod's own node. Therefore a policy of the API server compares the node in a request
with the token's claim (default from Kubernetes 1.30 on).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..in_pod import DIRECTORY
from .deployment import Deployment

_ADMISSION, _RBAC = "admissionregistration.k8s.io/v1", "rbac.authorization.k8s.io"
#: Argo CD orders the objects of a wave by kind: the bindings of roles before the policies. The default wave is 0.
_BEFORE = {"argocd.argoproj.io/sync-wave": "-1"}
#: The claim of a token that is bound to a pod.
_CLAIM = "authentication.kubernetes.io/node-name"
#: Seconds until a token expires. The kubelet renews it earlier.
_TOKEN = 3600
_VOLUME = "service-account"


class Policy(NamedTuple):
    """A policy that limits the rights of the pods' token.

    why: what it allows, as a comment for readers. matches: the requests that it judges, as a rule of matchConstraints.
    variables, validations: as in the object, after those that every policy has.
    """

    why: str
    matches: Mapping[str, Any]
    variables: Sequence[Mapping[str, str]]
    validations: Sequence[Mapping[str, str]]


class Grant(NamedTuple):
    """Rights, with the policy that limits them.

    name: of the objects. why: of the rights, as a comment. rules: of the ClusterRole.
    """

    name: str
    why: str
    rules: Sequence[Mapping[str, Any]]
    policy: Policy


def objects(
    deployment: Deployment, grants: Sequence[Grant], metadata: Mapping[str, Any], labels: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects in the order in which to create them: each with the reason for its settings. None without a grant.

    The pods have a right only while its role and its binding are there. The policy is there at that time, also if the
    objects are deleted in this order, as ``kubectl delete --filename`` does. metadata: of objects in the namespace.
    labels: of objects without a namespace.
    """
    if not grants:
        return
    account = {"kind": "ServiceAccount", "name": deployment.name, "namespace": deployment.namespace}
    yield (
        "The user of the pods. Only the plugin's own volume mounts its token.",
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": dict(metadata),
            "automountServiceAccountToken": False,
        },
    )
    for name, why, rules, policy in grants:
        named = {"name": name, "labels": dict(labels)}
        limiting = {**named, "annotations": dict(_BEFORE)}
        yield (
            f"The pods' rights, once they are bound below. {why}",
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "ClusterRole",
                "metadata": named,
                "rules": [dict(rule) for rule in rules],
            },
        )
        yield (
            f"Limits these rights: {policy.why}",
            {
                "apiVersion": _ADMISSION,
                "kind": "ValidatingAdmissionPolicy",
                "metadata": limiting,
                "spec": _spec(deployment, policy),
            },
        )
        yield (
            "Turns the policy on.",
            {
                "apiVersion": _ADMISSION,
                "kind": "ValidatingAdmissionPolicyBinding",
                "metadata": limiting,
                "spec": {"policyName": name, "validationActions": ["Deny"]},
            },
        )
        yield (
            "Gives the pods these rights. Create it after the policy, and delete the role before the policy.",
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": named,
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
                "subjects": [account],
            },
        )


def cluster_name(deployment: Deployment) -> str:
    """The name of the objects without a namespace. Neither part contains a dot, so no two deployments share a name."""
    return f"{deployment.name}.{deployment.namespace}"


def volume() -> dict[str, Any]:
    """The volume with the token and the API server's authority."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": _TOKEN}}
    authority = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    return {"name": _VOLUME, "projected": {"sources": [token, authority]}}


def mount() -> dict[str, Any]:
    """The volume's mount."""
    return {"name": _VOLUME, "mountPath": DIRECTORY, "readOnly": True}


def _spec(deployment: Deployment, policy: Policy) -> dict[str, Any]:
    user = f"system:serviceaccount:{deployment.namespace}:{deployment.name}"
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [dict(policy.matches)]},
        "matchConditions": [{"name": "is-the-plugin", "expression": f"request.userInfo.username == '{user}'"}],
        "variables": [
            {"name": "node", "expression": f"request.userInfo.?extra[?'{_CLAIM}'][0].orValue('')"},
            *map(dict, policy.variables),
        ],
        "validations": [
            {
                "expression": "variables.node != ''",
                "message": "the token names no node: the plugin needs the token of a pod on a node",
            },
            *map(dict, policy.validations),
        ],
    }
