# SPDX-License-Identifier: Apache-2.0
"""One play a node: who works on it, and since when.

Runs on nodes: Python 3.9, standard library only. The lock is a file in /run, so that a boot forgets it. A play that
ends as it should removes it; one that died leaves it, and then it lapses. It is read and written under the kernel's
lock of the same file, so that of two plays that come at once one gets it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import kernel_lock

PATH = "/run/node-devices.lock"


def take(wanted, check=False, path=PATH):
    """Take the lock, or renew it; returns who has it instead, None where nobody else does.

    wanted: ``owner`` (tells one play from another), ``who`` and ``play`` (for people), ``controller`` and ``pid``
        (where it runs), ``host`` (the node's name there), ``seconds`` after which it lapses, ``over`` (owner whose
        lock may be taken; ``*`` for anybody's).
    check: only look.
    """
    with _opened(path, create=not check) as file:
        if file is None:
            return None
        holder = _holder(file)
        if holder and holder["owner"] != wanted["owner"] and wanted.get("over") not in ("*", holder["owner"]):
            return holder
        if not check:
            is_ours = holder and holder["owner"] == wanted["owner"]
            now = time.time()
            since = holder["since"] if is_ours else now
            record = {key: wanted[key] for key in ("owner", "who", "play", "controller", "pid", "host")}
            record.update(since=since, until=now + wanted["seconds"])
            file.seek(0)
            file.truncate()
            json.dump(record, file)
        return None


def release(owner, path=PATH):
    """Remove a play's lock, if it still has it."""
    with _opened(path, create=False) as file:
        if file is not None:
            holder = _holder(file)
            if holder is None or holder["owner"] == owner:
                os.unlink(path)


def _holder(file):
    """Who has the lock; None where nobody does any more."""
    try:
        holder = json.load(file)
        return holder if time.time() < holder["until"] and holder["owner"] else None
    except (ValueError, KeyError, TypeError):
        # Of a writer that was killed, or nothing yet.
        return None


@contextlib.contextmanager
def _opened(path, create):
    """The file under the kernel's lock, None where there is none and none is made."""
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(kernel_lock.locked(path, create))
        except FileNotFoundError:
            yield None
            return
        with os.fdopen(descriptor, "r+", encoding="utf-8", closefd=False) as file:
            yield file
