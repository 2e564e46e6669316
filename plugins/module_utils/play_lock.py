# SPDX-License-Identifier: Apache-2.0
"""Takes, renews and releases the node lock, which admits one play at a time to a node.

The lock is a file in /run with the play and the start time. A play removes its lock at its end, even after a failure.
Each of our modules on the node renews the lock. Therefore the lock of a killed play expires soon, and the lock of a
running play does not expire. A lock is valid for one boot. The expiry time is the kernel's time since boot, including
suspend. Therefore a change of the clock has no effect. Each access holds a kernel lock (flock) on the file, so that
only one of two simultaneous plays gets the node lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

from . import kernel_lock

PATH = "/run/node-devices.lock"
#: Environment variable with the running play's lock, as JSON of the argument ``wanted`` of `take`.
VARIABLE = "NODE_DEVICES_LOCK"
_RECORDED = ("owner", "who", "play", "controller", "pid", "host")


def take(wanted, check=False, path=PATH):
    """Take or renew the lock. Returns the other holder, or None on success.

    wanted: ``owner`` (the play's identity), ``who`` and ``play`` (texts for messages), ``controller`` and ``pid`` (of
        the play's process), ``host`` (the node's name in the inventory), ``seconds`` until the lock expires, ``over``
        (owner whose lock the play may take; ``*`` for any owner).
    check: whether to only read the lock.
    """
    try:
        file = kernel_lock.locked(path, create=not check)
    except FileNotFoundError:
        return None
    with file:
        holder = _holder(file)
        if holder and holder["owner"] != wanted["owner"] and wanted.get("over") not in ("*", holder["owner"]):
            return holder
        if not check:
            is_ours = holder and holder["owner"] == wanted["owner"]
            now = time.time()
            record = {key: wanted[key] for key in _RECORDED}
            record.update(
                since=holder["since"] if is_ours else now,
                # For users who read the file.
                until=now + wanted["seconds"],
                boot=_boot(),
                lapses=_uptime() + wanted["seconds"],
            )
            file.seek(0)
            file.truncate()
            json.dump(record, file)
        return None


def renew(module, at_least=0):
    """Renew the play's lock. Fail the module if another play has taken the lock.

    at_least: minimum seconds until the lock expires. If the play holds no lock, as in check mode, do nothing.
    """
    text = os.environ.get(VARIABLE)
    if not text or os.geteuid() != 0:
        return
    try:
        wanted = json.loads(text)
        holder = take({**wanted, "seconds": max(wanted["seconds"], at_least)})
        same = ("controller", "pid")
        if holder and [holder[key] for key in same] == [wanted[key] for key in same]:
            # This play already took the lock for another host name of the same node.
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
    with contextlib.suppress(FileNotFoundError), kernel_lock.locked(path, create=False) as file:
        holder = _holder(file)
        if holder is None or holder["owner"] == owner:
            os.unlink(path)


def _holder(file):
    """Return the holder; None if the lock is free or has expired. ``until`` is computed from the current clock."""
    try:
        holder = json.load(file)
        left = holder["lapses"] - _uptime() if holder["boot"] == _boot() else 0
        return {**holder, "until": time.time() + left} if left > 0 and holder["owner"] else None
    except (ValueError, KeyError, TypeError):
        # The file is new and empty, or its writer was killed.
        return None


def _boot():
    """Return the id of the node's current boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _uptime():
    """Return the seconds since boot, including suspend. A change of the clock does not affect them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
