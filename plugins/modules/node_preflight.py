#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: node_preflight
short_description: Check a node before the roles write anything
description:
  - Reads the node's Python, init, container runtime, kubelet, requested device nodes, CDI specs and ledger, in one
    execution. The module writes nothing except the lock (O(lock)).
  - The action of the same name reports every unmet requirement (O(requires)) of a host at once, one sentence each.
  - If a play registers the result as C(node_devices_node), every action of this collection uses this result in that
    play. Without O(lock), this action reuses the registered result and executes no module. Every other play of the run
    checks the node again, because the node may have changed. The result then also has facts that only actions read.
options:
  requires:
    description:
      - Requirements of the caller; read by the action.
      - V(python) requires Python 3.9 or later, and V(systemd) requires systemd as the first process. V(runtime)
        requires a container runtime that accepts CDI devices through CRI. V(kubelet) requires that the kubelet, if one
        runs, passes CDI names on. V(devices) requires all device nodes that the declaration marks as required, and the
        host paths of their mounts and hooks. With O(lock) and in check mode, this excludes paths that role
        C(host_devices) will create. V(command) requires the plugin's O(command), except in check mode.
    type: list
    elements: str
    choices: [python, systemd, runtime, kubelet, devices, command]
    default: []
  cdi:
    description: Whether containers get devices by CDI. If false, any version of runtime and kubelet is accepted.
    type: bool
    default: true
  cdi_dir:
    description: The directory of the plugin's CDI specs, if it differs from the default.
    type: path
  command:
    description: Path of the plugin's command, which the caller runs on the node; read by the action.
    type: path
  commands:
    description: Possible paths of the plugin's command. If O(command) is set, the action checks only that path.
    type: list
    elements: path
    default: [/opt/node-devices/current/bin/node-device-plugin, /usr/local/bin/node-device-plugin]
  cri_socket:
    description:
      - The container runtime's socket, as a path or as C(unix:///path). The default is the kubelet's configured socket.
        If no kubelet process is found, as with k3s, the default is the first well-known socket on which a process
        listens. A distribution such as k3s comes first, then CRI-O, cri-dockerd and containerd.
    type: path
  converge:
    description:
      - Modules of this collection by name, each with a list of the arguments that the play will use
        (C(cdi_runtime), C(cdi_specs), C(managed_files), C(service), C(host_devices), C(node_tools)). The node does the
        work of each module in check mode. If a module would refuse the node, the action fails. If a module would change
        nothing, or in check mode, the play does not execute it again.
    type: dict
    default: {}
  lock:
    description:
      - Locks the node against other plays that also use this option, until M(nodedevices.kubernetes.node_lock) releases
        the lock. The lock expires after C(minutes) (default 15), plus 10 seconds for each host of the batch, unless
        modules renew it (RV(environment)). C(break) takes the lock from any other play.
      - If another play holds the lock, the task fails, and its message contains the play and the time. The action
        ignores the lock of a play that ran on this controller and has ended. Check mode only reads the lock, and prints
        a warning.
    type: dict
  declaration:
    description:
      - Result of M(nodedevices.kubernetes.declaration), whose CDI specs the action checks against the node's runtime
        and other owners' specs.
    type: dict
  declared:
    description: Whether to use the host's own declaration, and return it as C(declaration). Read by the action.
    type: bool
    default: false
  device_plugin_dir:
    description: The kubelet's device plugin directory. With O(declaration), the action sets the declared directory.
    type: path
    default: /var/lib/kubelet/device-plugins
  mode:
    description:
      - How the plugin should run on this node. Unless O(takeover) is set, the action fails if another device plugin, or
        this plugin in the other mode, serves resources of O(declaration). It always fails if another DRA driver has
        the name of the declared one. Read by the action.
    type: str
    choices: [service, daemonset]
  kubeconfig:
    description:
      - Path of a kubeconfig file on the controller that the run needs. The action checks this file and reads the node
        object. If O(declaration) has fixed capacities, the action also checks the permission to patch the node's
        status. Read by the action.
      - The action fails if the host is not the machine of the node object (RV(identity)). It warns if neither the
        kubelet's certificate nor the node object tells.
      - Without O(declaration), as in an uninstall, the cluster may have no such node.
      - With O(mode=daemonset), the action refuses a node without a free pod slot, because the scheduler would preempt
        another pod for the DaemonSet's pod.
    type: path
  node_name:
    description: The node's name in the cluster, if it is not the host's name in the inventory; read by the action.
    type: str
  drain:
    description:
      - Set this if the play may drain the node. C(minutes) is the time for its pods to end. The action then requires
        O(kubeconfig) and a node object. It fails if C(together), the hosts of a batch without a size limit, contains
        more than one host.
    type: dict
  deployment:
    description: C(device_plugin_deployment) of role device_plugin; read by the action.
    type: dict
  takeover:
    description: Whether the plugin may take over the resources of another plugin; read by the action.
    type: bool
    default: false
  device_paths:
    description: Device nodes to check. With O(declaration), the action sets the declared device nodes.
    type: dict
    default: {}
  host_paths:
    description: Other host paths to check. With O(declaration), the action sets the declared paths.
    type: list
    elements: str
    default: []
  dra:
    description:
      - The DRA driver of the node, with the keys C(name), C(node) and C(kubeconfig). The module checks whether the
        driver can use the kubeconfig. With O(declaration), the action sets the declared driver if a resource needs it.
    type: dict
  accounts:
    description: Names of C(users) and C(groups) to look up. With O(declaration), the action sets the declared names.
    type: dict
    default: {}
