#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: host_devices
short_description: Kernel modules, udev rules and device nodes, now and after a reboot
description:
  - Writes C(modules-load.d), C(modprobe.d), C(udev/rules.d) and C(tmpfiles.d), and does at once what they bring about
    at the next boot. Nothing that is so already is touched.
  - Device nodes that were asked for earlier and are no longer are removed, unless they are another device by now or the
    kernel's own. Modules stay loaded.
  - The action of the same name checks O(modules), O(udev_rules) and O(nodes) and writes the files; the other options
    are what it gives the module.
options:
  modules:
    description: Kernel modules, each with C(name) and C(options); for the module their names.
    type: list
    elements: raw
    default: []
  udev_rules:
    description: Rules, one line each.
    type: list
    elements: str
    default: []
  nodes:
    description: Device nodes; for the module the lines of C(tmpfiles.d).
    type: raw
  node:
    description:
      - Result of M(nodedevices.kubernetes.node_preflight). With it nothing is executed where nothing is wanted and its
        ledger has nothing of this; read by the action.
    type: dict
  earlier_nodes:
    description: Those lines as they were before.
    type: str
    default: ""
  rules_changed:
    description: Whether udev has to read its rules again.
    type: bool
    default: false
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Three more names of the random device
  nodedevices.kubernetes.host_devices:
    modules: [{name: vfio-pci, options: "ids=10de:1eb8"}]
    nodes: [{path: /dev/crand0, type: c, major: 1, minor: 8, mode: "0666"}]
"""

RETURN = r"""
actions:
  description: What was done beside writing files, or in check mode would be.
  type: list
  elements: str
  returned: success
"""

import os
import stat

from ansible.module_utils.basic import AnsibleModule

_KINDS = {"c": stat.S_IFCHR, "b": stat.S_IFBLK}
# udevd's socket; it does not run in containers.
_UDEV = "/run/udev/control"


def parsed(text):
    """Lines of tmpfiles.d: path to (kind, device number)."""
    nodes = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 7 and words[0] in _KINDS:
            major, minor = words[6].split(":")
            nodes[words[1]] = (words[0], os.makedev(int(major), int(minor)))
    return nodes


def is_node(path, kind, number):
    """Whether the path is this very device node; None where there is nothing."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return stat.S_IFMT(found.st_mode) == _KINDS[kind] and found.st_rdev == number


def is_the_kernels(path, kind, number):
    """Whether the kernel itself has a device with this number and node (DEVNAME of its uevent in sysfs)."""
    directory = {"c": "char", "b": "block"}[kind]
    try:
        with open(
            "/sys/dev/%s/%d:%d/uevent" % (directory, os.major(number), os.minor(number)), encoding="utf-8"
        ) as file:
            return "DEVNAME=%s" % path[len("/dev/") :] in file.read().splitlines()
    except OSError:
        return False


def main():
    module = AnsibleModule(
        argument_spec={
            "modules": {"type": "list", "elements": "raw", "default": []},
            "udev_rules": {"type": "list", "elements": "str", "default": []},
            "nodes": {"type": "raw"},
            "node": {"type": "dict"},
            "earlier_nodes": {"type": "str", "default": ""},
            "rules_changed": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    actions = []

    def run(*command):
        if module.check_mode:
            return
        code, output, error = module.run_command(list(command))
        if code:
            said = (error.strip() or output.strip() or "exit code %d" % code).splitlines()
            module.fail_json(msg="%s: %s" % (" ".join(command), said[-1]), actions=actions)

    lines = module.params["nodes"] or ""
    nodes = parsed(lines)
    for path, (kind, number) in parsed(module.params["earlier_nodes"]).items():
        if path not in nodes and is_node(path, kind, number) and not is_the_kernels(path, kind, number):
            actions.append("removed %s" % path)
            if not module.check_mode:
                os.unlink(path)
    for name in module.params["modules"]:
        # Those that are built in are there, too, where they have parameters; modprobe knows the others.
        if not os.path.isdir("/sys/module/" + name.replace("-", "_")):
            code, output, _error = module.run_command(["modprobe", "--show-depends", name])
            if code == 0 and all(line.startswith("builtin ") for line in output.splitlines()):
                continue
            actions.append("loaded %s" % name)
            run("modprobe", name)
    for path, (kind, number) in nodes.items():
        there = is_node(path, kind, number)
        if there is False:
            module.fail_json(msg="%s is there already, and it is something else" % path, actions=actions)
        if there is None:
            actions.append("made %s" % path)
    if any(action.startswith("made") for action in actions):
        run("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/node-devices.conf")
    warnings = []
    if module.params["rules_changed"]:
        if os.path.exists(_UDEV):
            actions.append("udev rules applied")
            run("udevadm", "control", "--reload")
            run("udevadm", "trigger", "--action=change")
            run("udevadm", "settle", "--timeout=30")
        else:
            warnings.append("udevd does not run on this node; the udev rules count once it does")
    module.exit_json(changed=bool(actions), actions=actions, warnings=warnings)


if __name__ == "__main__":
    main()
