# SPDX-License-Identifier: Apache-2.0
"""Waits until a node's pod exists, matches the DaemonSet and runs with the declared configuration."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster import manifests
from ....plugin.node_device_plugin.cluster.api import Api, ApiError, Place, Unavailable
from ....plugin.node_device_plugin.cluster.extended_resources import info_of, readiness
from ....plugin.node_device_plugin.cluster.extended_resources import is_ready as is_node_ready
from ....plugin.node_device_plugin.cluster.node_readiness import Offered
from ....plugin.node_device_plugin.cluster.pods import name_of
from ....plugin.node_device_plugin.declaration.model import DRA
from .. import plugin_cli
from . import kubelet_of_a_pod, no_pod
from .daemonset import DaemonSet
from .objects import DeploymentError
from .waiting import until

# Seconds between two checks, and between two requests to sync a pod's volumes.
_PAUSE = 0.5
_LOOK_AGAIN = 4.0
_SHA256 = re.compile(r'^node_device_plugin_configuration_info\{sha256="([0-9a-f]{64})"\} 1$', re.MULTILINE)
_VERSION = re.compile(r'^node_device_plugin_build_info\{(?:[^}]*,)?version="([^"]*)"', re.MULTILINE)
_HELD = re.compile(
    r'^node_device_plugin_devices\{resource="([^"]*)",state="unhealthy",reason="held by another name"\} '
    r"(\d{1,9})(?:\.0)?$",
    re.MULTILINE,
)
_SERVED = re.compile(r'^node_device_plugin_registered\{resource="([^"]*)"\} 1$', re.MULTILINE)
# Matches only the complete line, because the metric's help contains the same words.
_REFUSED = re.compile(r"^node_device_plugin_configuration_refused 1$", re.MULTILINE)


class Running(NamedTuple):
    """A running plugin's report. sha256: of its configuration; empty if no plugin answers.

    not_ready: why the plugin is not ready or does not answer. problems: why the plugin rejects its configuration file.
    version: empty if unknown.
    """

    sha256: str
    not_ready: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    version: str = ""


def ask_on_node(action: Any, command: str) -> Running:
    """Return the running plugin's report from its status socket. Raises PluginCliError. command: the plugin's."""
    said = plugin_cli.answer(action, [command, "status", "-o", "json"])
    plugin = said["plugin"]
    if plugin is None:
        return Running("", (said["problem"],))
    configuration = plugin["configuration"]
    not_ready, problems = tuple(plugin["not_ready"]), tuple(configuration["problems"])
    return Running(configuration["sha256"], not_ready, problems, plugin.get("version", ""))


def offered_on_node(action: Any, command: str) -> Offered:
    """Return what the running plugin offers, from its status socket. Raises PluginCliError. command: the plugin's."""
    plugin = plugin_cli.answer(action, [command, "status", "-o", "json"])["plugin"]
    resources = plugin["resources"] if plugin else ()
    return Offered(
        {
            each["name"]: sum(len(device["kubelet_ids"]) for device in each["devices"] if device["state"] == "healthy")
            for each in resources
            # No node object shows the devices of claims. An earlier release's plugin does not tell the API.
            if each.get("api") != DRA
        },
        [each["name"] for each in resources if not each["registered"]] if plugin else ["the plugin does not answer"],
    )


def ask_through_api(api: Api, pod: Mapping[str, Any]) -> Running:
    """Return the report in a pod's metrics, which the API server passes on. For nodes that only the API reaches."""
    try:
        text = _metrics(api, pod)
    except ApiError as error:
        return Running("", (f"its metrics cannot be read through the API server: {error}",))
    found = _SHA256.search(text)
    refused, version = _REFUSED.search(text), _VERSION.search(text)
    return Running(
        found.group(1) if found else "",
        () if is_ready(pod) else ("its pod is not ready",),
        ("it refuses its configuration: see the pod's log",) if refused else (),
        version.group(1) if version else "",
    )


