# SPDX-License-Identifier: Apache-2.0
"""Makes the rows of a node's resources, with their shares, states and reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster import extended_resources, quantity
from ....plugin.node_device_plugin.declaration import model

#: Maps states to severities, worst first. A row shows the severity as colour and the state as text.
STATES = {
    "not served": "failed",
    "not registered": "failed",
    "without CDI": "failed",
    "unhealthy": "failed",
    "degraded": "degraded",
    "not as declared": "degraded",
    "not declared": "degraded",
    "unknown": "unknown",
    "pending": "pending",
    "left behind": "idle",
    "empty": "idle",
    "healthy": "ok",
}


class Served(NamedTuple):
    """A node's report about its devices.

    status: the answer of ``node-device-plugin status``; empty without an answer. Its ``plugin`` is null if no plugin
    answers. The pods that hold devices come from the kubelet or its checkpoint, and the lost devices (``losses``) from
    node_device_plugin.kubelet.losses.
    kubelet: whether a kubelet runs. cdi: whether the running container runtime supports CDI; None if unknown.
    provisioned: False if the plugin is known to be not installed.
    shown: of a node that only the Kubernetes API reaches, the node object's rows by resource
    (node_device_plugin.cluster.extended_resources).
    """

    status: Mapping[str, Any]
    kubelet: bool
    cdi: bool | None
    provisioned: bool
    shown: Mapping[str, Mapping[str, str]]


def of_plugin(declaration: Mapping[str, Any] | None, served: Served) -> Iterator[dict[str, Any]]:
    """Yield a row for each resource that is declared or served.

    declaration: the result of module declaration; None if unreadable. Then no resource counts as undeclared.
    """
    declared = {each["name"]: each for each in (declaration or {}).get("resources", ())}
    plugin = served.status.get("plugin") or {}
    serving = {each["name"]: each for each in plugin.get("resources", ())}
    for name in sorted({*declared, *serving}):
        if name in serving:
            by_cdi = declared.get(name, {}).get("injection", "cdi") == "cdi"
            row = _served(serving[name], served, by_cdi)
            if declaration is not None and name not in declared:
                row["reasons"].append("it is served but not declared: run site.yml to remove it")
                row["state"] = _worse(row["state"], "not declared")
        elif name in served.shown:
            row = _by_node_object(declared[name], served.shown[name])
        else:
            row = _not_served(name, served)
        yield {**row, "declared": None if declaration is None else name in declared}


def of_cluster(rows: list[Mapping[str, str]] | None, capacities: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Yield a row for each fixed count without devices.

    rows: from the node object (node_device_plugin.cluster.extended_resources); None if the node object was not read.
    capacities: the declared counts.
    """
    shown = {row["resource"]: row for row in rows or ()}
    for name in sorted({*capacities, *(name for name, row in shown.items() if row["declared"] != "plugin")}):
        row = shown.get(name)
        base = {**_row(name, "fixed"), "declared": name in capacities}
        if row is None:
            yield {**base, "state": "unknown", "capacity": capacities[name]}
            continue
        yield {
            **base,
            "kind": "plugin" if row["state"] == extended_resources.LEFT_BEHIND else "fixed",
            "state": _of_row(row, capacities.get(name)),
            "capacity": quantity.whole(row["capacity"]),
            "healthy": quantity.whole(row["allocatable"]),
            "reasons": [] if row["state"] == extended_resources.AS_DECLARED else [row["state"]],
        }


def _of_row(row: Mapping[str, str], capacity: int | None) -> str:
    """Return the state of a node object's row. capacity: the declared count; None if none is declared."""
    if row["state"] == extended_resources.AS_DECLARED:
        return "healthy" if capacity else "empty"
    if row["state"] == extended_resources.LEFT_BEHIND and not quantity.whole(row["allocatable"]):
        return "left behind"
    return "not as declared"


def _by_node_object(declared: Mapping[str, Any], shown: Mapping[str, str]) -> dict[str, Any]:
    """Return a declared resource's row with the numbers of the node object, or of the node's ResourceSlices."""
    row, is_by_claim = _row(declared["name"], "plugin"), declared.get("api") == model.DRA
    capacity, healthy = quantity.whole(shown["capacity"]), quantity.whole(shown["allocatable"])
    if capacity is None or healthy is None:
        where = "the node has no ResourceSlice of it" if is_by_claim else "the node object does not list it"
        return {**row, "state": "not registered", "reasons": [where]}
    row.update(capacity=capacity, healthy=healthy, state=_health(capacity, healthy, False))
    if healthy < capacity:
        row["reasons"].append(f"{healthy} of {capacity} are allocatable: the log of the plugin's pod has the reason")
    needed = declared.get("min_devices", 0) * declared.get("replicas", 1)
    if healthy < needed:
        # As kubernetes/api_verification.py judges.
        row["reasons"].append(f"expected at least {needed} healthy devices (min_devices), found {healthy}")
        row["state"] = _worse(row["state"], "degraded")
    return row


