#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: node_preflight
short_description: Check a node before the roles write anything
description:
  - Reads, in one execution, the node's Python, C library, init, container runtime and kubelet. It also reads the
    requested device nodes, the plugin's command, the CDI specs and the ledger. It writes nothing except O(lock).
  - The action of the same name reports every unmet requirement (O(requires)) of a host at once, one sentence each.
  - If a play registers the result as C(node_devices_node), every action of this collection uses it in that play.
    Without O(lock), this action also uses it and executes nothing. Another play of the run checks the node again,
    because the node may have changed.
options:
  requires:
    description:
      - Requirements of the caller; read by the action.
      - V(python) is Python 3.9 or later, and V(systemd) is systemd as the first process. V(runtime) is a container
        runtime that accepts CDI devices through CRI. V(kubelet) is a kubelet that passes CDI names on; a missing
        kubelet is accepted. V(devices) are the required device nodes. V(command) is the plugin's O(command), which
        check mode does not require.
    type: list
    elements: str
    choices: [python, systemd, runtime, kubelet, devices, command]
    default: []
  cdi:
    description:
      - Whether devices are given by CDI, as M(nodedevices.kubernetes.declaration) returns it; read by the action. If
        false, the action accepts any version of runtime and kubelet.
    type: bool
    default: true
  command:
    description: Path of the plugin's command on the node that the caller runs; read by the action.
    type: path
  commands:
    description: Possible paths of the plugin's command; the action sets O(command) if given.
    type: list
    elements: path
    default: [/opt/node-devices/current/bin/node-device-plugin, /usr/local/bin/node-device-plugin]
  cri_socket:
    description:
      - The container runtime's socket, as a path or as C(unix:///path). If left out, the kubelet's configured socket.
        If no kubelet process is found, as with k3s, the first well-known socket with a listener. A distribution's own
        comes before CRI-O's, cri-dockerd's and containerd's.
    type: path
  ask:
    description:
      - Path of the plugin's command on the node, if the module should query the running container runtime about CDI
        (RV(running)). If no device of O(declaration) uses CDI, the module does not query the runtime.
    type: path
  foresee:
    description:
      - Modules of this collection by name (C(node_tools), C(service)), with the arguments that the play will give them,
        and C(host_devices) with the variables of its role. RV(foreseen) has the answers of those that have nothing to
        do; the play then does not execute them.
    type: dict
    default: {}
  lock:
    description:
      - Lock the node against other plays that also use this option, until M(nodedevices.kubernetes.node_lock) releases
        the lock. The lock expires after C(minutes) (default 15), plus 10 seconds for each host of the batch, unless
        modules renew it (RV(environment)). C(break) takes the lock from any other play.
      - If another play has the lock, the task fails and names the play and the time. The action ignores the lock of a
        play that ran on this controller and has ended. Check mode only reads the lock, and warns.
    type: dict
  declaration:
    description:
      - Result of M(nodedevices.kubernetes.declaration). The action checks its CDI specs against the node's runtime and
        against other owners' specs on the node. Read by the action.
    type: dict
  declared:
    description:
      - Whether to use the host's own declaration if O(declaration) is left out. The result then has it as
        C(declaration). Read by the action.
    type: bool
    default: false
  device_plugin_dir:
    description: The kubelet's device plugin directory; the action sets that of O(declaration) if given.
    type: path
    default: /var/lib/kubelet/device-plugins
  mode:
    description:
      - How the plugin should run on this node. Unless O(takeover) is set, the action refuses to take resources of
        O(declaration) from another device plugin, or from this plugin in the other mode. Read by the action.
    type: str
    choices: [service, daemonset]
  kubeconfig:
    description:
      - A kubeconfig file on the controller that the run needs. The action reads the file and the node object. If
        O(declaration) has fixed capacities, the action also checks the permission to patch the node's status. Read by
        the action.
      - Without O(declaration), as in an uninstall, the node need not exist in the cluster.
      - With O(mode=daemonset), the action refuses a node without a free pod slot, because the DaemonSet's pod would
        preempt another pod.
    type: path
  node_name:
    description: The node's name in the cluster, if it differs from the inventory's; read by the action.
    type: str
  drain:
    description:
      - Declares that the play may drain the node, with C(minutes) for its pods to end. The action then requires
        O(kubeconfig) and a node object. It refuses if C(together), the hosts of an unlimited batch, has more than one
        host.
    type: dict
  deployment:
    description: C(device_plugin_deployment) of role device_plugin; read by the action.
    type: dict
  takeover:
    description: Whether the plugin may take over another plugin's resources; read by the action.
    type: bool
    default: false
  device_paths:
    description: Device nodes to check, as M(nodedevices.kubernetes.declaration) returns them.
    type: dict
    default: {}
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Check the node
  nodedevices.kubernetes.node_preflight:
    requires: [python, systemd, runtime, kubelet]
  register: node
