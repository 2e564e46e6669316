"""The rights that pods need as the node's DRA driver: to keep ResourceSlices, and to read claims."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from .deployment import Deployment
from .grants import Grant, Policy, cluster_name

_GROUP = "resource.k8s.io"


def name(deployment: Deployment) -> str:
    """The name of the objects."""
    return f"{cluster_name(deployment)}.resourceslices"


def grants(deployment: Deployment, drivers: Collection[str]) -> Iterator[Grant]:
    """Yield what the pods need, if they serve DRA drivers. drivers: the drivers' names."""
    if not drivers:
        return
    names = ", ".join(f"'{each}'" for each in sorted(drivers))
    policy = Policy(
        why="a token may change only the ResourceSlices of its pod's node, and there only the\nplugin's.",
        matches={
            "apiGroups": [_GROUP],
            # Every version, because the role has them all. The paths below are the same in each.
            "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["resourceslices"],
        },
        # A new slice has no old object, and a deleted one no new object.
        variables=[{"name": "slices", "expression": "[dyn(object), dyn(oldObject)].filter(each, each != null)"}],
        validations=[
            _each(
                "each.spec.?nodeName.orValue('') == variables.node", "the slice is not of the node of the token's pod"
            ),
            _each(f"each.spec.driver in [{names}]", "the slice is not of the plugin's DRA driver"),
            # With a pool of this name and a higher generation, a node could hide another node's devices.
            _each(
                "each.spec.pool.name.startsWith(variables.node + '/')", "the slice's pool is not of the token's node"
            ),
            # A slice with a finalizer would stay after the pod and its node.
            {
                "expression": "object == null || object.metadata.?finalizers.orValue([]).all(each, oldObject != null "
                "&& each in oldObject.metadata.?finalizers.orValue([]))",
                "message": "the slice has a new finalizer",
            },
        ],
    )
    yield Grant(
        name(deployment),
        "The slices' owner is the Node, whose uid the driver has to read. A claim shows what was allocated.",
        [
            # The driver follows the slices of its node by a watch, and reads no single slice.
            _rule(_GROUP, "resourceslices", "list", "watch", "create", "update", "delete"),
            _rule(_GROUP, "resourceclaims", "get"),
            _rule("", "nodes", "get"),
        ],
        policy,
    )


def _each(condition: str, message: str) -> dict[str, str]:
    return {"expression": f"variables.slices.all(each, {condition})", "message": message}


def _rule(group: str, resource: str, *verbs: str) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
