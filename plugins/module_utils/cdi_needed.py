# SPDX-License-Identifier: Apache-2.0
"""Finds why CDI must stay on: without CDI, a restarted container would lack its devices.

Each function returns a text for each device, spec or container. Runs on nodes: Python 3.9. The caller has loaded the
plugin's code (module_utils/node_code.py).
"""

from __future__ import annotations

import os

from . import plugin_command

_OWNER = "cdi_specs"


def by_specs(node, told, entries, runtime):
    """Return a reason for each of our specs that stays on the node, or in check mode would stay.

    told: the result of module cdi_specs, or empty. entries: of the ledger. runtime: its facts.
    """
    from node_device_plugin.cdi.directories import spec_paths
    from node_device_plugin.cdi.role_specs import is_dynamic
    from node_device_plugin.runtime.configuration import spec_dirs

    if node.check_mode and "stays" in told:
        paths = [*told["stays"], *told.get("dynamic", ())]
    else:
        paths = [path for path, entry in entries.items() if entry.get("owner") == _OWNER]
        there = [each for each in spec_dirs(runtime) if os.path.isdir(each)]
        # Of the running plugin.
        paths += [path for each in there for path in spec_paths(each) if is_dynamic(each, os.path.basename(path))]
    if not paths:
        return []
    reasons = [f"{kept['device']} is {kept['reason']}" for kept in told.get("kept") or () if "device" in kept]
    return reasons or [f"{path} exists and a pod may hold its devices" for path in paths]


def by_containers(node, params, socket, kubelet):
    """Return a reason for each container that holds a device by a CDI name, of any owner, and why others may.

    params: of module cdi_runtime. socket: of the runtime. kubelet: its facts. Raises OtherRelease if the command cannot
    list these containers.
    """
    # A drain asks this before it evicts the pods.
    if params["specs"].get("evicted"):
        return []
    places = {"--kubelet-root": kubelet.get("root_dir"), "--device-plugin-dir": params["device_plugin_dir"]}
    options = ["--socket", socket, *(word for place in places.items() if place[1] for word in place)]
    command = [params["command"]]
    if params["this_release"]:
        # With -I, Python imports no modules from the working directory or the user's directory.
        command = [os.path.join(os.path.dirname(command[0]), "python3"), "-I", params["this_release"]]
    try:
        told = plugin_command.ask(node, command, "holders", "--by-cdi", *options, "-o", "json")
        held, unknown = [_sentence(each) for each in told["held"]], told["unknown"]
    except plugin_command.OtherRelease:
        raise
    except (plugin_command.CommandError, KeyError, TypeError) as error:
        # The command may be missing in check mode, but not in a real run.
        held, unknown = [], [str(error)]
    return [*held, *(f"nobody knows which containers hold a CDI device: {reason}" for reason in unknown)]


def _sentence(held):
    pod = f"{held['namespace']}/{held['pod']}" if held["namespace"] else held["pod"]
    return f"pod {pod} (container {held['container']}) holds {', '.join(held['names'])}"
