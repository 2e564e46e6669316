# SPDX-License-Identifier: Apache-2.0
"""Proves through the Kubernetes API what a node has; see plugins/modules/api_verification.py."""

from __future__ import annotations

import time

from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig, quantity
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError, Unavailable
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.extended_resources import (
    capacities_of,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import (
    DeclarationError,
    parse_configuration,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.expectations import (
    expected_in_container,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification import container_view
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification.proof_record import Record
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import task_arguments
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import deployed, proof, proven
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError

# Seconds between two looks at a node object.
_PAUSE = 1.0


class ActionModule(ActionBase):
    """Speaks to the API server from the controller, and to nothing else."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        host = (task_vars or {}).get("inventory_hostname", "")
        arguments = task_arguments.of(self)
        if self._task.check_mode:
            return {**result, "skipped": True, "msg": "a proof needs a pod, which check mode does not make"}
        try:
            if not arguments.get("kubeconfig"):
                raise DeploymentError(
                    "what only the Kubernetes API reaches is proven through it: set node_devices_kubeconfig"
                )
            cluster = DaemonSet(
                Api(kubeconfig.read(arguments["kubeconfig"])), deployed.parse(arguments.get("deployment", {}))
            )
            report, changed = _verify(cluster, arguments.get("node_name") or host, arguments)
        except (ApiError, DeclarationError, DeploymentError, kubeconfig.KubeconfigError) as error:
            return {**result, "failed": True, "msg": f"{host}: {error}"}
        return {**result, "changed": changed, **report}


def _verify(cluster, node, arguments):
    """As role verification's command reports a node that it runs on; and whether another record is kept."""
    resources = parse_configuration(arguments["declaration"]["configuration"]).resources
    timeout = float(arguments.get("timeout", 60))
    shown = _once_followed(cluster, node, resources, timeout)
    info = (shown.get("status") or {}).get("nodeInfo") or {}
    runtime = info.get("containerRuntimeVersion", "").replace("://", " ")
    before = proven.read(shown)
    record = Record(before, cluster.deployment.image)
    record.keep_only(resources)
    rows, shares, uses = {}, {}, proof.in_use(cluster, node)
    for resource in resources:
        row, asked = _judged(resource, shown, uses.get(resource.name, proof.Use(0, ())), arguments.get("devices"))
        if asked and arguments.get("proofs") == "unproven" and record.holds(resource, runtime):
            row["state"] = "proven before"
        elif asked:
            shares[resource.name] = asked
        rows[resource.name] = row
    for resource, outcome in _outcomes(cluster, node, resources, shares, timeout):
        row = rows[resource.name]
        row.update(_compared(resource, shares[resource.name], outcome))
        record.note(resource, runtime, proven=row["state"] == "proven")
    if record.proven != before:
        proven.write(cluster.api, node, record.proven)
    report = {
        "runtime": runtime,
        "kubelet": info.get("kubeletVersion", ""),
        "resources": list(rows.values()),
        "problems": [f"{row['resource']}: {row['detail']}" for row in rows.values() if row["state"] == "failed"],
    }
    return report, record.proven != before


def _outcomes(cluster, node, resources, shares, timeout):
    """Each resource that is to be proven, and what a container of it had. shares: resource to how many it asks for."""
    wanted = []
    for resource in resources:
        if resource.name in shares:
            paths = {each.path for device in resource.devices for each in device.nodes}
            wanted.append(proof.Wanted(resource.name, shares[resource.name], tuple(sorted(paths))))
    if not wanted:
        return []
    owner = cluster.api.get(cluster.place)
    if owner is None:
        raise DeploymentError(f"the cluster has no {cluster.place}: run site.yml")
    outcomes = proof.prove(cluster, node, owner, wanted, timeout)
    return [(resource, outcomes[resource.name]) for resource in resources if resource.name in outcomes]


def _once_followed(cluster, node, resources, timeout):
    """The node object, once it shows what is declared, or does not within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        is_late = time.monotonic() >= deadline
        try:
            shown = cluster.api.node(node)
            if is_late or all(_lacks(each, shown) is None for each in resources):
                return shown
        except Unavailable:
            # A control plane that is restarted, or fails over, comes back.
            if is_late:
                raise
        time.sleep(_PAUSE)


def _shares(resource):
    """Least and most that may be healthy: devices that are not required may be missing."""
    required = sum(resource.replicas for device in resource.devices if device.required)
    return required, sum(resource.replicas for _device in resource.devices)


def _healthy(resource, shown):
    """What the node object has of a resource to give; None where it does not know it."""
    value = quantity.number(capacities_of(shown, "allocatable").get(resource.name))
    return None if value is None else int(value)


def _lacks(resource, shown):
    """In what the node object falls short of the declaration; None where it does not."""
    found = _healthy(resource, shown)
    if found is None:
        return "the node object does not show it: the kubelet has no registration of it"
    least, most = _shares(resource)
    if resource.discover.methods or least <= found <= most:
        return None
    expected = str(least) if least == most else f"{least} to {most}"
    return f"expected {expected} healthy devices in the node object's allocatable, found {found}"


def _judged(resource, shown, use, devices):
    """Its row, and how many shares a proof asks for; 0 for none."""
    lacks, healthy = _lacks(resource, shown), _healthy(resource, shown) or 0
    row = {
        "resource": resource.name,
        "capacity": healthy if resource.discover.methods else _shares(resource)[1],
        "healthy": healthy,
        "seen": [],
        "state": "failed",
        "detail": lacks or "",
    }
    if lacks:
        return row, 0
    if not healthy:
        return {**row, "state": "empty"}, 0
    if resource.discover.methods:
        why = "its devices are discovered on the node, and the API does not say which they are"
        return {**row, "state": "not proven", "detail": why}, 0
    free = healthy - use.shares
    if free <= 0:
        return {**row, "state": "in use", "detail": "by " + ", ".join(use.pods)}, 0
    everything = devices == "all" and free == _shares(resource)[1] <= (resource.container_limit or free)
    return row, free if everything else 1


def _compared(resource, shares, outcome):
    """The rest of a row: what the container had, held to what it would have of the devices that it may have been given.

    The API does not say which these were, so with one share every device is tried.
    """
    if outcome.view is None:
        return {"state": "failed", "detail": outcome.reason}
    sets = [[device] for device in resource.devices] if shares == 1 else [list(resource.devices)]
    expectations = [expected_in_container(resource, devices) for devices in sets]
    found = [(container_view.mismatches(outcome.view, each), each.devices) for each in expectations]
    fitting = [devices for lacking, devices in found if not lacking]
    if not fitting:
        lacking, _devices = min(found, key=lambda each: len(each[0]))
        return {"state": "failed", "detail": "in a container: " + "; ".join(lacking)}
    if len(fitting) > 1:
        alike = ", ".join(device for devices in fitting for device in devices)
        return {"state": "proven", "detail": f"one of {alike}, which look alike in a container"}
    return {"state": "proven", "detail": "", "seen": list(fitting[0])}
