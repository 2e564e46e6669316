# SPDX-License-Identifier: Apache-2.0
"""Changes a container runtime's configuration completely or not at all, even across a crash or a power cut.

Runs on nodes, as a program of its own: Python 3.9, standard library and this collection's module_utils only.

``steps`` is the transaction, ``recovery`` finishes or undoes an interrupted one, ``program`` is what systemd runs, and
``launch`` starts and awaits it for the module. On the disk, in /var/lib/node-devices:

    transaction.new.XXXX/ prepared: nothing is changed yet
    transaction/          open: plan.json, journal, program.zip (which can finish or undo the transaction)
    transaction.closed/   closed: its journal has the outcome, until a run has read it
"""
