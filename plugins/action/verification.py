# SPDX-License-Identifier: Apache-2.0
"""Verifies a node with the plugin's command, or through the API alone. See plugins/modules/verification.py."""

from __future__ import annotations

import functools
import json

from ansible.module_utils.parsing.convert_bool import boolean

from ...plugin.node_device_plugin.cluster.api import Api, ApiError
from ...plugin.node_device_plugin.cluster.pods import name_of
from ...plugin.node_device_plugin.declaration import DeclarationError, parse_configuration
from ...plugin.node_device_plugin.declaration.model import DRA
from ...plugin.node_device_plugin.declaration.names import class_name
from ...plugin.node_device_plugin.verification import judging
from ...plugin.node_device_plugin.verification.report import FAILED, PROVEN, UNPROVEN, Outcome, Row
from ..plugin_utils import asked, play, plugin_cli, profiles
from ..plugin_utils.kubernetes import api_verification, deployed, profile, proof, rollout
from ..plugin_utils.kubernetes.daemonset import DaemonSet
from ..plugin_utils.kubernetes.objects import DeploymentError
from ..plugin_utils.node_action import NodeAction

_OWNER = "verification"
_REQUIRES = ["python", "systemd", "runtime", "kubelet", "devices", "command"]
_ERRORS = (ApiError, DeclarationError, DeploymentError)
# The namespace of proof pods without a DaemonSet. Every cluster has this namespace.
_NAMESPACE = "kube-system"
# States without a proof that are not errors. Causes: no pod was scheduled, pods hold all devices, or no kubelet runs.
_WITHOUT_PROOF = ("unproven", "in use", "pending")


