# SPDX-License-Identifier: Apache-2.0
"""Drains or uncordons a node. See plugins/modules/node_drain.py."""

from __future__ import annotations

import datetime

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.utils.display import Display

from ...plugin.node_device_plugin.cluster.api import Api, ApiError, Unavailable
from ...plugin.node_device_plugin.cluster.pods import name_of
from ..plugin_utils import asked, play
from ..plugin_utils.kubernetes import drain
from ..plugin_utils.kubernetes.waiting import until
from ..plugin_utils.node_action import NodeAction

# Seconds during which an uncordon retries if the API server is unreachable, and seconds between two attempts.
_TIMEOUT = 60.0
_PAUSE = 2.0


class ActionModule(NodeAction):
    """Contacts the API from the controller. On the node, it only renews the play's lock while pods end."""

    _requires_connection = False
    of_the_host = ("kubeconfig", "node_name")

    def act(self, given):
        result = {"changed": False}
        try:
            if not given.get("kubeconfig"):
                raise drain.NotDrained(drain.NO_CLUSTER)
            self._node = self.preflight.node_name(given)
            self._rules = _rules(given)
            self._drain = drain.Drain(Api.of(given["kubeconfig"], self._task.check_mode), self._node)
            self._renew = play.Renewal(self, self._vars)
            getattr(self, "_" + given["state"])(given, result)
        except (drain.NotDrained, ApiError) as error:
            result.update(failed=True, msg=self.preflight.message(error))
        return result

    def _drained(self, _arguments, result):
        self._drain.pods(self._rules)
        ours, result["changed"] = self._drain.cordon(_by())
        # Set the key before the eviction, so that later tasks have the key even if the drain fails.
        result["cordoned"] = ours
        pods = self._drain.pods(self._rules)
        names = [name_of(pod) for pod in pods]
        if pods and not self._task.check_mode:
            Display().display(
                f"{self._node}: waiting up to {self._rules.minutes:g} minutes for {', '.join(names)} to end"
            )
        blocked = self._drain.evict(pods, self._rules, self._renew)
        if blocked:
            result["warnings"] = [f"would wait up to {self._rules.minutes:g} minutes, because {'; '.join(blocked)}"]
        result.update(changed=result["changed"] or bool(pods), evicted=names)

    def _uncordoned(self, arguments, result):
        if self._task.check_mode:
            # A real run would uncordon a node that it had cordoned.
            result["changed"] = boolean(arguments.get("pending", False))
            return
        try:
            result["changed"] = until(lambda _is_late: self._drain.uncordon(), _TIMEOUT, _PAUSE)
        except Unavailable as error:
            raise drain.NotDrained(
                f"node {self._node} may still be cordoned, because {error}; otherwise run kubectl uncordon "
                f"{self._node} and kubectl annotate node {self._node} {drain.ANNOTATION}-"
            ) from error


def _rules(arguments):
    minutes = asked.minutes(arguments, "node_devices_drain_minutes")
    return drain.Rules(
        minutes, boolean(arguments.get("force", False)), boolean(arguments.get("delete_emptydir_data", False))
    )


def _by():
    """Return the annotation's text: the current time, this play and its user."""
    lock = play.wanted_lock(0)
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{now} by {lock['play']} of {lock['who']}"
