# SPDX-License-Identifier: Apache-2.0
"""One play a node: who works on it, and since when.

Runs on nodes: Python 3.9, standard library only. The lock is a file in /run. A play that ends or fails as it should
removes it. Each module of ours that the play runs on the node renews it, so it lapses soon after a play that died, and
not under one that goes on. It is of one boot of the node, and its time is the kernel's since that boot, suspended or
not: clocks that are set change nothing. It is read and written under the kernel's lock of the same file, so that of two
plays that come at once one gets it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import kernel_lock

PATH = "/run/node-devices.lock"
#: Has the lock of the play that runs a module, as ``take`` wants it, in JSON.
VARIABLE = "NODE_DEVICES_LOCK"
_RECORDED = ("owner", "who", "play", "controller", "pid", "host")


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
            record = {key: wanted[key] for key in _RECORDED}
            record.update(
                since=holder["since"] if is_ours else now,
                # For people, and for the modules of an earlier release.
                until=now + wanted["seconds"],
                boot=_boot(),
                lapses=_uptime() + wanted["seconds"],
            )
            file.seek(0)
            file.truncate()
            json.dump(record, file)
        return None


def renew(module, at_least=0):
    """Renew the lock of the play that runs a module; fail the module where another play has the node by now.

    at_least: seconds that it lasts, if the play's own are fewer. Nothing is done for a play that took no lock, as in
    check mode.
    """
    text = os.environ.get(VARIABLE)
    if not text or os.geteuid() != 0:
        return
    try:
        wanted = json.loads(text)
        holder = take({**wanted, "seconds": max(wanted["seconds"], at_least)})
        same = ("controller", "pid")
        if holder and [holder[key] for key in same] == [wanted[key] for key in same]:
            # This very play, which was told to take the lock for another name of the node.
            return
    except (KeyError, TypeError, ValueError) as error:
        module.fail_json(msg=f"{VARIABLE} is no lock of a play: {error!r}")
    except OSError as error:
        module.fail_json(msg=f"{PATH}: {error.strerror}")
    else:
        if holder:
            module.fail_json(
                msg="another play has taken this node from this one: {play} of {who} (process {pid}). This one "
                "writes nothing more on it; run it again when the other one has ended".format(**holder)
            )


def release(owner, path=PATH):
    """Remove a play's lock, if it still has it."""
    with _opened(path, create=False) as file:
        if file is not None:
            holder = _holder(file)
            if holder is None or holder["owner"] == owner:
                os.unlink(path)


def _holder(file):
    """Who has the lock; None where nobody does any more. ``until`` is by the node's clock as it is now."""
    try:
        holder = json.load(file)
        if "boot" in holder:
            left = holder["lapses"] - _uptime() if holder["boot"] == _boot() else 0
        else:
            # Of an earlier release.
            left = holder["until"] - time.time()
        return {**holder, "until": time.time() + left} if left > 0 and holder["owner"] else None
    except (ValueError, KeyError, TypeError):
        # Of a writer that was killed, or nothing yet.
        return None


def _boot():
    """Tells this boot of the node from any other."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _uptime():
    """Seconds since the boot, suspended or not; nobody can set it."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


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