def _metrics(api: Api, pod: Mapping[str, Any]) -> str:
    """Return the metrics that a pod serves. Raises ApiError."""
    # The pod may have further containers of a service mesh.
    ours = next(each for each in pod["spec"]["containers"] if each["name"] == manifests.CONTAINER)
    name = f"{pod['metadata']['name']}:{ours['ports'][0]['containerPort']}"
    return api.text(Place("pods", name, pod["metadata"]["namespace"], part="proxy/metrics"))


def held_by_other_names(cluster: DaemonSet, node: str) -> dict[str, int]:
    """Return, for each resource, how many devices the plugin withholds because containers hold them by other names."""
    pod = newest(cluster, node)
    # Without metrics, no such device is known.
    return {resource: int(count) for resource, count in _HELD.findall(_known_metrics(cluster, pod))}


def served(cluster: DaemonSet, node: str) -> set[str]:
    """Return the resources that the DaemonSet's pod on a node has registered, whatever the ConfigMap says by now."""
    pods = filter(is_started, cluster.pods(node))
    return set(_SERVED.findall(_known_metrics(cluster, next(pods, None))))


def _known_metrics(cluster: DaemonSet, pod: Mapping[str, Any] | None) -> str:
    """Return the metrics of a pod; empty if it does not serve any. Raises Unavailable."""
    if pod is None or not is_started(pod):
        return ""
    try:
        return _metrics(cluster.api, pod)
    except Unavailable:
        raise
    except ApiError:
        return ""


