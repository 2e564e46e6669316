# SPDX-License-Identifier: Apache-2.0
"""Verifies a node with the plugin's command on the node. See plugins/modules/verification.py."""

from __future__ import annotations

import json

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import DeclarationError
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification import judging
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification.report import (
    FAILED,
    PROVEN,
    UNPROVEN,
    Outcome,
    Row,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import play, plugin_cli, preflight, task_arguments
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import verification as reports
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import deployed, proof, rollout
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction

_OWNER = "verification"
_REQUIRES = ["python", "systemd", "runtime", "kubelet", "devices", "command"]
_ERRORS = (ApiError, DeclarationError, DeploymentError)
# The namespace of proof pods without a DaemonSet. Every cluster has this namespace.
_NAMESPACE = "kube-system"


class ActionModule(HidingAction):
    """Runs the plugin's command on the node, and again for each inspection of pods.

    If the proof record changes, a module writes the record.
    """

    only_shown = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        host = (task_vars or {}).get("inventory_hostname", "")
        if self._task.check_mode:
            return {**result, "skipped": True, "msg": "a proof needs a pod, which check mode does not create"}
        arguments = task_arguments.of(self, task_vars, "kubeconfig", "node_name")
        look = preflight.Preflight(self, task_vars)
        try:
            declared = look.declaration(arguments.get("declaration"))
            seen = look.node(arguments.get("node"), _REQUIRES, command=arguments["tool"], declaration=declared)
            declared = look.with_numbers(declared, seen)
            self._preflight, self._facts = look, seen.node
            verified = self._verified(declared["configuration"], seen.node, arguments, host, task_vars)
        except preflight.ERRORS as error:
            return {**result, **look.failed(error)}
        return seen.told({**result, **verified})

    def _verified(self, configuration, node, arguments, host, task_vars):
        result = {}
        try:
            self._command = [*_command(arguments, node), "--plugin", _plugin(arguments)]
            self._task_vars = task_vars
            self._renew = play.Renewal(self, task_vars)
            if not arguments.get("kubeconfig"):
                # The node's command makes all proofs. Each static pod may need the timeout to start, and again to end.
                number = 2 * len(configuration["resources"]) + 1
                self._renew.ahead(number * float(arguments.get("timeout", 60)))
            report = plugin_cli.answer(self, self._command, json.dumps(configuration), task_vars)
            report["problems"] += self._restarted(arguments, host)
            if arguments.get("kubeconfig"):
                self._prove_by_pods(report, configuration, host, arguments)
        except (plugin_cli.PluginCliError, DeclarationError) as error:
            return {**result, "failed": True, "msg": f"{host}: {error}"}
        result.update(changed=False, **reports.judged(report, host, boolean(arguments.get("require_proof", False))))
        if report["proven"] != report["proven_before"]:
            content = json.dumps(report["proven"], indent=4, sort_keys=True) + "\n"
            written = self._execute_module(
                module_name="nodedevices.kubernetes.managed_files",
                module_args={"owner": _OWNER, "files": [{"path": arguments["record"], "content": content}]},
                task_vars=task_vars,
            )
            if written.get("failed"):
                return written
            result.update(changed=written["changed"], diff=written["diff"])
        return result

    def _restarted(self, arguments, host):
        """Return the problem that the plugin's pod has restarted since this play saw it; the node finds a service's."""
        if arguments.get("mode") != "daemonset" or not (arguments.get("kubeconfig") and arguments.get("invocation")):
            return []
        try:
            api = Api.of(arguments["kubeconfig"])
            cluster = DaemonSet(api, deployed.parse(arguments.get("deployment", {})))
            found = rollout.restarted(cluster, arguments.get("node_name") or host, arguments["invocation"])
        except _ERRORS:
            # As for a service whose systemd does not answer.
            return []
        return [found] if found else []

    def _prove_by_pods(self, report, configuration, host, arguments):
        """Prove the unproven resources with pods that the scheduler places. The node's command inspects the pods."""
        rows = [Row(**row) for row in report["resources"]]
        wanted = [proof.Wanted(row.resource, row.shares) for row in rows if row.state == UNPROVEN and row.shares]
        if not wanted or report["image"] is None:
            return

        def look(pods):
            return self._look(pods, configuration, report)

        try:
            api = Api.of(arguments["kubeconfig"])
            node = self._preflight.node_name(arguments, self._facts)
            # Raise an error if the node does not exist, because the pods would wait for the node.
            api.node(node)
            kind = _kind(api, report["image"], arguments)
            proofs = proof.Proofs(api, kind, node, float(arguments.get("timeout", 60)), self._renew)
            outcomes = proofs.prove(wanted, look)
        except _ERRORS as error:
            outcomes = {each.resource: Outcome(unproven=str(error)) for each in wanted}
        for name, outcome in outcomes.items():
            report["problems"] += [f"{name}: {mismatch}" for mismatch in outcome.mismatches]
            if outcome.mismatches:
                report["proven"].pop(name, None)
        report["resources"] = [judging.with_outcome(row, outcomes)._asdict() for row in rows]

    def _look(self, pods, configuration, report):
        """Let the node's command inspect ``pods`` (pod by resource). Return outcomes, and update the proof record."""
        some = [each for each in configuration["resources"] if each["name"] in pods]
        command = [*self._command]
        for pod in pods.values():
            command += ["--proof-pod", f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"]
        found = plugin_cli.answer(self, command, json.dumps({**configuration, "resources": some}), self._task_vars)
        outcomes = {}
        for row in (Row(**row) for row in found["resources"]):
            name = row.resource
            if row.state == PROVEN:
                report["proven"][name] = found["proven"][name]
                outcomes[name] = Outcome(tuple(row.seen))
            elif row.state == FAILED:
                said = f"{name}: "
                problems = [each.removeprefix(said) for each in found["problems"] if each.startswith(said)]
                outcomes[name] = Outcome(mismatches=("; ".join(problems),))
            else:
                outcomes[name] = Outcome(unproven=row.detail or row.state)
        return outcomes


def _command(arguments, node):
    """Return the plugin's command that verifies a node."""
    kubelet = node["kubelet"] or {}
    command = [arguments["tool"], "verify", "--config", "/dev/stdin", "--output", "json"]
    command += ["--socket", node["runtime"]["socket"], "--record", arguments["record"]]
    command += ["--devices", arguments.get("devices", "one"), "--timeout", str(arguments.get("timeout", 60))]
    options = {
        "--image": arguments.get("image"),
        "--kubelet-root": kubelet.get("root_dir"),
        "--invocation": arguments.get("invocation") if arguments.get("mode", "service") == "service" else None,
    }
    # Empty for a kubelet without static pods. Without the option, the command would ask for it.
    command += ["--static-pod-dir", kubelet.get("static_pod_path") or ""]
    if not arguments.get("kubeconfig"):
        # Without a kubeconfig, proofs are static pods, which need a free pod slot.
        options.update({"--kubelet-kubeconfig": kubelet.get("kubeconfig"), "--max-pods": kubelet.get("max_pods")})
    command += ["--unproven"] * (arguments.get("proofs") == "unproven")
    command += ["--no-static-pods"] * bool(arguments.get("kubeconfig"))
    return command + [word for option, given in options.items() if given for word in (option, str(given))]


def _plugin(arguments):
    """Return the plugin's mode and image for the proof record. If they change, earlier proofs are not valid."""
    if arguments.get("mode", "service") != "daemonset":
        return "service"
    return f"daemonset {deployed.parse(arguments.get('deployment', {})).image}"


def _kind(api, image, arguments):
    """Return the settings of proof pods. image: the node's sandbox image. Raises DeclarationError."""
    everything = ({"operator": "Exists"},)
    if arguments.get("mode", "service") == "daemonset":
        cluster = DaemonSet(api, deployed.parse(arguments.get("deployment", {})))
        owner = api.get(cluster.place)
        if owner is not None:
            return proof.Kind(cluster.deployment.namespace, image, everything, owner=owner)
    return proof.Kind(_NAMESPACE, image, everything)
