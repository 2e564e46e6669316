# SPDX-License-Identifier: Apache-2.0
"""Names and renders the files of role host_devices.

Runs on the controller and on nodes: Python 3.9, standard library only.
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
