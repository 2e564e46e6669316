# SPDX-License-Identifier: Apache-2.0
"""Carries out the transaction's steps in order, or undoes them.

The journal has each step before its execution. The last step writes the ledger's entries, which commits the
transaction. Until then, all steps can be undone.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import Any, Callable, NamedTuple

from .. import boot_unit
from .. import ledger as ledgers
from ..managed import Managed
from . import kept
from .journal import Journal
from .plan import Plan
from .runtime import Failed, Runtime, processes

DONE = "done"
UNDONE = "undone"
#: The unit that finishes or undoes an open transaction at the next boot.
GUARD = "node-devices-recovery.service"
# With SELinux enforcing, systemd must not start a program in /var. Therefore the unit starts the system's Python
# interpreter, which may read any file.
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


class Transaction:
    """The open transaction of a node."""

    def __init__(self, places):
        self.places = places
        self.plan = Plan.load(places.open)
        self.journal = Journal(places.open)
        self.runtime = Runtime(self.plan)
        self._seen = {}
        self._away_since = None
        self._seconds = None

    def carry_out(self):
        """Carry out all steps, or undo them if a step fails."""
        try:
            for step in STEPS:
                self.journal.append(step.name, **step.look(self))
                step.do(self)
        except Exception as error:
            if not self.committed:
                self.undo(ledgers.sentence(error), self.runtime.journal() if self.journal.find("restart") else "")
                return
        self.finish()

    def snapshot(self):
        """Return the runtime's InvocationID."""
        # Query the runtime before any change, because without an answer the change could not be verified.
        self.runtime.ask()
        return {"start": self.runtime.state()[1]}

    def keep(self):
        """Keep copies of the old files."""
        for file in self.plan.files:
            kept.keep(file)

    def stage(self):
        """Create the directories, and write the new files beside the old files."""
        for directory in self.plan.directories:
            os.mkdir(directory.path)
            os.chmod(directory.path, 0o755)  # noqa: S103 (runtimes read it)
            kept.label(directory.path, directory.context)
            ledgers.sync(os.path.dirname(directory.path))
        for file in self.plan.files:
            if file.content is not None:
                kept.stage(file)

    def guard(self):
        """Make the next boot run the recovery before the runtime starts."""
        mounts = {self.places.directory, *(os.path.dirname(file.path) for file in self.plan.files)}
        command = self.places.recovery("--boot")
        text = _UNIT.format(
            unit=self.plan.unit, mounts=" ".join(sorted(mounts)), program=command[2], command=" ".join(command)
        )
        boot_unit.write(self.places.units, GUARD, text)

    def unchanged(self):
        """Read the files, before the journal says that a file may be replaced. Raises Failed if a file changed."""
        for file in self.plan.files:
            # A write during or after the reading changes this, too.
            self._seen[file.path] = kept.seen(file.path)
            if kept.look(file.path) != file.expected_sha256:
                raise _changed(file)
        return {}

    def write(self):
        """Move the new files into place. Raises Failed if a file changed."""
        for file in self.plan.files:
            # If someone writes the file between this check and the next system call, that write is lost.
            if kept.seen(file.path) != self._seen[file.path]:
                raise _changed(file)
            kept.put_in_place(file)

    def running(self):
        """Return the containers that run before the restart."""
        return {"containers": processes(self.runtime.ask())}

    def restart(self):
        """Restart the runtime with the new files."""
        self._away_since = time.monotonic()
        self.runtime.restart()

    def probe(self):
        """Check the running daemon's answer and the earlier containers. Raises Failed if either is wrong."""
        answer = self.runtime.wait(cdi=True)
        self._seconds = round(time.monotonic() - self._away_since, 2)
        before = self.journal.find("restart")
        ended = self.runtime.torn_down(before["containers"], before["at"], answer)
        if ended:
            raise Failed(
                "container {} ran before the restart but does not run after it ({})".format(
                    ", ".join(ended), ", ".join(ended.values())
                )
            )

    def enter(self):
        """Write the ledger's entries, which commits the transaction."""
        with ledgers.Ledger(self.places.directory) as ledger:
            for path, entry in self.plan.entries.items():
                ledger.entries.pop(path, None)
                if entry is not None:
                    ledger.entries[path] = entry
            ledger.save()

    @property
    def committed(self):
        """Whether the ledger has the plan's final entries."""
        if not self.journal.find("ledger") or self.journal.find("undo"):
            return False
        try:
            entries = ledgers.Ledger(self.places.directory).entries
        except ledgers.LedgerConflict:
            return False
        return all(entries.get(path) == entry for path, entry in self.plan.entries.items())

    def finish(self):
        """Clean up after the commit."""
        self._forget()
        if self.plan.undo:
            with ledgers.Ledger(self.places.directory) as ledger:
                # Remove the directories that only the removed files needed.
                Managed(ledger, self.plan.owner).converge([], keep=ledger.of(self.plan.owner))
        self.close(DONE, seconds=self._seconds)

    def undo(self, reason, lines="", boot=False):
        """Restore all files except those that others wrote meanwhile, and restart the runtime if necessary.

        lines: the runtime's journal lines from the failure. boot: whether the node is booting. The runtime then starts
        after the undo. Raises OSError if a file cannot be restored; then the transaction stays open.
        """
        repeated = self.journal.find("undo")
        self._note("undo", reason=reason, lines=lines)
        touched = self.journal.find("write")
        others, theirs, is_restored = [], "", False
        if touched:
            put_back = [(file, kept.restore(file)) for file in self.plan.files]
            others = sorted(file for file, done in put_back if done is None)
            theirs = "".join(map(_stays, others))
            is_restored = any(done for _file, done in put_back) or repeated
            touched = is_restored or self.journal.find("restart")
        self._forget()
        left = self._remove_directories() if self.journal.find("stage") else ""
        if touched:
            works, outcome = self._run_again(boot, _restored(others, is_restored))
        else:
            works, outcome = True, ("No other file was changed." if others else "Nothing was changed.")
        if others and not works:
            # The runtime fails with the others' files, so restore the old files, too.
            theirs = "".join(map(_replaced, others))
            works, outcome = self._run_again(boot, _restored((), True))
        self.close(UNDONE, error=_message(reason, theirs + left + outcome, lines), seconds=self._seconds)

    def _remove_directories(self):
        """Remove the directories of the plan. Returns a sentence for each that cannot be removed."""
        left = []
        for directory in reversed(self.plan.directories):
            try:
                ledgers.remove_directory_if_empty(directory.path)
            except OSError as error:
                left.append(f"{directory.path} is empty but cannot be removed ({error.strerror}): remove it.\n")
        return "".join(left)

    def _run_again(self, boot, restored):
        """Make the runtime run with its old files. Returns whether the runtime works, and the outcome as a sentence.

        restored: which files are as before; empty if none is.
        """
        state, start = self.runtime.state()
        if boot and state == "inactive":
            return True, f"{restored or 'Nothing else had to be restored'} before the runtime started."
        try:
            if state != "active" or start != self.journal.find("snapshot")["start"]:
                self.runtime.restart()
            self.runtime.wait(cdi=False)
        except Failed as failure:
            fails = f"{restored}, but the runtime still fails" if restored else "The runtime fails"
            return False, f"{fails}: {failure}"
        if self._away_since is not None:
            self._seconds = round(time.monotonic() - self._away_since, 2)
        return True, f"{restored}, and the runtime answers again." if restored else "The runtime answers again."

    def close(self, outcome, **fields):
        """Record the outcome, and remove the guard and the copies. An interrupted close can be repeated."""
        if not self.journal.find(outcome):
            self._note(outcome, identity=self.plan.identity, **fields)
        self._forget()
        boot_unit.remove(self.places.units, GUARD)
        shutil.rmtree(self.places.closed, ignore_errors=True)
        os.rename(self.places.open, self.places.closed)
        ledgers.sync(self.places.directory)

    def _forget(self):
        for file in self.plan.files:
            kept.forget(file.path)

    def _note(self, step, **fields):
        """Record a step. Ignores write errors, because a full or broken disk must not stop an undo."""
        try:
            self.journal.append(step, **fields)
        except OSError:
            self.journal.records.append({"step": step, **fields})


