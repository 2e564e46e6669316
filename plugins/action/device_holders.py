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
        arguments = {"kubelet_root": kubelet_root, **places, **given}
        if policy not in _POLICIES:
            raise AnsibleError(f"node_devices_in_use: must be one of keep, {', '.join(_POLICIES)}, not {policy}")
        result = {"changed": False, "held": []}
        # What pods can hold before an uninstall: the resources that the plugin serves, and the devices in our specs.
        served = (node["device_plugins"]["instance"] or {"resources": []})["resources"]
        in_specs = node["spec_devices"]
        if not (served or in_specs or any(role_specs.is_dynamic(*os.path.split(path)) for path in node["cdi_files"])):
            return result
        timeout = minutes * 60 if policy == "wait" and not self._task.check_mode else 0
        until, said, renew = time.monotonic() + timeout, None, play.Renewal(self, self._vars)
        while True:
            try:
                holders = plugin_cli.holders(self, arguments)["held"]
            except plugin_cli.PluginCliError as error:
                result.update(failed=True, msg=f"Nothing was removed.\n{host}: {error}")
                return result
            held = [each for each in holders if _is_ours(each, served, in_specs)]
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


def _is_ours(held, served, in_specs):
    """Return whether a held device is of one of the resources ``served``, or in our specs (``in_specs``: its names)."""
    is_in_specs = held.get("by_our_cdi") or any(role_specs.may_be(held, name) for name in in_specs)
    return held["resource"] in served or is_in_specs


def _sentence(held):
    """Return a text about pods and their devices, such as `default/viewer holds example.com/camera (cam0, cam1)`."""
    devices: dict[tuple[str, str], list[str]] = {}
    for entry in held:
        pod = role_specs.holder(entry) if entry.get("namespace") or entry.get("claim") else f"pod {entry['pod']}"
        devices.setdefault((pod, entry["resource"]), []).append(entry["device"])
    return ", ".join(f"{pod} holds {resource} ({', '.join(names)})" for (pod, resource), names in devices.items())
