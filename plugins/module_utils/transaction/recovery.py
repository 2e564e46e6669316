# SPDX-License-Identifier: Apache-2.0
"""Finishes a committed, interrupted transaction, or undoes an uncommitted one. A recovery can be repeated.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import os

from .. import kernel_lock
from .. import ledger as ledgers
from .runtime import Failed
from .steps import DONE, UNDONE, Transaction


@contextlib.contextmanager
def exclusive(places):
    """Admit one transaction at a time. Raises Failed if another transaction runs.

    Does not wait, because the other transaction may wait for the caller.
    """
    try:
        lock = kernel_lock.locked(places.lock, wait=False)
    except BlockingIOError as error:
        raise Failed(
            "another change of the container runtime is in progress on this node: run again when it has ended"
        ) from error
    with lock:
        try:
            yield
        finally:
            # Otherwise the lock file would stay until the next boot.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(places.lock)


def run(places, prepared):
    """Carry out a prepared transaction, or undo it."""
    with exclusive(places):
        _recover(places, boot=False)
        os.rename(prepared, places.open)
        ledgers.sync(places.directory)
        Transaction(places).carry_out()


def recover(places, boot):
    """If a transaction is open, finish or undo the transaction. Raises OSError if a file cannot be written.

    boot: whether the node is booting. The runtime then starts after the recovery.
    """
    with exclusive(places):
        _recover(places, boot)


def _recover(places, boot):
    if not os.path.isdir(places.open):
        return
    transaction = Transaction(places)
    find = transaction.journal.find
    outcome = find(DONE) or find(UNDONE)
    if outcome:
        transaction.close(outcome["step"])
        return
    if transaction.committed:
        transaction.finish()
        return
    undo = find("undo")
    if undo:
        transaction.undo(undo["reason"], undo["lines"], boot=boot)
        return
    steps = [record["step"] for record in transaction.journal.records]
    where = f"in step {steps[-1]}" if steps else "before its first step"
    transaction.undo(f"it was interrupted {where}: its process was killed, or the power failed", boot=boot)
