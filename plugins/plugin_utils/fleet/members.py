# SPDX-License-Identifier: Apache-2.0
"""Makes the entries of a profile: one for all nodes that are as declared, and others for the nodes that differ."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ....plugin.node_device_plugin.cluster import claims, extended_resources, manifests
from ....plugin.node_device_plugin.declaration import Resource, cdi, parse_configuration
from ....plugin.node_device_plugin.verification.proof_record import Record
from ..kubernetes import deployed, other_daemonsets, profile, proof, rollout
from ..kubernetes.daemonset import ReadOnce
from . import document, node, together

# The number of plugins to ask of nodes that differ, and at a time: a silent one delays the report by 15 s.
_ASKED = 16
_AT_ONCE = 8


def statuses(
    name: str, cluster: ReadOnce, declared: Mapping[str, Any], sample: int, named: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the profile's entry, then the entries of the nodes that differ. Reads nodes, pods and events in lists.

    Asks only a few plugins themselves: of nodes that differ, and of a sample of the others. name: of the profile.
    declared: the result of the action declaration. sample: how many plugins to ask. named: nodes whose hosts have
    entries of their own. Raises ApiError.
    """
    found = [each for each in profile.nodes(cluster) if each["metadata"]["name"] not in named]
    configuration = parse_configuration(declared["configuration"])
    resources = configuration.resources
    if configuration.uses_dra:
        pools = claims.published(cluster.api, configuration.dra.name)
        found = [claims.with_published(each, resources, pools) for each in found]
    by_cdi = [each for each in resources if each.injection == "cdi"] if declared["needs_cdi"] else []
    reads = {each["metadata"]["name"]: _read(cluster, each, declared, by_cdi) for each in found}
    entries = {each: node.entry(each, read) for each, read in reads.items()}
    running = {each: pod for each in reads if (pod := _running(cluster, reads[each])) is not None}
    to_ask = _to_ask(running, entries, sample)
    wanted = manifests.sha256_of(deployed.configuration_text(declared))
    for each, said in _ask(cluster, {each: running[each] for each in to_ask}).items():
        entries[each] = node.entry(each, reads[each]._replace(running=said, wanted_sha256=wanted))
    return _shown(name, list(entries.values()), list(_drift(cluster, declared))) + list(_of_strays(cluster, named))


def _shown(name: str, entries: list[dict[str, Any]], problems: list[str]) -> list[dict[str, Any]]:
    """Return the entry of the nodes that are as declared, and the entries of the others.

    problems: of the profile itself.
    """
    other_builds = {of_node for _text, nodes in document.builds(entries) for of_node in nodes}
    alike, different = [], []
    for each in entries:
        (alike if each["state"] == "ok" and each["name"] not in other_builds else different).append(each)
    # No entry says "ok" for no node, while nodes differ.
    found = [_of_all(name, alike, len(different), problems)] if alike or problems or not different else []
    return found + [{**each, "profile": name} for each in together.grouped(different)]


def _read(
    cluster: ReadOnce, of_node: dict[str, Any], declared: Mapping[str, Any], by_cdi: Iterable[Resource]
) -> node.Read:
    served = frozenset(resource["name"] for resource in declared["resources"])
    wanted = extended_resources.Wanted({}, served, extended_resources.registered_by(of_node))
    problems, rows = [*_of_runtime(of_node, declared)], None
    try:
        rows = extended_resources.rows(of_node, wanted)
    except extended_resources.CapacityConflict as error:
        # A node writes its own annotations, and must not end the report of the others.
        problems.append(str(error))
    return node.Read(
        declaration=declared,
        cluster=rows,
        node_object=of_node,
        api_only=True,
        pod=rollout.look(cluster, of_node),
        problems=tuple(problems),
        notes=tuple(_unknown_of_runtime(cluster, of_node, by_cdi)),
    )


def _running(cluster: ReadOnce, read: node.Read) -> dict[str, Any] | None:
    """Return the pod whose plugin may answer; None without one. A pod of a node that is not Ready would be silent."""
    of_node = read.node_object or {}
    pod = rollout.newest(cluster, of_node["metadata"]["name"]) if extended_resources.is_ready(of_node) else None
    return pod if pod is not None and rollout.is_running(pod) else None


def _to_ask(running: Iterable[str], entries: Mapping[str, Mapping[str, Any]], sample: int) -> list[str]:
    """Return the first nodes that differ, and some of the others at even distances."""
    different, alike = [], []
    for each in running:
        (alike if entries[each]["state"] == "ok" else different).append(each)
    return different[:_ASKED] + (alike[:: -(-len(alike) // sample)] if alike and sample > 0 else [])


def _ask(cluster: ReadOnce, pods: Mapping[str, Mapping[str, Any]]) -> dict[str, rollout.Running]:
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        said = pool.map(lambda pod: rollout.ask_through_api(cluster.api, pod), pods.values())
        return dict(zip(pods, said, strict=True))


def _of_runtime(of_node: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the node's runtime gives containers no CDI device. Its pod cannot ask the runtime."""
    name, _space, version = profile.runtime_of(of_node).partition(" ")
    if declared["needs_cdi"] and name == "containerd" and cdi.accepted_version(version) is None:
        yield f"containerd {version} gives containers no CDI devices: upgrade it, or set injection: device_nodes"


def _unknown_of_runtime(cluster: ReadOnce, of_node: Mapping[str, Any], by_cdi: Iterable[Resource]) -> Iterator[str]:
    """Yield what the node object cannot show of a runtime whose CDI is off by default, until proofs show it.

    by_cdi: the resources that need CDI.
    """
    shown = profile.runtime_of(of_node)
    if shown.startswith("containerd 1."):
        record = Record(proof.read_record(of_node), cluster.deployment.image)
        if not all(record.holds(each, shown) for each in by_cdi):
            yield (
                f"{shown} gives containers CDI devices only if its configuration enables CDI, which the node object "
                "does not show: verify.yml proves a sample"
            )


def _drift(cluster: ReadOnce, declared: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the default configuration in the cluster differs from the declared one."""
    found = cluster.data().get(manifests.DEFAULT)
    where = f"ConfigMap {cluster.deployment.namespace}/{cluster.deployment.name}"
    if found is None:
        yield (
            f"{where} with the default configuration is missing: the running plugins keep their configuration, but no "
            "new pod starts: run site.yml"
        )
    elif found != deployed.configuration_text(declared):
        yield f"the default configuration in {where} is not the declared one: run site.yml"


def _of_all(name: str, alike: list[dict[str, Any]], different: int, problems: list[str]) -> dict[str, Any]:
    """Return the profile's entry.

    alike: of the nodes that are as declared. different: how many other nodes it has. problems: of the profile itself.
    """
    notes = [f"{different} of {len(alike) + different} nodes differ, and have rows of their own"] * bool(different)
    notes += ["no node has these labels"] * (not alike and not different)
    notes += dict.fromkeys(problem for entry in alike for problem in entry["problems"])
    state = "wrong" if problems else "ok"
    return {**together.summed(name, alike), "profile": name, "state": state, "problems": [*problems, *notes]}


def _of_strays(cluster: ReadOnce, named: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield an entry for each label value that nodes have and no DaemonSet of ours."""
    for value, nodes in other_daemonsets.strays(cluster).items():
        label = f"label {manifests.NODE_LABEL}={value}"
        problem = f"{label} names no DaemonSet, so the node gets no devices: correct the label"
        entries = [node.entry(each, node.Read(problems=(problem,))) for each in nodes if each not in named]
        yield from together.shared(entries)
