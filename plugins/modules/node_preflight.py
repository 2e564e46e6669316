#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: node_preflight
short_description: What the roles must know of a node before they write anything
description:
  - Reads, in one execution, the node's Python and C library, its init, the container runtime in use, the kubelet, the
    device nodes that are asked for, the plugin's command, and the CDI specs and the ledger that are there. It writes
    nothing, but O(lock).
  - The action of the same name turns what cannot work (O(requires)) into one sentence each, all of a host at once.
  - A result that a play has registered as C(node_devices_node) is what every action of this collection goes on from in
    that play. Without O(lock) this one does, too, and executes nothing. In another play of the run the node is looked
    at again, because it may have changed since.
options:
  requires:
    description:
      - What the caller cannot do without; read by the action.
      - V(python) is Python 3.9, V(systemd) systemd as the first process, V(runtime) a container runtime that takes CDI
        devices through CRI, V(kubelet) a kubelet that passes CDI names on (none yet is fine), V(devices) the device
        nodes that are required, V(command) the plugin's O(command), which check mode does without.
    type: list
    elements: str
    choices: [python, systemd, runtime, kubelet, devices, command]
    default: []
  cdi:
    description:
      - Whether devices are given by CDI, as M(nodedevices.kubernetes.declaration) returns it; read by the action.
        Without it any version of runtime and kubelet will do.
    type: bool
    default: true
  command:
    description: The plugin's command on the node that the caller runs; read by the action.
    type: path
  commands:
    description: Where to look for the plugin's command; set by the action to O(command) where that is given.
    type: list
    elements: path
    default: [/opt/node-devices/current/bin/node-device-plugin, /usr/local/bin/node-device-plugin]
  cri_socket:
    description:
      - The container runtime's socket, as a path or as C(unix:///path). If left out, the one that the running kubelet
        uses; where no kubelet runs (k3s has it in a process of another name), the one on which a distribution's own
        runtime listens, else CRI-O's, cri-dockerd's or containerd's.
    type: path
  ask:
    description:
      - The plugin's command, if it is to ask the running container runtime what it does about CDI (RV(running)). It
        does not ask where O(declaration) gives no device by CDI.
    type: path
  foresee:
    description:
      - Modules of this collection by name (C(node_tools), C(service)) with the arguments that the play will give them.
        RV(foreseen) has the answers of those that have nothing to do, and the play executes them no more.
    type: dict
    default: {}
  lock:
    description:
      - Keep other plays off the node, as far as they ask for it too, until M(nodedevices.kubernetes.node_lock) lets go
        of it. V(minutes) after which it lapses unless it is renewed (RV(environment)), and 10 seconds more for each
        host of the batch; V(break) takes it from whoever has it.
      - Where another play has it, the task fails and says who and since when. One that is known to be over, because it
        ran on this controller, is passed over. Check mode only looks, and warns.
    type: dict
  declaration:
    description:
      - What M(nodedevices.kubernetes.declaration) returned. Its CDI specs are held to what the node's runtime accepts
        and to the specs of others on the node; read by the action.
    type: dict
  declared:
    description:
      - Whether the host's own declaration is meant where O(declaration) is left out, as a role asks for it. The result
        has it as C(declaration); read by the action.
    type: bool
    default: false
  device_plugin_dir:
    description: The kubelet's device plugin directory; set by the action to that of O(declaration) where it is given.
    type: path
    default: /var/lib/kubelet/device-plugins
  mode:
    description:
      - What the plugin is to be on this node. With it the action refuses, unless O(takeover), what would take resources
        of O(declaration) from another device plugin, or from ours in the other mode; read by the action.
    type: str
    choices: [service, daemonset]
  kubeconfig:
    description:
      - A kubeconfig file on the controller that the run will need. It is read, its API server asked for the node, and,
        where O(declaration) has fixed capacities, whether the node's status may be patched; read by the action.
      - Without O(declaration), as in an uninstall, the cluster need not have the node.
      - With O(mode=daemonset) the action refuses a node without a free pod slot, on which another pod would be ended
        for the DaemonSet's.
    type: path
  node_name:
    description: The node's name in the cluster, where it is not the inventory's; read by the action.
    type: str
  drain:
    description:
      - Says that the play may drain the node, with C(minutes) for its pods to go. The action then requires
        O(kubeconfig) and a node object. It refuses if C(together), the hosts of a batch that nobody limited, are
        several.
    type: dict
  deployment:
    description: C(device_plugin_deployment) of role device_plugin; read by the action.
    type: dict
  takeover:
    description: Whether another plugin's resources may be taken over; read by the action.
    type: bool
    default: false
  device_paths:
    description: Device nodes to look for, as M(nodedevices.kubernetes.declaration) returns them.
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
  description: Which play it was read in; only that one goes on from it.
  type: str
  returned: always
host:
  description: The node's host in the inventory.
  type: str
  returned: always
environment:
  description: Where O(lock) was asked for, what the tasks that follow need as C(environment) to renew the lock.
  type: dict
  returned: with O(lock), but in check mode
python:
  description: Version as three numbers, and executable.
  type: dict
  returned: always
uid:
  description: The user that tasks run as.
  type: int
  returned: always
machine:
  description: As C(uname -m) says.
  type: str
  returned: always
libc:
  description: Such as V(glibc 2.41); empty if it does not say.
  type: str
  returned: always
init:
  description: Name of the first process.
  type: str
  returned: always
runtime:
  description: Socket; process, name, version, unit and configuration behind it.
  type: dict
  returned: always
running:
  description: What the running container runtime says of CDI (C(cdi)) to O(ask) (C(command)), if it answers.
  type: dict
  returned: always
foreseen:
  description: For each module of O(foresee) that has nothing to do, its arguments and its answer.
  type: dict
  returned: always
kubelet:
  description: The running kubelet, or nothing.
  type: dict
  returned: always
missing_devices:
  description: Those of O(device_paths) that are not there.
  type: list
  elements: str
  returned: always
other_than_devices:
  description: Those of O(device_paths) that are there and no device node, with what they are.
  type: dict
  returned: always
commands:
  description: Those of O(commands) that can be run.
  type: list
  elements: str
  returned: always
device_plugins:
  description: Our running plugin (C(instance)), the resources that the kubelet has devices of, and others' sockets.
  type: dict
  returned: always
cdi_files:
  description: CDI spec files that are there, with their text.
  type: list
  elements: dict
  returned: always
ledger:
  description: Entries of the ledger.
  type: dict
  returned: always
settled:
  description:
    - The owners whose files on the node are all as the ledger has them. A role that wants the same files again executes
      nothing.
  type: list
  elements: str
  returned: always
transaction_left:
  description:
    - Whether there is a change of the runtime's configuration whose outcome nobody has read. The action has it finished
      or undone first (M(nodedevices.kubernetes.runtime_config)), except in check mode.
  type: bool
  returned: always
locked_by:
  description: Another play that works on the node; nothing if there is none, or O(lock) was not asked for.
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
