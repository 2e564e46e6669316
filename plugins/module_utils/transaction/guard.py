# SPDX-License-Identifier: Apache-2.0
"""Writes the unit that finishes or undoes an open transaction at the next boot.

Runs on nodes: Python 3.9, standard library only. With SELinux enforcing, systemd must not start a program in /var.
Therefore the unit starts the system's Python interpreter, which may read any file.
"""

from __future__ import annotations

import os
import sys

from .. import boot_unit

NAME = "node-devices-recovery.service"

_UNIT = """\
# Written by node-devices while a change to the container runtime is in progress; removed afterwards.
[Unit]
Description=Finish or undo an interrupted change to the container runtime
Before={unit} kubelet.service
RequiresMountsFor={mounts}
# Its directory may have been removed by hand.
ConditionPathExists={program}

[Service]
Type=oneshot
ExecStart={command}
"""


def recover(places, *options):
    """Return the command that runs the recovery with the open transaction's own program."""
    return [sys.executable, "-I", os.path.join(places.open, "program.zip"), "recover", *options]


def write(places, plan):
    """Make the next boot run the recovery before the runtime starts."""
    text = _UNIT.format(
        unit=plan.unit,
        mounts=" ".join(sorted({places.directory, *(os.path.dirname(file.path) for file in plan.files)})),
        program=os.path.join(places.open, "program.zip"),
        command=" ".join(recover(places, "--boot")),
    )
    boot_unit.write(places.units, NAME, text)
