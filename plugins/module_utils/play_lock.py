# SPDX-License-Identifier: Apache-2.0
"""The node lock: it admits one play at a time to a node, and records which play holds it and since when.

Runs on nodes: Python 3.9, standard library only. The lock is a file in /run. A play removes its lock when it ends, even
after a failure. Each of our modules that the play runs on the node renews the lock. Therefore the lock of a killed play
expires soon, and the lock of a running play does not. A lock is valid for one boot. Its time is the kernel's time since
boot, including suspend, so setting the clock changes nothing. Each access holds a kernel lock on the same file, so that
only one of two simultaneous plays gets the node lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import kernel_lock

PATH = "/run/node-devices.lock"
#: Environment variable with the running play's lock: JSON in the form that ``take`` expects.
VARIABLE = "NODE_DEVICES_LOCK"
_RECORDED = ("owner", "who", "play", "controller", "pid", "host")


def take(wanted, check=False, path=PATH):
    """Take or renew the lock; returns the other holder, or None on success.

    wanted: ``owner`` (identifies the play), ``who`` and ``play`` (for people), ``controller`` and ``pid`` (where the
        play runs), ``host`` (the node's name there), ``seconds`` until the lock expires, ``over`` (owner whose lock may
        be taken; ``*`` for any owner).
    check: whether to only read the lock.
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
                # `until` is for people, and for the modules of an earlier release.
                until=now + wanted["seconds"],
                boot=_boot(),
                lapses=_uptime() + wanted["seconds"],
            )
            file.seek(0)
            file.truncate()
            json.dump(record, file)
        return None


def renew(module, at_least=0):
    """Renew the play's lock; fail the module if another play has taken the lock.

    at_least: minimum of seconds until the lock expires. Does nothing if the play took no lock, as in check mode.
    """
    text = os.environ.get(VARIABLE)
    if not text or os.geteuid() != 0:
        return
    try:
        wanted = json.loads(text)
        holder = take({**wanted, "seconds": max(wanted["seconds"], at_least)})
        same = ("controller", "pid")
        if holder and [holder[key] for key in same] == [wanted[key] for key in same]:
            # The holder is this same play, which took the lock under another name of the node.
            return
    except (KeyError, TypeError, ValueError) as error:
        module.fail_json(msg=f"{VARIABLE} is not a play's lock: {error!r}")
    except OSError as error:
        module.fail_json(msg=f"{PATH}: {error.strerror}")
    else:
        if holder:
            module.fail_json(
                msg="another play has taken this node from this play: {play} of {who} (process {pid}). This play "
                "writes nothing more on the node: run it again when the other play has ended".format(**holder)
            )


def release(owner, path=PATH):
    """Remove the lock if ``owner`` holds it or it has expired."""
    with _opened(path, create=False) as file:
        if file is not None:
            holder = _holder(file)
            if holder is None or holder["owner"] == owner:
                os.unlink(path)


def _holder(file):
    """Return the holder; None if the lock is free or has expired. Its ``until`` follows the node's current clock."""
    try:
        holder = json.load(file)
        if "boot" in holder:
            left = holder["lapses"] - _uptime() if holder["boot"] == _boot() else 0
        else:
            # An earlier release wrote the lock.
            left = holder["until"] - time.time()
        return {**holder, "until": time.time() + left} if left > 0 and holder["owner"] else None
    except (ValueError, KeyError, TypeError):
        # The file is new and empty, or its writer was killed.
        return None


def _boot():
    """Return the id of the node's current boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _uptime():
    """Return the seconds since boot, including suspend; setting the clock does not change them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@contextlib.contextmanager
def _opened(path, create):
    """Yield the file under its kernel lock; None if the file is missing and not created."""
    with contextlib.ExitStack() as stack:
        try:
            descriptor = stack.enter_context(kernel_lock.locked(path, create))
        except FileNotFoundError:
            yield None
            return
        with os.fdopen(descriptor, "r+", encoding="utf-8", closefd=False) as file:
            yield file
