# SPDX-License-Identifier: Apache-2.0
"""The unit that finishes or undoes at the next boot what a power cut left open. It is there only while something is.

Runs on nodes: Python 3.9, standard library only. systemd starts an interpreter from where interpreters are, which may
read everything; a program in /var it may not start itself where SELinux enforces.
"""

from __future__ import annotations

import os
import sys

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import boot_unit

NAME = "node-devices-recovery.service"

_UNIT = """\
# Written by node-devices while a change of the container runtime is under way; it goes with it.
[Unit]
Description=Finish or undo a change of the container runtime that was cut off
Before={unit} kubelet.service
RequiresMountsFor={mounts}
# Its folder may have been removed by hand, where nobody could read it any more.
ConditionPathExists={program}

[Service]
Type=oneshot
ExecStart={command}
"""


def recover(places, *options):
    """The command that recovers, by the program that the open transaction brought along."""
    return [sys.executable, "-I", os.path.join(places.open, "program.zip"), "recover", *options]


def write(places, plan):
    """Have the next boot recover, before the runtime starts."""
    text = _UNIT.format(
        unit=plan.unit,
        mounts=" ".join(sorted({places.directory, *(os.path.dirname(file.path) for file in plan.files)})),
        program=os.path.join(places.open, "program.zip"),
        command=" ".join(recover(places, "--boot")),
    )
    boot_unit.write(places.units, NAME, text)


def remove(places):
    """Take it away again, where it is."""
    boot_unit.remove(places.units, NAME)