extends_documentation_fragment: nodedevices.kubernetes.shared.code
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Check the node
  nodedevices.kubernetes.node_preflight:
    requires: [python, systemd, runtime, kubelet]
  register: node
"""

RETURN = r"""
environment:
  description: The C(environment) that following tasks need to renew the lock.
  type: dict
  returned: with O(lock), except in check mode
python:
  description:
    - Version as three numbers, path of the executable, why the plugin's service cannot run it (C(obstacle)), and which
      hidden directory contains the environments (C(hidden_root)). Both are null if the service can run.
  type: dict
  returned: always
runtime:
  description: The runtime's socket, process, name, version and unit, and why it cannot give devices (C(obstacles)).
  type: dict
  returned: always
kubelet:
  description: The running kubelet; null if none runs.
  type: dict
  returned: always
identity:
  description:
    - The node's name in the client certificate of its kubelet (C(name)), and the ids that a kubelet reports
      (C(machine_id), C(system_uuid)); null if unknown.
  type: dict
  returned: always
missing_devices:
  description: Paths of O(device_paths) that do not exist.
  type: list
  elements: str
  returned: always
missing_host_paths:
  description: Paths of O(host_paths) that do not exist. A path on a file system that hangs is not listed.
  type: list
  elements: str
  returned: always
commands:
  description: Paths of O(commands) that are executable.
  type: list
  elements: str
  returned: always
device_plugins:
  description:
    - The running plugin (C(instance)), the resources that have devices in the kubelet, the sockets of other
      plugins, and the names of DRA drivers.
  type: dict
  returned: always
claims_prepared:
  description:
    - The ResourceClaims that the plugin's DRA driver has prepared, and that only this driver can release. Each has its
      namespace and name (C(name)), the name of the driver (C(driver), or null if unknown), and the directory of CDI
      specs with its record (C(directory)).
  type: list
  elements: dict
  returned: always
dra:
  description:
    - Why the driver cannot use its kubeconfig (C(problem), or null), and the files and directories that it reads
      (C(paths)).
  type: dict
  returned: with O(dra)
ledger:
  description: Paths in the ledger.
  type: list
  elements: str
  returned: always
locked_by:
  description: Another play that works on the node; null without such a play or without O(lock).
  type: dict
  returned: always
