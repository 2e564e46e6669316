# SPDX-License-Identifier: Apache-2.0
"""Names and renders the files of role host_devices.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

MODULES = "/etc/modules-load.d/node-devices.conf"
OPTIONS = "/etc/modprobe.d/node-devices.conf"
RULES = "/etc/udev/rules.d/70-node-devices.rules"
NODES = "/etc/tmpfiles.d/node-devices.conf"
_HEAD = "# Written by Ansible (nodedevices.kubernetes.host_devices): changes here are overwritten.\n"


def content(lines):
    """Return a file with these lines, as bytes."""
    return (_HEAD + "\n".join(lines) + "\n").encode()


def lines(modules, udev_rules, nodes):
    """Return the wanted lines of each file, by its path. The arguments are the role's variables."""
    return {
        MODULES: [module["name"] for module in modules],
        OPTIONS: ["options {name} {options}".format(**module) for module in modules if module.get("options")],
        RULES: list(udev_rules),
        NODES: [_line(node) for node in nodes],
    }


def _line(node):
    mode = str(node.get("mode") or "0600").zfill(4)
    owner, group = node.get("owner") or "root", node.get("group") or "root"
    return f"{node['type']} {node['path']} {mode} {owner} {group} - {node['major']}:{node['minor']}"
