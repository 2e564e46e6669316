# SPDX-License-Identifier: Apache-2.0
"""The transaction: its steps in order, and the way back.

Runs on nodes: Python 3.9, standard library only. A step is written into the journal before it is done. Up to the
ledger's entry, which is the last, everything can be undone; from then on it is done.
"""

from __future__ import annotations

import os
import shutil
import time
from typing import Any, Callable, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import Managed
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction import guard, kept
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.journal import Journal
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.plan import Plan
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.runtime import (
    Failed,
    Runtime,
    processes,
    run,
)

DONE = "done"
UNDONE = "undone"


class Transaction:
    """The open transaction of a node."""

    def __init__(self, places):
        self.places = places
        self.plan = Plan.load(places.open)
        self.journal = Journal(places.open)
        self.runtime = Runtime(self.plan)
        self._away_since = None
        self._seconds = None

    def carry_out(self):
        """From the first step to the last, or back."""
        try:
            for step in STEPS:
                self.journal.append(step.name, **step.look(self))
                step.do(self)
        except Exception as error:
            if not self.committed:
                self.undo(ledgers.sentence(error), self._lines())
                return
        self.finish()

    def snapshot(self):
        """What is there, and which start of the runtime this is. Raises Failed where somebody else was here."""
        # It is asked before anything is touched: whoever cannot ask cannot prove.
        self.runtime.ask()
        looks = {file.path: kept.look(file.path) for file in self.plan.files}
        for file in self.plan.files:
            _refuse_changed(file, looks[file.path])
        return {"files": looks, "start": self.runtime.state()[1]}

    def keep(self):
        """Copies of the old files."""
        for file in self.plan.files:
            kept.keep(file.path)
            _refuse_changed(file, kept.look(kept.old(file.path)))

    def stage(self):
        """Folders, and the new files beside their places."""
        for directory in self.plan.directories:
            os.mkdir(directory.path)
            os.chmod(directory.path, 0o755)  # noqa: S103 (runtimes read it)
            kept.label(directory.path, directory.context)
            ledgers.sync(os.path.dirname(directory.path))
        for file in self.plan.files:
            if file.content is not None:
                kept.stage(file)

    def check(self):
        """The runtime reads the new text."""
        if not (self.plan.check and self.plan.files and self.plan.files[0].content is not None):
            return
        path = self.plan.files[0].path
        code, _output, error = run([word.replace("{staged}", kept.new(path)) for word in self.plan.check])
        if code:
            raise Failed(f"{self.plan.check[0]} refuses it: {error.strip().replace(kept.new(path), path)}")

    def write(self):
        """The new files take their places."""
        for file in self.plan.files:
            # Whoever writes between this look and the next system call is overwritten: there is no lock to ask for.
            _refuse_changed(file, kept.look(file.path))
            kept.put_in_place(file)

    def running(self):
        """The containers that run before the restart."""
        return {"containers": processes(self.runtime.ask())}

    def restart(self):
        """Once, and only here."""
        self._away_since = time.monotonic()
        self.runtime.restart()

    def probe(self):
        """The running daemon answers as it should, and what ran before runs on."""
        answer = self.runtime.wait(cdi=True)
        self._seconds = round(time.monotonic() - self._away_since, 2)
        ended = self.runtime.torn_down(self.journal.find("restart")["containers"], answer)
        if ended:
            raise Failed(
                "container {} ran before the restart, and does not run after it ({})".format(
                    ", ".join(ended), ", ".join(ended.values())
                )
            )

    def enter(self):
        """The ledger's entries: with them, the transaction is done."""
        with ledgers.Ledger(self.places.directory) as ledger:
            for path, entry in self.plan.entries.items():
                ledger.entries.pop(path, None)
                if entry is not None:
                    ledger.entries[path] = entry
            ledger.save()

    @property
    def committed(self):
        """Whether the ledger says what it is to say in the end."""
        if not self.journal.find("ledger") or self.journal.find("undo"):
            return False
        try:
            entries = ledgers.Ledger(self.places.directory).entries
        except ledgers.LedgerConflict:
            return False
        return all(entries.get(path) == entry for path, entry in self.plan.entries.items())

    def finish(self):
        """What is left once it is done."""
        self._forget()
        if self.plan.undo:
            with ledgers.Ledger(self.places.directory) as ledger:
                # The folders that only what is gone needed.
                Managed(ledger, self.plan.owner).converge([], keep=ledger.of(self.plan.owner))
        self.close(DONE, seconds=self._seconds)

    def undo(self, reason, lines="", boot=False):
        """Everything as it was, but for what others wrote meanwhile, and a runtime that runs with it.

        lines: the runtime's, as they were when it failed. boot: whether the runtime is to start after us.
        Raises OSError where a file cannot be put back; then it stays open.
        """
        repeated = self.journal.find("undo")
        self._note("undo", reason=reason, lines=lines)
        touched = self.journal.find("write")
        before, others, theirs = {}, set(), ""
        if touched:
            before = self.journal.find("snapshot")["files"]
            put_back = {file.path: kept.restore(file, before[file.path]) for file in self.plan.files}
            others = {path for path, done in put_back.items() if done is None}
            theirs = "".join(_stays(path, before[path]) for path in sorted(others))
            touched = any(put_back.values()) or repeated or self.journal.find("restart")
        self._forget()
        if self.journal.find("stage"):
            for directory in reversed(self.plan.directories):
                ledgers.remove_directory_if_empty(directory.path)
        works, outcome = self._run_again(boot) if touched else (True, "Nothing was changed.")
        if others and not works:
            # A node never ends worse than it began.
            theirs = "".join(_replaced(path, before[path]) for path in sorted(others))
            works, outcome = self._run_again(boot)
        self.close(UNDONE, error=_message(reason, theirs + outcome, lines), seconds=self._seconds)

    def _run_again(self, boot):
        """The runtime with its old files; returns whether it works, and what became of it."""
        state, start = self.runtime.state()
        if boot and state == "inactive":
            return True, "The old configuration was put back, before the runtime started."
        try:
            if state != "active" or start != self.journal.find("snapshot")["start"]:
                self.runtime.restart()
            self.runtime.wait(cdi=False)
        except Failed as failure:
            return False, f"The old configuration was put back, and still: {failure}"
        if self._away_since is not None:
            self._seconds = round(time.monotonic() - self._away_since, 2)
        return True, "The old configuration was put back, and the runtime answers again."

    def close(self, outcome, **fields):
        """Say how it ended, and take away what only an open one needs. Repeated, it goes on where it was."""
        if not self.journal.find(outcome):
            self._note(outcome, identity=self.plan.identity, **fields)
        self._forget()
        guard.remove(self.places)
        shutil.rmtree(self.places.closed, ignore_errors=True)
        os.rename(self.places.open, self.places.closed)
        ledgers.sync(self.places.directory)

    def _forget(self):
        for file in self.plan.files:
            kept.forget(file.path)

    def _note(self, step, **fields):
        """On the way back, a journal that cannot be written does not stop anything."""
        try:
            self.journal.append(step, **fields)
        except OSError:
            self.journal.records.append({"step": step, **fields})

    def _lines(self):
        return self.runtime.journal() if self.journal.find("restart") else ""