"""

import contextlib
import glob
import json
import os
import stat
import sys
import threading
import time

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import ledger as ledgers
from ..module_utils import node_code, play_lock
from ..module_utils.account_numbers import numbers
from ..module_utils.converge import registry
from ..module_utils.device_plugins import device_plugin_facts
from ..module_utils.environment import interpreter
from ..module_utils.node_device_plugin.support import bounded_reads, directory_names
from ..module_utils.node_device_plugin.support.bounded_reads import text_of
from ..module_utils.node_device_plugin.support.kubelet_process import running_kubelet
from ..module_utils.node_device_plugin.support.node_process import NotTrusted
from ..module_utils.node_identity import node_identity
from ..module_utils.runtime_facts import runtime_facts, shown, socket_of
from ..module_utils.transaction.plan import Places

# Maximum seconds to look at all host paths.
_PATIENCE = 5.0
_KUBELET_ROOT = "/var/lib/kubelet"
_REGISTRY = "plugins_registry"
# The plugin's records of claims, below its directory of CDI specs. Source: RECORDS in node_device_plugin.kubelet.dra.
_RECORDS = "node-device-plugin-claims"
_MOST_RECORDS = 10000
_COMMANDS = ["/opt/node-devices/current/bin/node-device-plugin", "/usr/local/bin/node-device-plugin"]


def spec_devices(paths, present=None):
    """Return the devices in files of role cdi_specs. Omits a file that someone changed to something else.

    present: the specs by file name, if the role's converge function has read them.
    """
    names = []
    for path in paths:
        with contextlib.suppress(KeyError, RecursionError, TypeError, ValueError):
            spec = json.loads(text_of(path) or "") if present is None else present[os.path.basename(path)]
            names += ["{}={}".format(spec["kind"], device["name"]) for device in spec["devices"]]
    return names


def looked_for(paths):
    """Return the missing device nodes, the kind of each path that is not a device node, and the targets of links."""
    missing, others, links = [], {}, {}
    for path in paths:
        try:
            mode = os.stat(path).st_mode
        except OSError:
            missing.append(path)
            continue
        if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
            others[path] = "a directory" if stat.S_ISDIR(mode) else "a file"
        elif os.path.realpath(path) != path:
            links[path] = os.path.realpath(path)
    return {"missing_devices": missing, "other_than_devices": others, "device_links": links}


def missing_of(paths):
    """Return the paths that do not exist, without paths that do not answer in time: a mount may be on a dead server."""
    missing = []

    def look(path):
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            missing.append(path)
        except (OSError, ValueError):
            pass

    # Python does not wait for a daemon thread that hangs.
    threads = [threading.Thread(target=look, args=(path,), daemon=True) for path in paths]
    for thread in threads:
        thread.start()
    until = time.monotonic() + _PATIENCE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return sorted(missing)


def ledger_facts():
    """Return role cdi_specs' paths in the ledger, and the facts: the paths of all roles, and the ledger's error if any.

    The entries stay on the node, because they have the former content of files.
    """
    try:
        ledger = ledgers.Ledger()
        return ledger.of("cdi_specs"), {"ledger": sorted(ledger.entries)}
    except (ledgers.LedgerConflict, OSError, ValueError) as error:
        return [], {"ledger": [], "ledger_problem": str(error)}


def judged(runtime, module):
    """Return the runtime's facts for the controller, and the directories of CDI specs.

    Only with the plugin's code do the facts have the obstacles, and the directories the runtime's own ones.
    """
    if not module.params["code"]:
        return shown(runtime), list(directory_names.CDI_DIRS)
    from node_device_plugin.runtime import configuration

    obstacles = list(configuration.obstacles(runtime, module.params["cdi"]))
    return {**shown(runtime), "obstacles": obstacles}, configuration.spec_dirs(runtime)


def prepared_claims(directories):
    """Return the claims of which the plugin has a record below a directory of CDI specs."""
    claims = []
    for directory in dict.fromkeys(map(directory_names.normal, directories)):
        entries = bounded_reads.entries(os.path.join(directory, _RECORDS), _MOST_RECORDS)
        # The plugin writes a record under a hidden name without this ending first.
        paths = sorted(entry.path for entry in entries if entry.name.endswith(".json"))
        claims += [{**_recorded(path), "directory": directory} for path in paths]
    return claims


def _recorded(path):
    """Return the name and the driver of a recorded claim. If the record is unreadable, its file names the claim."""
    try:
        data = bounded_reads.json_of(bounded_reads.read_file(path, follow=False))
        claim, driver = data["claim"], data.get("driver")
        name = "{}/{}".format(claim["namespace"], claim["name"])
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        name, driver = os.path.basename(path), None
    return {"name": name, "driver": driver if isinstance(driver, str) else None}


def dra_access(driver, kubelet_root):
    """Return the access of a DRA driver. driver: the option, or None. kubelet_root: the kubelet's directory."""
    if driver is None:
        return {}
    from node_device_plugin.cluster import dra_access as access
    from node_device_plugin.declaration.model import DraDriver

    return {"dra": access.look(DraDriver(**driver), kubelet_root)._asdict()}


