# SPDX-License-Identifier: Apache-2.0
"""Stops an uninstall while pods hold devices. See plugins/modules/device_holders.py."""

from __future__ import annotations

import os
import time

from ansible.errors import AnsibleError
from ansible.utils.display import Display

from ...plugin.node_device_plugin.cdi import role_specs
from ...plugin.node_device_plugin.support import answers
from ..plugin_utils import asked, declaration, play, plugin_cli
from ..plugin_utils.node_action import NodeAction

_POLICIES = ("refuse", "wait")
_PAUSE = 2.0


class ActionModule(NodeAction):
    """Queries the holders until no pod holds a device or the time is over. Skips nodes without our devices."""

    def act(self, given):
        host = self.host
        policy, minutes = given["policy"], asked.minutes(given, "node_devices_in_use_minutes")
        node = self.preflight.look({"requires": ["python"]})
        kubelet_root = (node.get("kubelet") or {}).get("root_dir")
        places = asked.places(self.preflight.variable(declaration.SETTINGS, {}))
        ours, arguments = _Ours(node), {"kubelet_root": kubelet_root, **places, **given}
        if policy not in _POLICIES:
            raise AnsibleError(f"node_devices_in_use: must be one of keep, {', '.join(_POLICIES)}, not {policy}")
        result = {"changed": False, "held": []}
        if not ours:
            return result
        timeout = minutes * 60 if policy == "wait" and not self._task.check_mode else 0
        until, said, renew = time.monotonic() + timeout, None, play.Renewal(self, self._vars)
        while True:
            try:
                held = ours.held(plugin_cli.holders(self, arguments))
            except plugin_cli.PluginCliError as error:
                result.update(failed=True, msg=f"Nothing was removed.\n{host}: {error}")
                return result
            sentence = _sentence(held)
            if not held or time.monotonic() >= until:
                break
            if sentence != said:
                Display().display(f"{host}: waiting up to {minutes:g} minutes, because {answers.readable(sentence)}")
                said = sentence
            renew()
            time.sleep(min(_PAUSE, until - time.monotonic()))
        result["held"] = held
        if held and policy == "wait" and self._task.check_mode:
            result["warnings"] = [f"{host}: would wait up to {minutes:g} minutes, because {sentence}"]
        elif held:
            waited = f" after {minutes:g} minutes" if timeout else ""
            result.update(
                failed=True,
                msg=f"Nothing was removed.\n{host}: {sentence}{waited}: end these pods (kubectl drain), or set "
                "node_devices_in_use: keep to keep what they need",
            )
        return result


class _Ours:
    """Our devices that pods can hold before an uninstall: served, or in our specs.

    node: the result of the module node_preflight.
    """

    def __init__(self, node):
        self._served = (node["device_plugins"]["instance"] or {"resources": []})["resources"]
        self._in_specs = node["spec_devices"]
        self._is_dynamic = any(role_specs.is_dynamic(*os.path.split(path)) for path in node["cdi_files"])

    def __bool__(self):
        """Whether the node has anything that a pod can hold."""
        return bool(self._served or self._in_specs or self._is_dynamic)

    def held(self, holders):
        """Return the entries for our devices. holders: from ``node-device-plugin holders``."""
        return [
            held
            for held in holders["held"]
            if held["resource"] in self._served
            or held.get("by_our_cdi")
            or any(role_specs.may_be(held, name) for name in self._in_specs)
        ]


def _sentence(held):
    """Return a text about pods and their devices, such as `default/viewer holds example.com/camera (cam0, cam1)`."""
    devices: dict[tuple[str, str], list[str]] = {}
    for entry in held:
        pod = role_specs.holder(entry) if entry.get("namespace") or entry.get("claim") else f"pod {entry['pod']}"
        devices.setdefault((pod, entry["resource"]), []).append(entry["device"])
    return ", ".join(f"{pod} holds {resource} ({', '.join(names)})" for (pod, resource), names in devices.items())