"""

RETURN = r"""
read_in:
  description: Identity of the play that read the result; only that play reuses it.
  type: str
  returned: always
host:
  description: The node's host in the inventory.
  type: str
  returned: always
environment:
  description: The C(environment) with which the following tasks renew the lock.
  type: dict
  returned: with O(lock), except in check mode
python:
  description: Version as three numbers, and path of the executable.
  type: dict
  returned: always
uid:
  description: User id with which tasks run.
  type: int
  returned: always
machine:
  description: Output of C(uname -m).
  type: str
  returned: always
libc:
  description: C library, such as V(glibc 2.41); empty if unknown.
  type: str
  returned: always
init:
  description: Name of the first process.
  type: str
  returned: always
runtime:
  description: Socket of the container runtime, and the process, name, version, unit and configuration behind it.
  type: dict
  returned: always
running:
  description: What the running container runtime reports about CDI (C(cdi)) to O(ask) (C(command)), if it answers.
  type: dict
  returned: always
foreseen:
  description: Arguments and answer of each module of O(foresee) that has nothing to do.
  type: dict
  returned: always
kubelet:
  description: The running kubelet, or nothing.
  type: dict
  returned: always
missing_devices:
  description: Paths of O(device_paths) that do not exist.
  type: list
  elements: str
  returned: always
other_than_devices:
  description: Paths of O(device_paths) that exist but are not device nodes, each with its kind.
  type: dict
  returned: always
commands:
  description: Paths of O(commands) that are executable.
  type: list
  elements: str
  returned: always
device_plugins:
  description: The running plugin (C(instance)), the resources with devices in the kubelet, and other plugins' sockets.
  type: dict
  returned: always
cdi_files:
  description: CDI spec files on the node, with their text.
  type: list
  elements: dict
  returned: always
ledger:
  description: Entries of the ledger.
  type: dict
  returned: always
settled:
  description:
    - Owners whose files on the node all match the ledger. A role that wants the same files again executes nothing.
  type: list
  elements: str
  returned: always
transaction_left:
  description:
    - Whether an interrupted change of the runtime's configuration has an unread outcome. The action first finishes or
      undoes the change (M(nodedevices.kubernetes.runtime_config)), except in check mode.
  type: bool
  returned: always
locked_by:
  description: Another play that works on the node; nothing if there is none or O(lock) is left out.
  type: dict
  returned: always
"""

import json
import os
import platform
import stat
import sys

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import directory_names, foreseen, play_lock
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.device_plugins import device_plugin_facts
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.hidden import Hidden, hidden_ledger, hidden_runtime
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.kubelet_facts import kubelet_facts, socket_path
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import settled
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.processes import text_of
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.runtime_facts import (
    likely_socket,
    runtime_facts,
    texts_of_list,
)
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.plan import Places

# Directories of the role's CDI specs and of the plugin's own.
_CDI_DIRS = ("/etc/cdi", "/var/run/cdi")
# No CDI spec is larger.
_LARGEST_SPEC = 1 << 20
_COMMANDS = ["/opt/node-devices/current/bin/node-device-plugin", "/usr/local/bin/node-device-plugin"]


def in_order(its_dirs):
    """Return all CDI directories in the order that the runtime has or will have, in which a later directory wins.

    Our directories have our spelling. its_dirs: from the runtime's configuration.
    """
    ours = {directory_names.normal(directory): directory for directory in _CDI_DIRS}
    its = [ours.get(directory_names.normal(directory), directory) for directory in its_dirs]
    return directory_names.with_ours(its, *_CDI_DIRS)


def cdi_files(directories):
    """Return every CDI spec file with its text, and .yml files, which users mistake for CDI specs."""
    files = []
    for directory in directories:
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            continue
        for name in names:
            path = os.path.join(directory, name)
            if (
                name.endswith((".json", ".yaml", ".yml"))
                and os.path.isfile(path)
                and os.path.getsize(path) <= _LARGEST_SPEC
            ):
                files.append({"path": path, "directory": directory, "name": name, "content": text_of(path)})
    return files


def looked_for(paths):
    """Return the missing device nodes, and the kind of each path that is no device node."""
    missing, others = [], {}
    for path in paths:
        try:
            mode = os.stat(path).st_mode
        except OSError:
            missing.append(path)
            continue
        if not (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)):
            others[path] = "a directory" if stat.S_ISDIR(mode) else "a file"
    return {"missing_devices": missing, "other_than_devices": others}


def ledger_facts(hidden):
    """Return the ledger's entries without secrets, the settled owners, and what is wrong with the ledger."""
    try:
        ledger = ledgers.Ledger()
        return {"settled": settled(ledger), "ledger": hidden_ledger(ledger.entries, "cdi_runtime", hidden)}
    except (ledgers.LedgerConflict, OSError, ValueError) as error:
        return {"settled": [], "ledger": {}, "ledger_problem": str(error)}


