# SPDX-License-Identifier: Apache-2.0
"""Deploys the device plugin as a DaemonSet. See plugins/modules/daemonset.py."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean

from ...plugin.node_device_plugin.cluster import extended_resources, manifests, node_readiness
from ...plugin.node_device_plugin.cluster.api import Api, ApiError, Place
from ...plugin.node_device_plugin.declaration import DeclarationError
from ..plugin_utils import play, profiles, requirements
from ..plugin_utils.kubernetes import (
    claims,
    deployed,
    duplicate_nodes,
    groups,
    named_nodes,
    other_daemonsets,
    profile,
    rollout,
    waiting,
)
from ..plugin_utils.kubernetes.daemonset import DaemonSet
from ..plugin_utils.kubernetes.objects import Change, DeploymentError, outcome
from ..plugin_utils.node_action import NodeAction

# States that one task reaches for all hosts of the play.
_SHARED = ("deployed", "left", "absent")
# Seconds between two looks at a node object.
_PAUSE = 1.0


class ActionModule(NodeAction):
    """Contacts the API from the controller. On the node, it only reads the running plugin's report."""

    _requires_connection = False
    of_the_host = ("kubeconfig", "node_name")

    def act(self, given):
        if not given.get("kubeconfig"):
            raise DeploymentError(deployed.NO_TAINT if given["state"] == "untainted" else deployed.NO_CLUSTER)
        # A task for all hosts uses the names that other tasks have checked.
        is_shared = given["state"] in _SHARED
        self._is_profile = self.preflight.is_profile
        self._node = "" if is_shared else manifests.DEFAULT if self._is_profile else self.preflight.node_name(given)
        self._text = ""
        if "declaration" in given:
            # The pod does not see the node's users and groups.
            declared = self.preflight.with_numbers(given["declaration"], self.preflight.known or {})
            self._text = deployed.configuration_text(declared)
        self._timeout = float(given.get("timeout", 120))
        self._warnings = []
        self._renew = play.Renewal(self, self._vars)
        step = getattr(self, f"_{given['state']}")
        if is_shared:
            everybody = self._vars.get("ansible_play_hosts", [self.host])
            _require_one_run(self._task, everybody)
            result = self._for_each_daemon_set(step, given, everybody)
        else:
            self._cluster = self._daemon_set(given["kubeconfig"], deployed.parse(given.get("deployment", {})))
            result = step(given)
        return {**result, **({"warnings": self._warnings} if self._warnings else {})}

    def _daemon_set(self, path, deployment):
        return DaemonSet(Api.of(path, self._task.check_mode), deployment)

    def _for_each_daemon_set(self, step, arguments, everybody):
        """Run a step for each DaemonSet of the play's hosts.

        If the step fails for a DaemonSet, it still runs for the other DaemonSets. Then the task fails for all hosts.
        """
        changes, lines, kept = [], [], {}
        pending = arguments.get("pending", [])
        if arguments["state"] != "deployed":
            pending = other_daemonsets.expanded(pending, own=arguments["state"] == "absent")
        if arguments["state"] == "left" and not pending:
            return outcome([])
        found = groups.of(pending, arguments, duplicate_nodes.identity)
        if arguments["state"] == "deployed":
            groups.note_namesakes(found)
        for group in found:
            try:
                if group.problems:
                    raise DeploymentError("\n".join(group.problems))
                self._cluster, self._kubeconfig = self._daemon_set(group.kubeconfig, group.deployment), group.kubeconfig
                changes += step(arguments, group.results)
                # The last DaemonSet of a namespace removes the namespace that the others have kept.
                kept[group.kubeconfig, group.deployment.namespace] = self._cluster.namespace.kept
            except (ApiError, DeclarationError, DeploymentError) as error:
                hosts = ", ".join(group.hosts or everybody)
                lines += [f"{hosts}: {line}" for line in str(error).splitlines()]
        self._warnings += [f"namespace {name} stays: {why}" for (_path, name), why in kept.items() if why]
        if lines:
            return {"failed": True, "msg": "\n".join(lines)}
        return outcome(changes)

    def _configured(self, arguments):
        """Write the node's configuration into the ConfigMap. A profile's is written for all nodes at once, later."""
        # Check for unsupported settings before anything is written.
        configuration = manifests.read_configuration_text(self._text)
        manifests.common_ground({self.host if self._is_profile else self._node: configuration})
        node = "" if self._is_profile else self._node
        places = other_daemonsets.before(self._cluster, node)
        # For a node that Ansible reaches, the preflight checks this.
        if self.preflight.api_only:
            claims.refuse_lost(self._cluster, node, configuration)
        if self._is_profile:
            for of_node in profile.nodes(self._cluster) if configuration.uses_dra else ():
                _refuse_old_kubelet(of_node, "node {}: ".format(of_node["metadata"]["name"]))
        else:
            of_node = self._cluster.api.node(node)
            # For a node that Ansible reaches, the preflight checks this.
            if self.preflight.api_only:
                self._refuse_node(of_node, arguments, configuration, places)
        changes = self._cluster.configure({node: self._text} if node else {})
        if places:
            # No label matches two DaemonSets, so Kubernetes ends the one pod when it starts the other.
            self._warnings.append(
                f"{self.host}: the node moves from DaemonSet {' and '.join(place['name'] for place in places)} to "
                f"{self._cluster.deployment.name}. Its devices are not allocatable for some seconds, until the new pod "
                "has registered them. Containers that run keep their devices"
            )
        return {**outcome(changes), **self._whose(arguments, places), "text": self._text}

    def _refuse_node(self, of_node, arguments, configuration, places):
        """Raise DeploymentError if the node cannot have the pod, or if another plugin serves the resources."""
        no_slot = deployed.without_slot(self._cluster.api, of_node, self._cluster.deployment)
        if no_slot:
            raise DeploymentError(no_slot)
        if configuration.uses_dra:
            _refuse_old_kubelet(of_node)
        if not boolean(arguments.get("takeover", False)):
            names = [resource.name for resource in configuration.resources]
            other_daemonsets.refuse_foreign(self._cluster, self._node, names, places)

    def _whose(self, arguments, places):
        """Return this host's facts for the tasks that run once for all hosts. places: the node's other DaemonSets."""
        return {
            "other_daemonsets": places,
            "host": self.host,
            "node": self._node,
            "kubeconfig": arguments["kubeconfig"],
            "deployment": arguments.get("deployment", {}),
        }

    def _deployed(self, arguments, results):
        """Apply the DaemonSet for the configurations in the cluster. Remove nodes that are not in the inventory."""
        pending = {each["node"]: each["text"] for each in results if "text" in each}
        return self._cluster.deploy(pending, self._unknown_nodes(arguments, pending), self._named)

    def _selected(self, arguments):
        """Let the pod run on the node. If `started` is set, wait until the pod's process runs."""
        change = self._cluster.select(self._node)
        if arguments.get("started") and not self._task.check_mode:
            rollout.await_start(self._cluster, self._node, self._timeout, self._renew)
        return outcome([change])

    def _ready(self, arguments):
        """Wait until the node's pod is ready and runs with the declared configuration.

        For a profile, wait for the pods of a sample of its nodes.
        """
        sha256 = manifests.sha256_of(self._text)
        result = {"changed": False, "sha256": sha256, "pod": None}
        if self._is_profile:
            sample = profile.sample(self._cluster, profiles.sample_size(arguments), proven_first=True)
            for name in () if self._task.check_mode else sample.names:
                rollout.await_node(self._cluster, name, sha256, None, self._timeout, self._renew)
            return {**result, "nodes": sample.total}
        if self._task.check_mode:
            return result
        command = arguments.get("command")
        ask = (lambda _pod: rollout.ask_on_node(self, command)) if command else None
        pod = rollout.await_node(self._cluster, self._node, sha256, ask, self._timeout, self._renew)
        return {**result, "pod": pod["metadata"]["name"], "invocation_id": rollout.invocation_id(pod)}

    def _untainted(self, arguments):
        """Remove the startup taint of a node with the service, once the node object shows what the service offers."""
        api, taint = self._cluster.api, node_readiness.Taint.of(self._cluster.deployment.startup_taint)

        def look(is_late):
            node = api.node(self._node)
            removal = node_readiness.taint_removal(node, taint)
            if not removal:
                return []
            verdict = node_readiness.judge(node, rollout.offered_on_node(self, arguments["command"]))
            # In check mode, the service may not run yet.
            if verdict.is_ready or self._task.check_mode:
                api.patch_node(self._node, removal)
                return [Change(f"taint {taint} of node {self._node}", str(taint), None)]
            if is_late:
                raise DeploymentError(f"{self.host}: the startup taint {taint} stays: {verdict.message}")
            return None

        return outcome(waiting.until(look, self._timeout, _PAUSE, self._renew))

    def _removed(self, arguments):
        """Remove the node's label, proof record and configuration, and wait until the node's pod has ended.

        A profile goes with its DaemonSet.
        """
        if self._is_profile:
            return {**outcome([]), **self._whose(arguments, [])}
        places = other_daemonsets.left(self._cluster, self._node)
        clusters = [
            self._cluster,
            *(self._daemon_set(arguments["kubeconfig"], deployed.parse(each)) for each in places),
        ]
        tidied = {}
        if self.preflight.api_only and not self._task.check_mode:
            tidied = {change.what: change for cluster in clusters for change in self._tidy(cluster)}
        changes = {change.what: change for cluster in clusters for change in cluster.forget(self._node)}
        changes.update({what: tidied[what]._replace(after=None) for what in changes.keys() & tidied.keys()})
        of_node = self._cluster.api.get(Place("nodes", self._node))
        for cluster in clusters if not self._task.check_mode else ():
            # A pod whose node has a pool's labels stays, with the default.
            if of_node is None or not cluster.keeps(of_node):
                rollout.await_end(cluster, self._node, self._timeout, self._renew)
                # The pod may have set its condition again before it ended.
                left = cluster.api.get(Place("nodes", self._node))
                changes.update({change.what: change for change in (cluster.forget_condition(left) if left else ())})
        return {**outcome(changes.values()), **self._whose(arguments, places)}

    def _tidy(self, cluster):
        """Let the plugin remove CDI specs that no pod holds, because only the plugin can write on the node."""
        node, texts = cluster.api.get(Place("nodes", self._node)), cluster.data()
        text = texts.get(self._node, texts.get(manifests.DEFAULT))
        if node is None or text is None or not cluster.is_selected(node):
            return []
        if manifests.DEFAULT in texts and cluster.keeps(node):
            return []
        changes = []
        try:
            pod = rollout.newest(cluster, self._node)
            if pod is None or not rollout.is_started(pod):
                raise DeploymentError("its pod does not run")
            empty = manifests.configuration_text(manifests.read_configuration_text(text)._replace(resources=()))
            changes = cluster.configure({self._node: empty})
            rollout.await_node(cluster, self._node, manifests.sha256_of(empty), None, self._timeout)
        except (DeclarationError, DeploymentError) as error:
            self._warnings.append(f"{self.host}: CDI specs that the plugin wrote stay on the node: {error}")
        return changes

    def _left(self, arguments, results):
        """Remove the nodes' configurations from their former DaemonSet. Delete a DaemonSet without nodes."""
        changes = [change for each in results for change in self._cluster.forget_configuration(each["node"])]
        return [*changes, *self._absent(arguments, results)]

    def _absent(self, arguments, results):
        """Delete all objects if no node needs them."""
        leaving = {each["node"] for each in results}
        unknown_nodes = self._unknown_nodes(arguments, leaving)
        changes = [change for node in unknown_nodes for change in self._cluster.forget(node)]
        leaving.update(unknown_nodes)
        if manifests.DEFAULT in leaving:
            withdrawn, stays = profile.withdraw(self._cluster, leaving, self._named(), self._timeout)
            changes += withdrawn
            self._warnings += stays
        return [*changes, *self._cluster.dismantle(leaving)]

    def _named(self):
        """Return the DaemonSet's nodes that have a host of their own, which may have no key and be in no play."""
        hosts = (self._vars.get("groups") or {}).get("all", ())
        known, unread = named_nodes.found(self._vars, hosts, self._kubeconfig, self._cluster.deployment)
        self._warnings += unread
        return [name for node in self._cluster.nodes() if (name := node["metadata"]["name"]) in known] if known else []

    def _unknown_nodes(self, arguments, own):
        """Return the nodes with a configuration in the cluster but without a host in the inventory.

        own: nodes of this play.
        """
        known = arguments.get("nodes")
        return [] if known is None else sorted(set(self._cluster.texts()) - {*known, *own})


def _refuse_old_kubelet(of_node, where=""):
    """Raise DeploymentError if the kubelet of a node object does not know DRA drivers. where: begins the message."""
    version = extended_resources.info_of(of_node, "kubeletVersion").removeprefix("v")
    for problem in requirements.too_old_for_dra(version):
        raise DeploymentError(where + problem)


def _require_one_run(task, hosts):
    """Raise DeploymentError if the play's strategy ignores run_once, so that each host would run this task."""
    strategy = task.get_play().strategy if len(hosts) > 1 else "linear"
    if strategy.rpartition(".")[2] not in ("linear", "debug", "mitogen_linear"):
        raise DeploymentError(
            f"the play's strategy is {strategy}, but one task deploys the DaemonSet for all hosts: set strategy: "
            "linear in the play"
        )
