# SPDX-License-Identifier: Apache-2.0
"""What becomes of a transaction that was cut off: finished if it was done, else undone. Repeated, it goes on.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import os

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import kernel_lock
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.runtime import Failed
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.steps import DONE, UNDONE, Transaction


@contextlib.contextmanager
def exclusive(places):
    """One at a time. Raises Failed where another is under way; nobody waits, for that one may wait for whoever asks."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(kernel_lock.locked(places.lock, wait=False))
        except BlockingIOError as error:
            raise Failed("another change of the container runtime is under way on this node") from error
        try:
            yield
        finally:
            # Nothing of ours stays, not even until the next boot.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(places.lock)


def run(places, prepared):
    """Carry out what was prepared, to its end or back."""
    with exclusive(places):
        _recover(places, boot=False)
        os.rename(prepared, places.open)
        ledgers.sync(places.directory)
        Transaction(places).carry_out()


def recover(places, boot):
    """Finish or undo what is open; nothing to do where nothing is.

    boot: whether this is the boot, and the runtime starts after it. Raises OSError where the disk does not let it.
    """
    with exclusive(places):
        _recover(places, boot)


def _recover(places, boot):
    if not os.path.isdir(places.open):
        return
    transaction = Transaction(places)
    find = transaction.journal.find
    for outcome in (DONE, UNDONE):
        if find(outcome):
            transaction.close(outcome)
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
    transaction.undo(f"it was cut off {where}: its process was killed, or the power failed", boot=boot)