def _refuse_changed(file, state):
    """Raise Failed where a plan's file is not what it was when the plan was made. state: what ``kept.look`` says."""
    if kept.text_of(state) != file.expected_sha256:
        raise Failed(f"{file.path} was changed by someone else in the meantime; run again")


def _stays(path, original):
    """Leave what others wrote where it is; returns the sentence about it."""
    beside = "" if original is None else f"; what was there before is in {kept.set_aside(path, original)}"
    return f"{path} was changed by someone else in the meantime and stays as they wrote it{beside}.\n"


def _replaced(path, original):
    """Take away from its place what others wrote, with which the runtime does not run; returns the sentence."""
    theirs = kept.swap_back(path, original)
    where = "" if theirs is None else f", which is in {theirs} now"
    return f"{path} was changed by someone else in the meantime; the runtime does not run with that{where}.\n"


def _message(reason, outcome, lines):
    text = f"{reason}\n{outcome}"
    return f"{text}\nThe runtime's last journal lines when it failed:\n{lines}" if lines else text


def _nothing(transaction: Transaction) -> dict[str, Any]:
    return {}


class Step(NamedTuple):
    """A step: its name in the journal, what is read for its record before it is written, and what is done then."""

    name: str
    look: Callable[[Transaction], dict[str, Any]]
    do: Callable[[Transaction], None]


STEPS = (
    Step("snapshot", Transaction.snapshot, Transaction.keep),
    Step("stage", _nothing, Transaction.stage),
    Step("check", _nothing, Transaction.check),
    Step("guard", _nothing, lambda transaction: guard.write(transaction.places, transaction.plan)),
    Step("write", _nothing, Transaction.write),
    Step("restart", Transaction.running, Transaction.restart),
    Step("probe", _nothing, Transaction.probe),
    Step("ledger", _nothing, Transaction.enter),
)