class ActionModule(NodeAction):
    """Runs the plugin's command on the node, and again for each inspection of pods.

    If the proof record changes, a module writes the record. If only the API reaches the node, the action contacts only
    the API server.
    """

    only_shown = True

    of_the_host = ("kubeconfig", "node_name")

    def act(self, given):
        self._arguments = given
        if given.get("state") == "absent":
            return self._remove()
        if self._task.check_mode:
            return {"skipped": True, "msg": "a proof needs a pod, which check mode does not create"}
        look = self.preflight
        declared = look.declaration(given.get("declaration"))
        if look.api_only:
            return self._verify_through_api(declared["configuration"])
        self._facts = look.look({"requires": _REQUIRES, "command": given["tool"], "declaration": declared})
        return self._verify_on_node(look.with_numbers(declared, self._facts)["configuration"])

    def _remove(self):
        """Delete the proofs' priority class and the node's proof pods. An error of the API server is only a warning."""
        if not self._arguments.get("kubeconfig"):
            return {"changed": False}
        try:
            api = Api.of(self._arguments["kubeconfig"], self._task.check_mode)
            namespaces = {_NAMESPACE, self._deployment().namespace}
            change = proof.remove(api, sorted(namespaces), self.preflight.node_name(self._arguments))
        except _ERRORS as error:
            told = f"{self.host}: the priority class of proofs stays in the cluster: {error}"
            return {"changed": False, "warnings": [told]}
        return {"changed": change.changed, "what": [change.what] * change.changed}

    def _verify_through_api(self, configuration):
        if not self._arguments.get("kubeconfig"):
            raise DeploymentError(asked.without_kubeconfig("only the Kubernetes API reaches this node"))
        cluster, configuration = self._daemon_set(), parse_configuration(configuration)
        unproven_only = self._arguments.get("proofs") == "unproven"
        verify = functools.partial(
            api_verification.verify,
            cluster,
            resources=configuration.resources,
            driver=configuration.dra.name,
            timeout=float(self._arguments.get("timeout", 60)),
            unproven_only=unproven_only,
            all_devices=self._arguments.get("devices") == "all",
        )
        if self.preflight.is_profile:
            sample = profile.sample(cluster, profiles.sample_size(self._arguments), proven_first=unproven_only)
            return self._verify_sample(sample, verify)
        report, changed = verify(self.preflight.node_name(self._arguments))
        report["problems"] += self._restarted()
        return {"changed": changed, **self._judged(report)}

    def _verify_sample(self, sample, verify):
        """Return one report about some of a profile's nodes. verify: returns the report of a node."""
        rows, problems, warnings, is_changed = [], [], [], False
        for name in sample.names:
            try:
                found, changed = verify(name)
            except (ApiError, DeploymentError) as error:
                # One broken node must not hide the others.
                problems += [f"{name}: {line}" for line in str(error).splitlines()]
                continue
            rows += [{**row, "resource": f"{row['resource']} on {name}"} for row in found["resources"]]
            problems += [f"{name}: {problem}" for problem in found["problems"]]
            warnings += [f"{name}: {warning}" for warning in found["warnings"]]
            is_changed = is_changed or changed
        unseen = sample.total - len(sample.names)
        warnings += [f"{unseen} of {sample.total} nodes were not verified (verification_sample)"] * bool(unseen)
        report = {"resources": rows, "problems": problems, "nodes": sample.total, "warnings": warnings}
        return {"changed": is_changed, **self._judged(report)}

    def _verify_on_node(self, configuration):
        arguments = self._arguments
        self._command = [*_command(arguments, self._facts), "--plugin", self._plugin()]
        self._renew = play.Renewal(self, self._vars)
        if not arguments.get("kubeconfig"):
            # The node's command makes all proofs. Each static pod may need the timeout to start, and again to end.
            number = 2 * len(configuration["resources"]) + 1
            self._renew.ahead(number * float(arguments.get("timeout", 60)))
        report = plugin_cli.answer(self, self._command, json.dumps(configuration))
        report["problems"] += self._restarted()
        if arguments.get("kubeconfig"):
            self._prove_by_pods(report, configuration)
        result = {"changed": False, **self._judged(report)}
        if report["proven"] != report["proven_before"]:
            content = json.dumps(report["proven"], indent=4, sort_keys=True) + "\n"
            written = self._execute_module(
                module_name="nodedevices.kubernetes.managed_files",
                module_args={"owner": _OWNER, "files": [{"path": arguments["record"], "content": content}]},
                task_vars=self._vars,
            )
            if written.get("failed"):
                return written
            result.update(changed=written["changed"], diff=written["diff"])
        return result

    def _restarted(self):
        """Return the problem that the plugin's pod has restarted since this play saw it; the node finds a service's."""
        arguments = self._arguments
        if not (self._is_pod and arguments.get("kubeconfig") and arguments.get("invocation")):
            return []
        try:
            node = arguments.get("node_name") or self.host
            found = rollout.restarted(self._daemon_set(), node, arguments["invocation"])
        except _ERRORS:
            # As for a service whose systemd does not answer.
            return []
        return [found] if found else []

    def _prove_by_pods(self, report, configuration):
        """Prove the unproven resources with pods that the scheduler places. The node's command inspects the pods."""
        rows = [Row(**row) for row in report["resources"]]
        resources = parse_configuration(configuration).resources
        classes = {each.name: class_name(each.name) for each in resources if each.api == DRA}
        wanted = [
            proof.Wanted(row.resource, row.shares, device_class=classes.get(row.resource, ""))
            for row in rows
            if row.state == UNPROVEN and row.shares
        ]
        if not wanted or report["image"] is None:
            return

        def look(pods):
            return self._look(pods, configuration, report)

        try:
            node = self.preflight.node_name(self._arguments, self._facts)
            api = Api.of(self._arguments["kubeconfig"])
            # Raise an error if the node does not exist, because the pods would wait for the node.
            api.node(node)
            timeout = float(self._arguments.get("timeout", 60))
            outcomes = proof.Proofs(api, self._kind(report["image"]), node, timeout, self._renew).prove(wanted, look)
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
            command += ["--proof-pod", name_of(pod)]
        found = plugin_cli.answer(self, command, json.dumps({**configuration, "resources": some}))
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

    def _plugin(self):
        """Return the plugin's mode and image for the proof record. If they change, earlier proofs are not valid."""
        return f"daemonset {self._deployment().image}" if self._is_pod else "service"

    def _kind(self, image):
        """Return the settings of proof pods. image: the node's sandbox image. Raises ApiError, DeclarationError."""
        everything = ({"operator": "Exists"},)
        if self._is_pod:
            cluster = self._daemon_set()
            owner = cluster.api.get(cluster.place)
            if owner is not None:
                return proof.Kind(cluster.deployment.namespace, image, everything, owner=owner)
        return proof.Kind(_NAMESPACE, image, everything)

    @property
    def _is_pod(self):
        return self.preflight.api_only or self._arguments.get("mode", "service") == "daemonset"

    def _deployment(self):
        return deployed.parse(self._arguments.get("deployment", {}))

    def _daemon_set(self):
        return DaemonSet(Api.of(self._arguments["kubeconfig"]), self._deployment())

    def _judged(self, report):
        """Return the report with its warnings and a warning for each unproven resource.

        With ``require_proof``, each resource without a proof is a problem instead of a warning.
        """
        without = {row["resource"]: row for row in report["resources"] if row["state"] in _WITHOUT_PROOF}
        problems, warnings = list(report["problems"]), list(report.get("warnings", ()))
        if boolean(self._arguments.get("require_proof", False)):
            problems += [f"{name}: {row['state']}: {row['detail']}" for name, row in without.items()]
        else:
            unproven = {name: row["detail"] for name, row in without.items() if row["state"] == UNPROVEN}
            warnings += [f"{name} is unproven: {why}" for name, why in unproven.items()]
        # Omit an empty list of warnings, because Ansible would print it.
        told = {"warnings": [f"{self.host}: {each}" for each in warnings]} if warnings else {}
        return {**{key: value for key, value in report.items() if key != "warnings"}, "problems": problems, **told}


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