def running(module, command, socket):
    """Return the running container runtime's CDI state; None if the plugin's command is missing or gives no answer."""
    if not command or not os.access(command, os.X_OK):
        return None
    question = [command, "runtime", "--socket", socket, "-o", "json"]
    try:
        # After an upgrade of the operating system, the command's Python may be gone.
        _code, output, _error = module.run_command(question, handle_exceptions=False)
        cdi = json.loads(output)["cdi"]
        # Another release's command may report less.
        return {"command": command, "cdi": cdi} if {"enabled", "spec_dirs"} <= set(cdi) else None
    except (OSError, RecursionError, ValueError, KeyError, TypeError):
        return None


def libc():
    """Return name and version of the C library, such as ``glibc 2.41``; empty if unknown."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        return ""


def main():
    module = AnsibleModule(
        argument_spec={
            "requires": {
                "type": "list",
                "elements": "str",
                "choices": ["python", "systemd", "runtime", "kubelet", "devices", "command"],
                "default": [],
            },
            "commands": {"type": "list", "elements": "path", "default": _COMMANDS},
            "cri_socket": {"type": "path"},
            "device_paths": {"type": "dict", "default": {}},
            "ask": {"type": "path"},
            "foresee": {"type": "dict", "default": {}},
            "lock": {"type": "dict"},
            "device_plugin_dir": {"type": "path", "default": "/var/lib/kubelet/device-plugins"},
        },
        supports_check_mode=True,
    )
    lock = module.params["lock"]
    # Lock the node before reading its facts, so that no other play changes them. Only root can take the lock.
    try:
        locked_by = play_lock.take(lock, module.check_mode) if lock and os.geteuid() == 0 else None
    except OSError as error:
        module.fail_json(msg=f"{play_lock.PATH}: {error.strerror or error}")
    if not lock:
        play_lock.renew(module)
    kubelet, refused = kubelet_facts()
    for each in refused:
        module.warn(each)
    runtime_socket = socket_path(module.params["cri_socket"]) or (kubelet or {}).get("cri_socket") or likely_socket()
    runtime = runtime_facts(runtime_socket)
    hidden = Hidden()
    its_dirs = texts_of_list(runtime.get("config", {}).get("effective"), "cdi_spec_dirs")
    module.exit_json(
        changed=False,
        python={"version": list(sys.version_info[:3]), "executable": sys.executable},
        uid=os.geteuid(),
        machine=platform.machine(),
        libc=libc(),
        init=(text_of("/proc/1/comm") or "").strip(),
        runtime=hidden_runtime(runtime, hidden),
        running=running(module, module.params["ask"], runtime_socket),
        foreseen=foreseen.answers(module, module.params["foresee"]),
        kubelet=kubelet,
        commands=[path for path in module.params["commands"] if os.access(path, os.X_OK)],
        cdi_files=cdi_files(in_order(its_dirs)),
        device_plugins=device_plugin_facts(module.params["device_plugin_dir"]),
        transaction_left=bool(Places().left()),
        locked_by=locked_by,
        **looked_for(module.params["device_paths"]),
        **ledger_facts(hidden),
    )


if __name__ == "__main__":
    main()