def main():
    module = AnsibleModule(
        argument_spec={
            "cdi_dir": {"type": "path"},
            "commands": {"type": "list", "elements": "path", "default": _COMMANDS},
            "cri_socket": {"type": "path"},
            "device_paths": {"type": "dict", "default": {}},
            "dra": {"type": "dict"},
            "host_paths": {"type": "list", "elements": "str", "default": []},
            "accounts": {"type": "dict", "default": {}},
            "cdi": {"type": "bool", "default": True},
            "code": node_code.ARGUMENT,
            "converge": {"type": "dict", "default": {}},
            "lock": {"type": "dict"},
            "device_plugin_dir": {"type": "path", "default": "/var/lib/kubelet/device-plugins"},
        },
        supports_check_mode=True,
    )
    if module.params["code"]:
        node_code.load_for(module)
    lock = module.params["lock"]
    # Lock the node before the facts are read, so that no other play changes them. Only root can take the lock.
    try:
        locked_by = play_lock.take(lock, module.check_mode) if lock and os.geteuid() == 0 else None
    except OSError as error:
        module.fail_json(msg=f"{play_lock.PATH}: {error.strerror or error}")
    if not lock:
        play_lock.renew(module)
    kubelet_problem = None
    try:
        process, refused = running_kubelet()
    except NotTrusted as error:
        process, refused, kubelet_problem = None, [], str(error)
    kubelet = process and process._asdict()
    for each in refused:
        module.warn(each)
    # Only the plugin's code parses the runtime's configuration.
    runtime = runtime_facts(socket_of(module.params["cri_socket"], kubelet), bool(module.params["code"]))
    asked = module.params["converge"]
    root = next((arguments.get("root") for arguments in asked.get("node_tools", ())), None)
    told, directories = judged(runtime, module)
    own_specs, of_ledger = ledger_facts()
    root_dir = (kubelet or {}).get("root_dir")
    plugins = device_plugin_facts(
        module.params["device_plugin_dir"], os.path.join(root_dir or _KUBELET_ROOT, _REGISTRY)
    )
    served = (plugins["instance"] or {}).get("resources", ())
    facts = {"runtime": runtime, "cdi_directories": directories, "kubelet_root": root_dir, "served": served}
    if kubelet_problem is None:
        facts["kubelet"] = kubelet or {}
    module.exit_json(
        changed=False,
        python={
            "version": list(sys.version_info[:3]),
            "executable": sys.executable,
            "obstacle": interpreter.obstacle(),
            "hidden_root": interpreter.hidden_below(root) if root else None,
        },
        uid=os.geteuid(),
        init=(text_of("/proc/1/comm") or "").strip(),
        runtime=told,
        converged=registry.answers(module, asked, facts) if os.geteuid() == 0 else {},
        kubelet=kubelet,
        identity=node_identity(kubelet),
        kubelet_problem=kubelet_problem,
        accounts=numbers(**module.params["accounts"]),
        commands=[path for path in module.params["commands"] if os.access(path, os.X_OK)],
        cdi_directories=directories,
        claims_prepared=prepared_claims([*directories, *filter(None, [module.params["cdi_dir"]])]),
        cdi_files=[path for each in directories for path in glob.glob(os.path.join(glob.escape(each), "*.json"))],
        spec_devices=spec_devices(own_specs, facts["specs"].present if "specs" in facts else None),
        device_plugins=plugins,
        transaction_left=bool(Places().left()),
        locked_by=locked_by,
        missing_host_paths=missing_of(module.params["host_paths"]),
        **dra_access(module.params["dra"] if os.geteuid() == 0 else None, root_dir or _KUBELET_ROOT),
        **looked_for(module.params["device_paths"]),
        **of_ledger,
    )


if __name__ == "__main__":
    main()
