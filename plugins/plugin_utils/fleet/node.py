# SPDX-License-Identifier: Apache-2.0
"""Makes one node's entry from the available facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster.extended_resources import info_of, is_ready
from ....plugin.node_device_plugin.support import directory_names
from ..kubernetes.rollout import Running
from . import resources

#: Maps states to severities, worst first. See resources.STATES.
STATES = {
    "wrong": "failed",
    "unreachable": "unknown",
    "not provisioned": "pending",
    "pending": "pending",
    "ok": "ok",
}
#: Severities of a resource that make its node wrong.
_WRONG = ("failed", "degraded")


class Read(NamedTuple):
    """The facts of a node. An unreadable part is None, and ``problems`` has the reason.

    unreachable: why there is no connection to the node; empty if there is a connection.
    facts: of module node_preflight. status, runtime: answers of the plugin's commands.
    declaration: the result of module declaration.
    cluster: rows of the node object's extended resources.
    node_object: of the cluster; empty if the cluster has no such node. api_only: whether only the Kubernetes API
    reaches the node.
    pod: in mode daemonset, the plugin's pod from rollout.look. wanted_sha256: the hash of the declared configuration;
    None if unknown.
    running: the report in the metrics of the pod of a node that only the API reaches.
    notes: sentences that the status shows with the problems, but that do not make the node wrong.
    """

    unreachable: str = ""
    facts: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None
    runtime: Mapping[str, Any] | None = None
    declaration: Mapping[str, Any] | None = None
    cluster: list[Mapping[str, str]] | None = None
    node_object: Mapping[str, Any] | None = None
    api_only: bool = False
    pod: Mapping[str, str | None] | None = None
    wanted_sha256: str | None = None
    running: Running | None = None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_by_api(self) -> bool:
        """Whether the node object says what the node itself would."""
        return self.api_only and self.node_object is not None


def entry(name: str, read: Read) -> dict[str, Any]:
    """Return the node as plain data. See docs/status.md. Missing facts raise no error."""
    facts, status = read.facts or {}, read.status or {}
    kubelet = _kubelet(read)
    runtime = _runtime(read)
    effective = runtime and runtime["cdi"]["effective"]
    plugin = status.get("plugin")
    provisioned = read.facts is None or bool(facts.get("commands"))
    shown = {row["resource"]: row for row in (read.cluster or ()) if read.is_by_api}
    served = resources.Served(status, bool(kubelet and kubelet["running"]), effective, provisioned, shown)
    rows = list(resources.of_plugin(read.declaration, served))
    known = {row["name"] for row in rows}
    capacities = (read.declaration or {}).get("capacities", {})
    rows += [row for row in resources.of_cluster(read.cluster, capacities) if row["name"] not in known]
    problems = [
        *read.problems,
        *_of_runtime(read, runtime),
        *_of_kubelet(read, kubelet),
        *_of_plugin(read, plugin, known),
    ]
    return {
        "name": name,
        "state": _state(read, kubelet, provisioned, problems, rows),
        "problems": [*([read.unreachable] if read.unreachable else []), *problems, *read.notes],
        "runtime": runtime,
        "kubelet": kubelet,
        "plugin": _plugin(read, plugin),
        "pod": read.pod and dict(read.pod),
        "resources": rows,
    }


def not_read(name: str, reason: str) -> dict[str, Any]:
    """Return the entry of a node that the action did not query."""
    return entry(name, Read(unreachable=reason))


def _state(
    read: Read,
    kubelet: Mapping[str, Any] | None,
    provisioned: bool,
    problems: list[str],
    rows: list[dict[str, Any]],
) -> str:
    if read.unreachable:
        return "unreachable"
    if not provisioned and not read.problems:
        return "not provisioned"
    if problems or any(resources.STATES[row["state"]] in _WRONG for row in rows):
        return "wrong"
    return "ok" if kubelet and kubelet["running"] else "pending"


def _plugin(read: Read, plugin: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the running plugin's facts. From the API, only version, configuration and readiness are known."""
    if plugin:
        return {
            "version": plugin["version"],
            "ready": plugin["ready"],
            "started": plugin["started"],
            "configuration_sha256": plugin["configuration"]["sha256"],
        }
    running = read.running
    if not running or not running.sha256:
        return None
    known = {"version": running.version or None, "ready": not running.not_ready}
    return {**known, "started": None, "configuration_sha256": running.sha256}


