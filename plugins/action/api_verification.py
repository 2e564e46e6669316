# SPDX-License-Identifier: Apache-2.0
"""Proves a node's devices through the Kubernetes API. See plugins/modules/api_verification.py."""

from __future__ import annotations

import json
import time

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig, quantity
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    Api,
    ApiError,
    Place,
    Unavailable,
)
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
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification import (
    container_view,
    evidence,
    judging,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification.proof_record import Record
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification.report import (
    EMPTY,
    FAILED,
    IN_USE,
    UNPROVEN,
    Outcome,
    Row,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import verification as reports
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import deployed, proof, proven, rollout
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction

# Seconds between two reads of a node object.
_PAUSE = 1.0
# CPU and memory of a proof pod's container. Its program prints the container's devices.
_REQUESTS = {"cpu": "10m", "memory": "32Mi"}
_LIMITS = {"memory": "96Mi"}


class ActionModule(HidingAction):
    """Contacts only the API server, from the controller."""

    only_shown = True

    _requires_connection = False
    of_the_host = ("kubeconfig", "node_name")

    def act(self, given):
        host, arguments = self.host, given
        if arguments.get("state") == "absent":
            return self._remove(arguments, host)
        if self._task.check_mode:
            return {"skipped": True, "msg": "a proof needs a pod, which check mode does not create"}
        arguments["declaration"] = self.preflight.declaration(arguments.get("declaration"))
        try:
            if not arguments.get("kubeconfig"):
                raise DeploymentError(
                    "node_devices_kubeconfig: not set, but only the Kubernetes API reaches this node: set it to a "
                    "kubeconfig file on the controller"
                )
            cluster = DaemonSet(
                Api(kubeconfig.read(arguments["kubeconfig"])), deployed.parse(arguments.get("deployment", {}))
            )
            report, changed = _verify(cluster, self.preflight.node_name(arguments), arguments)
        except (ApiError, DeclarationError, DeploymentError, kubeconfig.KubeconfigError) as error:
            return {"failed": True, "msg": f"{host}: {error}"}
        return {"changed": changed, **reports.judged(report, host, boolean(arguments.get("require_proof", False)))}

    def _remove(self, arguments, host):
        """Delete the proofs' priority class and the node's proof pods. An error of the API server is only a warning."""
        if not arguments.get("kubeconfig"):
            return {"changed": False}
        try:
            api = Api(kubeconfig.read(arguments["kubeconfig"]))
            namespaces = {"kube-system", deployed.parse(arguments.get("deployment", {})).namespace}
            node = self.preflight.node_name(arguments)
            change = proof.remove(api, sorted(namespaces), node, self._task.check_mode)
        except (ApiError, DeclarationError, kubeconfig.KubeconfigError) as error:
            return {
                "changed": False,
                "warnings": [f"{host}: the priority class of proofs stays in the cluster: {error}"],
            }
        return {"changed": change.changed, "what": [change.what] * change.changed}


def _verify(cluster, node, arguments):
    """Verify the node. Return a report in the form of `node-device-plugin verify`, and whether the record changed."""
    resources = parse_configuration(arguments["declaration"]["configuration"]).resources
    timeout = float(arguments.get("timeout", 60))
    shown, held = _once_followed(cluster, node, resources, timeout)
    info = (shown.get("status") or {}).get("nodeInfo") or {}
    runtime = info.get("containerRuntimeVersion", "").replace("://", " ")
    before = proven.read(shown)
    record = Record(before, cluster.deployment.image)
    record.keep_only(resources, runtime)
    uses = proof.in_use(cluster.api, node)
    known = record if arguments.get("proofs") == "unproven" else None
    rows = {}
    for resource in resources:
        use = uses.get(resource.name, proof.Use(0, ()))
        row = _judged(resource, shown, use, arguments.get("devices"), held.get(resource.name, 0))
        if row.shares:
            row = judging.before_proof(row, resource, known, runtime)
        rows[resource.name] = row
    shares = {name: row.shares for name, row in rows.items() if row.shares}
    outcomes = _outcomes(cluster, node, resources, shares, timeout)
    judging.note(record, resources, runtime, outcomes)
    if record.proven != before:
        proven.write(cluster.api, node, record.proven)
    rows = [judging.with_outcome(row, outcomes) for row in rows.values()]
    found = rollout.restarted(cluster, node, arguments["invocation"]) if arguments.get("invocation") else ""
    report = {
        "runtime": runtime,
        "kubelet": info.get("kubeletVersion", ""),
        "resources": [row._asdict() for row in rows],
        "problems": [f"{row.resource}: {row.detail}" for row in rows if row.state == FAILED]
        + ([found] if found else []),
    }
    return report, record.proven != before


def _outcomes(cluster, node, resources, shares, timeout):
    """Prove resources with temporary pods. Return outcomes by resource name.

    shares: the number of shares to request, by resource name.
    """
    wanted = []
    for resource in resources:
        if resource.name in shares:
            paths = {each.path for device in resource.devices for each in device.nodes}
            wanted.append(proof.Wanted(resource.name, shares[resource.name], ("seen", *sorted(paths))))
    if not wanted:
        return {}
    owner = cluster.api.get(cluster.place)
    if owner is None:
        raise DeploymentError(f"the cluster has no {cluster.place}: run site.yml")
    deployment = cluster.deployment
    kind = proof.Kind(
        deployment.namespace,
        deployment.image,
        deployment.tolerations,
        deployment.image_pull_secrets,
        owner,
        _REQUESTS,
        _LIMITS,
        ends=True,
    )

    by_name = {resource.name: resource for resource in resources}

    def look(pods):
        return {name: _printed(cluster.api, pod, by_name[name], shares[name]) for name, pod in pods.items()}

    return proof.Proofs(cluster.api, kind, node, timeout).prove(wanted, look)


def _printed(api, pod, resource, shares):
    """Return the outcome of a proof whose pod's program has printed a report about its container."""
    place = Place("pods", pod["metadata"]["name"], pod["metadata"]["namespace"], part="log")
    log = api.text(place)
    # Read only the last JSON line, because the log may also have a usage text or a runtime's warning.
    lines = [line for line in log.splitlines() if line.startswith("{")]
    try:
        view = container_view.read_own(json.loads(lines[-1]))
    except (IndexError, RecursionError, ValueError, KeyError, TypeError):
        said = " ".join(log.split())[:200] or "nothing"
        return Outcome(mismatches=(f"the proof's pod printed no report: {said}",))
    return _compared(resource, shares, view)


def _once_followed(cluster, node, resources, timeout):
    """Wait at most ``timeout`` seconds until the node object shows the declared resources. Return the node object.

    Also return, by resource name, the number of devices that the plugin withholds because containers hold them by other
    names.
    """
    deadline = time.monotonic() + timeout
    while True:
        is_late = time.monotonic() >= deadline
        try:
            shown, held = cluster.api.node(node), {}
            if any(_shortfall(each, shown) for each in resources):
                held = rollout.held_by_other_names(cluster, node)
            if is_late or all(_shortfall(each, shown, held.get(each.name, 0)) is None for each in resources):
                return shown, held
        except Unavailable:
            # Retry, because a control plane answers again after a restart or failover.
            if is_late:
                raise
        time.sleep(_PAUSE)


def _shares(resource):
    """Return the minimum and maximum number of healthy shares. The minimum excludes optional devices."""
    required = sum(resource.replicas for device in resource.devices if device.required)
    return required, sum(resource.replicas for _device in resource.devices)


def _healthy(resource, shown):
    """Return the resource's allocatable quantity in the node object; None if the node object does not list it."""
    value = quantity.number(capacities_of(shown, "allocatable").get(resource.name))
    return None if value is None else int(value)


def _shortfall(resource, shown, held=0):
    """Return why the node object does not match the declaration; None if it matches.

    held: number of devices that containers hold under other names.
    """
    found = _healthy(resource, shown)
    if found is None:
        return "the node object does not list it, because no plugin registered it with the kubelet"
    least, most = _shares(resource)
    if found < (resource.min_devices - held) * resource.replicas:
        needed = resource.min_devices * resource.replicas
        return (
            f"expected at least {needed} healthy devices (min_devices) in the node object's allocatable, found {found}"
        )
    if resource.discover.methods or least - held * resource.replicas <= found <= most:
        return None
    expected = str(least) if least == most else f"{least} to {most}"
    return f"expected {expected} healthy devices in the node object's allocatable, found {found}"


def _judged(resource, shown, use, devices, held=0):
    """Return the resource's row before its proof. held: see ``_shortfall``."""
    shortfall, healthy = _shortfall(resource, shown, held), _healthy(resource, shown) or 0
    capacity = healthy if resource.discover.methods else _shares(resource)[1]
    row = Row(resource.name, capacity, healthy, (), FAILED, shortfall or "")
    free = healthy - use.shares
    if shortfall:
        return row
    if held:
        why = f"{held} held by another name; the log of the plugin's pod names the pods"
        return row._replace(state=IN_USE, detail=why)
    if not healthy:
        return row._replace(state=EMPTY)
    if resource.discover.methods:
        why = "its devices are discovered on the node, and the API does not list them"
        return row._replace(state=UNPROVEN, detail=why)
    if free <= 0 and evidence.can_show(resource, resource.devices):
        return row._replace(state=IN_USE, detail="by " + ", ".join(use.pods))
    everything = devices == "all" and free == _shares(resource)[1] <= (resource.container_limit or free)
    return row._replace(state=UNPROVEN, shares=free if everything else 1)


def _compared(resource, shares, view):
    """Return the outcome of a proof: whether the container's devices match an allocation of the declared devices.

    The API does not show which device the kubelet allocated. Therefore the container of one share may match any
    declared device.
    """
    sets = [[device] for device in resource.devices] if shares == 1 else [list(resource.devices)]
    found = [(container_view.mismatches(view, expected_in_container(resource, devices)), devices) for devices in sets]
    fitting = [devices for mismatches, devices in found if not mismatches]
    if not fitting:
        mismatches, _devices = min(found, key=lambda each: len(each[0]))
        return Outcome(mismatches=("in a container: " + "; ".join(mismatches),))
    # Every container may have all that some devices give.
    shown = [tuple(ids) for devices in fitting if (ids := evidence.shown(view, resource, devices))]
    if not shown:
        return Outcome(unproven=evidence.why_none(resource, fitting[0]))
    if len(shown) > 1:
        alike = ", ".join(device for ids in shown for device in ids)
        return Outcome(note=f"one of {alike}, which look alike in a container")
    return Outcome(shown[0])