def await_node(
    cluster: DaemonSet,
    node: str,
    sha256: str,
    ask: Callable[[Mapping[str, Any]], Running] | None,
    timeout: float,
    renew: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Wait until a node's pod is ready and runs with the configuration ``sha256``. Return the pod.

    A plugin that ends meanwhile is an error, even if the kubelet has started it again.
    ask: returns the report of a pod's plugin; None to read its metrics through the API server. timeout: seconds without
    progress. renew: called at each check. Raises DeploymentError with the reason.
    """
    deadline, progress = time.monotonic() + timeout, None
    look_again, looks, most_ready = time.monotonic(), 0, 0
    # The number of restarts by pod, with the restart of a plugin that had ended before.
    due: dict[str, int] = {}
    while True:
        renew()
        try:
            pods = cluster.pods(node)
            pod, said = _newest(pods, cluster.revision()), Running("", ("it does not run",))
            if pod is not None and _restarts(pod) > due.setdefault(pod["metadata"]["name"], _restarts_due(pod)):
                raise DeploymentError(_ended(pod, "while the play waited for it"))
            if pod is not None and is_started(pod):
                said = ask(pod) if ask else ask_through_api(cluster.api, pod)
                others = [each["metadata"]["name"] for each in pods if each is not pod]
                if others and not said.not_ready:
                    # A terminating pod may still answer on the node and write the CDI specs.
                    said = said._replace(not_ready=(f"pod {others[0]}, which it replaces, has not ended",))
                if said.sha256 == sha256 and not said.not_ready and is_ready(pod):
                    return pod
                if said.sha256 != sha256 and time.monotonic() >= look_again:
                    looks += 1
                    kubelet_of_a_pod.let_look(cluster.api, pod, f"{sha256[:12]}-{looks}-{int(time.time())}")
                    look_again = time.monotonic() + _LOOK_AGAIN
            replaced, ready = cluster.progress()
            # Only a new maximum is progress, because another node's pod may alternate between ready and failed.
            most_ready = max(most_ready, ready)
            now = (replaced, most_ready, pod and pod["metadata"]["name"], said)
        except Unavailable:
            # Retry, because a control plane answers again after a restart or failover.
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE)
            continue
        if now != progress:
            # Progress restarts the timeout, because other nodes' pods may be replaced first.
            deadline, progress = time.monotonic() + timeout, now
        if time.monotonic() >= deadline:
            raise DeploymentError(_why(cluster, node, pod, said, sha256, timeout))
        time.sleep(_PAUSE)


def await_start(cluster: DaemonSet, node: str, timeout: float, renew: Callable[[], None] = lambda: None) -> None:
    """Wait until a node's pod runs, even if the pod only waits for the end of another instance.

    If the new pod may run beside the old pod, wait until the new pod is ready. Raises DeploymentError.
    """

    def look(is_late: bool) -> bool | None:
        pod = newest(cluster, node)
        if pod is not None and (is_ready if manifests.pods_overlap(pod["spec"]) else is_running)(pod):
            return True
        if is_late:
            raise DeploymentError(_why(cluster, node, pod, Running(""), "", timeout))
        return None

    until(look, timeout, _PAUSE, renew)


def await_end(cluster: DaemonSet, node: str, timeout: float, renew: Callable[[], None] = lambda: None) -> None:
    """Wait until the node has no pod of the DaemonSet. Raises DeploymentError."""

    def look(is_late: bool) -> bool | None:
        pods = cluster.pods(node)
        if pods and is_late:
            condition = readiness(cluster.api.node(node))
            raise DeploymentError(f"pod {pods[0]['metadata']['name']} has not ended within {timeout:g} s: {condition}")
        return None if pods else True

    until(look, timeout, _PAUSE, renew)


def is_running(pod: Mapping[str, Any]) -> bool:
    """Return whether a container of the pod runs."""
    return any("running" in (each.get("state") or {}) for each in _containers(pod))


def is_started(pod: Mapping[str, Any]) -> bool:
    """Return whether a container of the pod has passed its startup probe."""
    return any(each.get("started") for each in _containers(pod))


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether the kubelet reports all containers of the pod ready."""
    return bool(_containers(pod)) and all(each.get("ready") for each in _containers(pod))


def _containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def _plugin(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of the plugin's container; empty before the container exists."""
    return next((each for each in _containers(pod) if each.get("name") == manifests.CONTAINER), {})


def _restarts(pod: Mapping[str, Any]) -> int:
    return int(_plugin(pod).get("restartCount") or 0)


def _restarts_due(pod: Mapping[str, Any]) -> int:
    """Return the number of restarts after the kubelet has started a plugin that has already ended."""
    ours = _plugin(pod)
    state = ours.get("state") or {}
    has_ended = "running" not in state and ("terminated" in state or bool(ours.get("lastState")))
    return _restarts(pod) + has_ended


def invocation_id(pod: Mapping[str, Any]) -> str:
    """Return the names of the pod and of the plugin's container, which changes at each start."""
    return f"{pod['metadata']['name']} {_plugin(pod).get('containerID')}"


def restarted(cluster: DaemonSet, node: str, invocation: str) -> str:
    """Return a message if the plugin has ended since ``invocation_id`` in that pod; else empty. Raises ApiError."""
    for pod in cluster.pods(node):
        runs = invocation_id(pod) == invocation and "running" in (_plugin(pod).get("state") or {})
        if not runs and invocation.startswith(f"{pod['metadata']['name']} "):
            return _ended(pod, "after it was ready")
    return ""


def _ended(pod: Mapping[str, Any], when: str) -> str:
    """Return the message about a plugin that ended, with the end of its last container."""
    name = f"{pod['metadata']['name']} --namespace {pod['metadata']['namespace']}"
    why = _last_words(_plugin(pod), f"kubectl logs --previous {name} has its log")
    return f"pod {name_of(pod)}: the plugin ended {when}, and the kubelet starts it again: {why}"


def _last_words(container: Mapping[str, Any], otherwise: str) -> str:
    """Return why a container's process ended. otherwise: the text if the process left no message."""
    ends = [(container.get(key) or {}).get("terminated") for key in ("state", "lastState")]
    before: Mapping[str, Any] = next(filter(None, ends), {})
    ended = str(before.get("reason") or "Error")
    # Add a reason such as OOMKilled, because the container's last message does not explain the end.
    killed = "" if ended in ("Error", "Completed") else f"{ended}: "
    return f"{killed}{' '.join(str(before.get('message') or otherwise).split())[-500:]}"


def newest(cluster: DaemonSet, node: str) -> dict[str, Any] | None:
    """Return the node's pod that has the current DaemonSet's revision and is not terminating; None without one."""
    return _newest(cluster.pods(node), cluster.revision())


def _newest(pods: Iterable[dict[str, Any]], revision: str) -> dict[str, Any] | None:
    for pod in pods:
        is_new = pod["metadata"]["labels"].get("controller-revision-hash") == revision
        if revision and is_new and not pod["metadata"].get("deletionTimestamp"):
            return pod
    return None


def _why(
    cluster: DaemonSet, node: str, pod: Mapping[str, Any] | None, said: Running, sha256: str, timeout: float
) -> str:
    """Return the message that explains why a node's pod is not as expected."""
    head = f"after {timeout:g} s,"
    of_node = cluster.api.node(node)
    condition = readiness(of_node)
    if "is not Ready" in condition:
        return f"{head} the plugin's pod does not run: {condition}"
    if pod is None:
        return f"{head} DaemonSet {cluster.deployment.name} has no pod on the node{_why_none(cluster, of_node)}"
    name = f"pod {name_of(pod)}"
    _state, trouble = _trouble(cluster, pod)
    if trouble:
        return f"{head} {trouble}"
    if said.problems:
        return f"{name} refuses its configuration and runs with an older one: {'; '.join(said.problems)}"
    if sha256 and said.sha256 and said.sha256 != sha256:
        return f"{head} {name} runs with configuration {said.sha256[:12]}, not {sha256[:12]}"
    event = cluster.warning(pod["metadata"]["name"])
    return f"{head} {name} is not ready: {'; '.join(said.not_ready) or 'the kubelet reports no reason'}{event}"


def _why_none(cluster: DaemonSet, node: Mapping[str, Any]) -> str:
    """Return why a node has no pod, as the end of a sentence."""
    why = no_pod.reason(cluster, node)
    return f": {why}" if why else cluster.warning(cluster.deployment.name)


def look(cluster: DaemonSet, of_node: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the name and state of a node's pod, and why the pod does not run or is outdated.

    The result also has these keys. image: the image's name. image_id: the image's id in the node's runtime; both None
    until the kubelet reports them. architecture: of the node.
    """
    condition, pods = readiness(of_node), cluster.pods(of_node["metadata"]["name"])
    up_to_date = _newest(pods, cluster.revision())
    pod = up_to_date or next((pod for pod in pods if not pod["metadata"].get("deletionTimestamp")), None)
    ours = _plugin(pod or {})
    found = {
        "image": ours.get("image") or None,
        "image_id": ours.get("imageID") or None,
        "architecture": info_of(of_node, "architecture") or None,
    }
    if pod is None:
        place = f"{cluster.deployment.namespace}/{cluster.deployment.name}"
        why = f"DaemonSet {place} has no pod on the node{_why_none(cluster, of_node)}"
        return {**found, "name": None, "state": "none", "reason": why if is_node_ready(of_node) else condition}
    state, trouble = _trouble(cluster, pod)
    if not is_node_ready(of_node):
        # The pod's status is out of date.
        state, trouble = "Unknown", condition
    elif not trouble and up_to_date is None:
        state = "outdated"
        trouble = (
            f"pod {name_of(pod)} does not have the DaemonSet's current template yet: at most max_unavailable pods are "
            "replaced at once, and a pod that does not become ready blocks the others"
        )
    elif not trouble and not is_ready(pod):
        state = "not ready"
        event = cluster.warning(pod["metadata"]["name"])
        trouble = f"pod {name_of(pod)} is not ready{event}" if event else ""
    return {**found, "name": name_of(pod), "state": state, "reason": trouble or None}


def _trouble(cluster: DaemonSet, pod: Mapping[str, Any]) -> tuple[str, str]:
    """Return a pod's state in Kubernetes' words, and why the pod does not run; empty if the pod runs."""
    for each in _containers(pod):
        waiting = (each.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in ("ContainerCreating", "PodInitializing"):
            word = str(waiting.get("reason"))
            return word, f"pod {name_of(pod)} does not run: {word}: {_last_words(each, waiting.get('message') or '')}"
    if is_running(pod):
        return "Running", ""
    status = pod.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    if phase == "Failed" and status.get("reason"):
        said = status.get("message") or "the kubelet reports no reason"
        return phase, f"pod {name_of(pod)} has failed: {status['reason']}: {' '.join(said.split())}"
    return phase, f"pod {name_of(pod)} has not started{cluster.warning(pod['metadata']['name'])}"