def _kubelet(read: Read) -> dict[str, Any] | None:
    """Return the kubelet; None if unknown. If a kubelet inside another process answers, it counts as running."""
    shown_version = info_of(read.node_object or {}, "kubeletVersion").removeprefix("v") or None
    if read.is_by_api:
        return {"running": is_ready(read.node_object or {}), "version": shown_version}
    if read.facts is None:
        return None
    process = read.facts["kubelet"]
    answers = (read.status or {}).get("source") == "kubelet"
    version = (process or {}).get("version") or shown_version
    if (version or "").endswith("+stand-in"):
        version = "stand-in"  # the lab's stand-in reports the version of the kubelet that it imitates
    return {"running": process is not None or answers, "version": version}


def _runtime(read: Read) -> dict[str, Any] | None:
    """Return the runtime; None if unknown. The API does not know whether CDI is on."""
    shown = info_of(read.node_object or {}, "containerRuntimeVersion") if read.is_by_api else ""
    if shown:
        name, _separator, version = shown.partition("://")
        runtime: dict[str, Any] = {"name": name, "version": version or None, "socket": None}
    elif read.facts is None or read.facts["runtime"].get("problem"):
        return None
    else:
        runtime = {key: read.facts["runtime"][key] for key in ("name", "version", "socket")}
    told = (read.runtime or {}).get("cdi") or {}
    # The plugin's command on the node may be older than this collection and not tell always_on.
    cdi = {key: told.get(key) for key in ("enabled", "always_on", "spec_dirs")}
    missing = directory_names.missing(directory_names.CDI_DIRS, cdi["spec_dirs"] or directory_names.CDI_DIRS)
    return {**runtime, "cdi": {"effective": cdi["enabled"] and not missing, **cdi}}


def _of_runtime(read: Read, runtime: Mapping[str, Any] | None) -> Iterator[str]:
    if not runtime or not (read.declaration or {}).get("needs_cdi", True):
        return
    cdi = runtime["cdi"]
    if cdi["enabled"] is False:
        yield "CDI is off in the running container runtime, so containers do not get their devices: run site.yml"
    elif cdi["effective"] is False:
        missing = ", ".join(directory_names.missing(directory_names.CDI_DIRS, cdi["spec_dirs"]))
        yield f"the running container runtime does not read {missing}: run site.yml"


def _of_kubelet(read: Read, kubelet: Mapping[str, Any] | None) -> Iterator[str]:
    if kubelet and not kubelet["running"] and (read.status or {}).get("source") == "checkpoint":
        yield "no kubelet runs, but its checkpoint shows that one did: see systemctl status kubelet"
    unanswered = (read.status or {}).get("unanswered")
    if unanswered and (read.facts or {}).get("kubelet"):
        yield (
            f"the kubelet runs but does not answer ({unanswered}): it hangs, or its root directory is not "
            "kubelet_root_dir"
        )


def _of_plugin(read: Read, plugin: Mapping[str, Any] | None, resource_names: set[str]) -> Iterator[str]:
    of_pod = (read.pod or {}).get("reason")
    if of_pod:
        yield of_pod
    running = _plugin(read, plugin)
    if running and read.wanted_sha256 and running["configuration_sha256"] != read.wanted_sha256:
        yield (
            f"the plugin runs with configuration {running['configuration_sha256'][:12]}, but "
            f"{read.wanted_sha256[:12]} is declared: run site.yml"
        )
    if read.running:
        yield from (*read.running.not_ready, *read.running.problems)
    if read.facts is None:
        return
    if not read.facts.get("commands"):
        yield "the plugin is not installed: run site.yml"
    elif read.status is not None and plugin is None and not of_pod:
        yield read.status["problem"]
    if plugin is None:
        return
    # Skip missing registrations, because the resources' rows report them.
    for reason in plugin["not_ready"]:
        if not any(reason.startswith(f"{name}: ") for name in resource_names):
            yield f"the plugin is not ready: {reason}"
    for problem in plugin["configuration"]["problems"]:
        yield f"{plugin['configuration']['path']} is refused, so the plugin runs with an older configuration: {problem}"
