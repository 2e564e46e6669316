# SPDX-License-Identifier: Apache-2.0
"""A change of a container runtime's configuration that is done whole, or not at all, whatever happens in between.

Runs on nodes, as a program of its own: Python 3.9, standard library and this collection's module_utils only.

``steps`` is the transaction, ``recovery`` what becomes of one that was cut off, ``program`` what systemd runs, and
``launch`` the module's side of it. On the disk, in /var/lib/node-devices:

    transaction.XXXX/     prepared: nothing was touched
    transaction/          open: plan.json, journal, program.zip (what can finish or undo it)
    transaction.closed/   over: its journal says how, until a run has read it
"""