def _changed(file):
    return Failed(f"{file.path} was changed by someone else in the meantime: run again")


def _restored(others, is_restored):
    """Return which files are as before. others: those that stay as someone else changed them. is_restored: any."""
    if not others:
        return "The previous configuration was restored"
    return "The other files were restored" if is_restored else ""


def _stays(file):
    """Leave the others' file in place. Returns a sentence about the file."""
    beside = "" if file.expected_sha256 is None else f"; the original is in {kept.set_aside(file)}"
    return f"{file.path} was changed by someone else in the meantime and stays as it is{beside}.\n"


def _replaced(file):
    """Replace the others' file, because the runtime does not run with it. Returns a sentence about the file."""
    theirs = kept.swap_back(file)
    where = "" if theirs is None else f", which is now in {theirs}"
    return (
        f"{file.path} was changed by someone else in the meantime; the runtime does not start with that "
        f"change{where}.\n"
    )


def _message(reason, outcome, lines):
    text = f"{reason}\n{outcome}"
    return f"{text}\nThe runtime's last journal lines when it failed:\n{lines}" if lines else text


def _nothing(transaction: Transaction) -> dict[str, Any]:
    return {}


class Step(NamedTuple):
    """A step. name: as in the journal. look: returns the fields of the journal record. do: carries out the step."""

    name: str
    look: Callable[[Transaction], dict[str, Any]]
    do: Callable[[Transaction], None]


STEPS = (
    Step("snapshot", Transaction.snapshot, Transaction.keep),
    Step("stage", _nothing, Transaction.stage),
    Step("guard", _nothing, Transaction.guard),
    Step("write", Transaction.unchanged, Transaction.write),
    Step("restart", Transaction.running, Transaction.restart),
    Step("probe", _nothing, Transaction.probe),
    Step("ledger", _nothing, Transaction.enter),
)
