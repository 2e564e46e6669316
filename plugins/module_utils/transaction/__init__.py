# SPDX-License-Identifier: Apache-2.0
"""Changes a container runtime's configuration completely or not at all, even after a crash or a power cut.

Runs on nodes, as a separate program: Python 3.9, standard library and this collection's module_utils only.

``steps`` has the transaction's steps. ``program`` is the program that systemd runs; it also finishes or undoes an
interrupted transaction. ``launch`` starts the program and waits for its end. /var/lib/node-devices contains:

    transaction.new.XXXX/ a prepared transaction, which has changed nothing yet
    transaction/          the open transaction: plan.json, journal, program.zip (can finish or undo the transaction)
    transaction.closed/   the closed transaction, whose journal has the outcome, until a run reads the outcome
"""