def _served(resource: Mapping[str, Any], served: Served, by_cdi: bool) -> dict[str, Any]:
    """Return the row of a served resource. by_cdi: whether its devices are injected by CDI."""
    name, status = resource["name"], served.status
    holders = _holders(name, status)
    devices = [_device(device, holders) for device in resource["devices"]]
    # The plugin does not list an absent device to the kubelet: it is optional and has never passed its checks.
    capacity = sum(device["shares"] for device in devices if device["state"] != "absent")
    healthy = sum(device["shares"] for device in devices if device["state"] == "healthy")
    # An earlier release's command reports no losses.
    losses = [loss["text"] for loss in status.get("losses", ()) if loss["resource"] == name]
    late = [resource["late"]] if resource.get("late") else []
    refused = [f"{identity} is refused: {reason}" for identity, reason in resource["refused"].items()]
    unhealthy = [f"{each['id']}: {each['reason']}" for each in devices if each["state"] == "unhealthy"]
    state = _health(capacity, healthy, bool(refused))
    if losses or late:
        state = _worse(state, "degraded")
    state, at_kubelet = _with_kubelet(state, resource, served, healthy)
    if by_cdi and served.cdi is False and capacity:
        state = _worse(state, "without CDI")
    return {
        **_held_row(name, status),
        "state": state,
        "capacity": capacity,
        "healthy": healthy,
        "reasons": [*at_kubelet, *losses, *unhealthy, *refused, *late],
        "absent": _absent(resource, devices),
        "devices": devices,
    }


def _device(device: Mapping[str, Any], holders: Mapping[str, list[str]]) -> dict[str, Any]:
    held_by = sorted({pod for share in device["kubelet_ids"] for pod in holders.get(share, ())})
    its_own = {key: device[key] for key in ("id", "state", "reason")}
    return {**its_own, "shares": len(device["kubelet_ids"]), "held_by": held_by}


def _with_kubelet(state: str, resource: Mapping[str, Any], served: Served, healthy: int) -> tuple[str, list[str]]:
    """Return the state after a comparison with the kubelet's lists, and the reason if it differs."""
    # An earlier release's plugin does not tell the API.
    is_by_claim = resource.get("api") == model.DRA
    listed = None if is_by_claim else _listed(resource["name"], served.status)
    if not resource["registered"] and served.kubelet:
        if is_by_claim:
            return "not registered", [resource.get("problem") or "the kubelet has not registered the DRA driver"]
        return "not registered", ["the kubelet has no ListAndWatch stream open"]
    if not resource["registered"]:
        return "pending", []
    if is_by_claim and resource.get("problem"):
        return _worse(state, "degraded"), [resource["problem"]]
    if listed is None or listed == healthy:
        return state, []
    return _worse(state, "degraded"), [f"the plugin offers {healthy} healthy, but the kubelet lists {listed}"]


def _absent(resource: Mapping[str, Any], devices: list[dict[str, Any]]) -> list[str]:
    """Return a sentence for each absent device. A resource with devices usually leaves out others on purpose."""
    absent = {each["id"]: each["reason"] for each in devices if each["state"] == "absent"}
    absent = absent if devices else resource.get("left_out", {})
    return [f"without {identity}: {reason}" for identity, reason in absent.items()]


def _not_served(name: str, served: Served) -> dict[str, Any]:
    """Return the row of a declared resource that is not served. If no plugin answers, the node's problems say why."""
    if not served.status:
        return {**_row(name, "plugin"), "state": "unknown" if served.provisioned else "pending"}
    row = {**_held_row(name, served.status), "healthy": _listed(name, served.status)}
    if served.status["plugin"] is not None:
        row["reasons"].append("the running plugin does not serve it: run site.yml")
    return {**row, "state": "not served"}


def _row(name: str, kind: str) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "declared": True,
        "state": "unknown",
        "capacity": None,
        "healthy": None,
        "allocated": None,
        "held_by": [],
        "reasons": [],
        "absent": [],
        "devices": [],
    }


def _health(capacity: int, healthy: int, refused: bool) -> str:
    if capacity and not healthy:
        return "unhealthy"
    if healthy < capacity or refused:
        return "degraded"
    return "healthy" if capacity else "empty"


def _worse(one: str, other: str) -> str:
    return min(one, other, key=list(STATES).index)


def _held_row(name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with the number of shares that pods hold, None if unknown, and these pods."""
    holders = _holders(name, status)
    held_by = sorted({pod for pods in holders.values() for pod in pods})
    allocated = None if status["source"] == "none" else len(holders)
    return {**_row(name, "plugin"), "allocated": allocated, "held_by": held_by}


def _holders(name: str, status: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the pods that hold each share. In the checkpoint, pods have only uids."""
    pods: dict[str, list[str]] = {}
    for held in status["held"]:
        if held["resource"] == name:
            pod = "/".join(part for part in (held["namespace"], held["pod"]) if part)
            pods.setdefault(held["device"], []).append(pod)
    return pods


def _listed(name: str, status: Mapping[str, Any]) -> int | None:
    """Return the kubelet's number of healthy shares; None if only the checkpoint is known, which has no health."""
    return len(status["allocatable"].get(name, ())) if status["source"] == "kubelet" else None
