# SPDX-License-Identifier: Apache-2.0
"""The program that systemd runs: ``program.zip run PREPARED`` and ``program.zip recover [--boot]``.

``run`` carries out a prepared transaction. ``recover`` finishes a committed, interrupted transaction, or undoes an
uncommitted one, and can be repeated. The archive is in the transaction's directory. Therefore a recovery at boot needs
no other file of ours, and the release that began a transaction also finishes it.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import zipfile

from .. import kernel_lock
from .. import ledger as ledgers
from .plan import Places
from .runtime import Failed
from .steps import DONE, UNDONE, Transaction

NAME = "program.zip"
_OURS = "ansible_collections.nodedevices.kubernetes.plugins.module_utils."
_PLACES = Places()
_USAGE = "usage: program.zip run PREPARED | recover [--boot]"


def main(arguments, places=_PLACES):
    """Run the program. Returns the exit code: 0 after success, 1 after an error, 2 for wrong arguments."""
    try:
        if arguments[:1] == ["run"] and len(arguments) == 2:
            run(places, arguments[1])
        elif arguments in (["recover"], ["recover", "--boot"]):
            recover(places, boot="--boot" in arguments)
        else:
            print(_USAGE, file=sys.stderr)
            return 2
    except (ledgers.LedgerConflict, OSError) as error:
        print(ledgers.sentence(error), file=sys.stderr)
        return 1
    return 0


def archive():
    """Return this program as a zip file of the loaded modules."""
    sources = {
        name: module.__spec__.loader.get_source(name)
        for name, module in list(sys.modules.items())
        if name.startswith(_OURS) and module.__spec__.submodule_search_locations is None
    }
    packages = {name[:position] for name in sources for position, letter in enumerate(name) if letter == "."}
    files = {"{}/__init__.py".format(package.replace(".", "/")): "" for package in packages}
    files.update({"{}.py".format(name.replace(".", "/")): source for name, source in sources.items()})
    files["__main__.py"] = f"import sys\nfrom {__name__} import main\nsys.exit(main(sys.argv[1:]))\n"
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for name, source in sorted(files.items()):
            packed.writestr(name, source)
    return stream.getvalue()


@contextlib.contextmanager
def exclusive(places):
    """Admit one transaction at a time. Raises Failed if another transaction runs.

    Does not wait, because the other transaction may wait for the caller.
    """
    try:
        lock = kernel_lock.locked(places.lock, limit=0)
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
