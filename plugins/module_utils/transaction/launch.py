# SPDX-License-Identifier: Apache-2.0
"""Prepares a transaction, starts the transaction as a systemd service, waits, and reads the outcome.

A lost connection or a killed play does not end the service. The service's fixed name prevents a second transaction.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
import time
from typing import NamedTuple

from .. import ledger as ledgers
from . import program
from .journal import Journal
from .runtime import Failed, run
from .steps import DONE, UNDONE

UNIT = "node-devices-transaction.service"
_PAUSE = 0.2
# Seconds that a transaction may take. It restarts and queries the runtime at most twice.
_LONGEST = 1200


class Outcome(NamedTuple):
    """How a transaction ended.

    identity: of the transaction's plan. error: why the transaction was undone; None after success.
    seconds: time without an answer from the runtime; None if not measured.
    """

    identity: str
    error: str | None
    seconds: float | None


def carry_out(places, plan):
    """Let systemd carry out a plan, wait, and return the Outcome. Raises Failed if there is no outcome."""
    prepared = _prepared(places, plan)
    # If the transaction's process is killed, systemd undoes the transaction immediately.
    recovery = places.recovery()
    recover = f"test ! -e {shlex.quote(recovery[2])} || exec {shlex.join(recovery)}"
    after = f"ExecStopPost=/bin/sh -c {shlex.quote(recover)}"
    command = [sys.executable, "-I", os.path.join(prepared, program.NAME), "run", prepared]
    said = _as_service(command, "--property=" + after)
    if os.path.isdir(prepared):
        shutil.rmtree(prepared)
        raise Failed(f"the change could not be started, so nothing was changed: {said}")
    outcome = settle(places)
    if outcome is None or outcome.identity != plan.identity:
        raise Failed(f"the change recorded no outcome: see journalctl --unit {UNIT}")
    return outcome


def settle(places):
    """Wait for a running transaction. Finish or undo an interrupted transaction.

    Returns the last transaction's Outcome; None if an earlier run has read it. Raises Failed if a transaction stays
    open.
    """
    until = time.monotonic() + _LONGEST
    while _is_running():
        if time.monotonic() > until:
            raise Failed("%s has been running for more than %d s" % (UNIT, _LONGEST))
        time.sleep(_PAUSE)
    said = _as_service(places.recovery()) if os.path.isdir(places.open) else ""
    if os.path.isdir(places.open):
        lines = ["journalctl", "--unit", UNIT, "--lines", "5", "--no-pager", "--output", "cat"]
        raise Failed(
            "an interrupted change to the container runtime cannot be undone: %s. Fix that, then run the play again "
            "or reboot the node" % (said or run(lines)[1].strip())
        )
    outcome = _outcome(places)
    for directory in places.left():
        # A module that outlived its killed play may remove the same directories.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory)
    if os.path.exists(places.lock):
        # If a transaction is killed at its end, its lock file stays.
        with contextlib.suppress(Failed), program.exclusive(places):
            pass
    if os.path.isdir(places.directory):
        # The ledger's context manager removes an unneeded directory.
        with ledgers.Ledger(places.directory):
            pass
    return outcome


def _prepared(places, plan):
    """Write the plan, the program and an empty journal durably into a new directory. Returns the directory."""
    ledgers.make_directory(places.directory, ledgers.MODE)
    directory, prefix = os.path.split(places.prepared)
    prepared = tempfile.mkdtemp(prefix=prefix, dir=directory)
    try:
        plan.save(prepared)
        ledgers.write_file(os.path.join(prepared, program.NAME), program.archive(), 0o600)
        Journal.create(prepared)
        ledgers.sync(places.directory)
    except BaseException:
        shutil.rmtree(prepared)
        raise
    return prepared


def _as_service(command, *options):
    """Run a command as the service and wait for its end. Returns systemd's error message."""
    start = ["systemd-run", "--quiet", "--wait", "--collect", "--unit=" + UNIT, "--property=TimeoutStopSec=600"]
    description = "--description=Change of the container runtime's configuration"
    _code, _output, error = run([*start, description, *options, "--", *command], seconds=_LONGEST)
    return error.strip()


def _is_running():
    state = run(["systemctl", "show", UNIT, "--property=ActiveState", "--value"])[1].strip()
    return state not in ("inactive", "failed", "")


def _outcome(places):
    with contextlib.suppress(FileNotFoundError):
        journal = Journal(places.closed)
        record = journal.find(DONE) or journal.find(UNDONE)
        return record and Outcome(record["identity"], record.get("error"), record["seconds"])
    return None
