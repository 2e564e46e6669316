"""Restricts commands to throwaway nodes, because they stop kubelets and write to the kubelet's directories."""

from __future__ import annotations

import os
import sys

#: The role nodedevices.lab.lab_node creates this file in its nodes.
MARKER = "/etc/throwaway-lab-node"


def refuse_elsewhere(command: str) -> bool:
    """Return True and print an error if this machine is not a lab node. command: the name for the message."""
    if os.path.exists(MARKER):
        return False
    print(
        "%s: %s is missing, so this is not a throwaway node, and the command would replace this machine's kubelet. "
        "Create a node with the role nodedevices.lab.lab_node." % (command, MARKER),
        file=sys.stderr,
    )
    return True
