#!/usr/bin/env python3
"""Check that a command leaves this machine as it was.

Usage: tests/machine.py COMMAND...    exit code 1 if COMMAND fails, or if the machine has changed

Only what can be judged on a developer's machine is judged, because other programs run there, too: every file of WHOLE,
and each name in the directories of NAMES. What a name there contains belongs to the program of that name, which may
write at any time. OTHERS lists what other programs write into the judged directories.
"""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

#: Patterns of paths that are judged with all files below: configuration, and the directories that we write on nodes.
WHOLE = (
    "/etc",
    "/opt/cni",
    "/opt/node-device*",
    "/run/node-device*",
    "/run/systemd/system",
    "/run/tmpfiles.d",
    "/run/udev/rules.d",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/kubelet/plugins_registry",
    "/var/lib/node-device*",
    "/var/run/cdi",
)
#: Directories in which new and missing names are judged.
NAMES = ("/opt", "/run", "/var/lib")
#: Patterns of paths that are not judged, and why.
OTHERS = {
    "/etc/adjtime": "the machine's clock",
    "/etc/cni/net.d": "podman's networks",
    "/etc/containers/networks": "podman's networks",
    "/etc/cups": "the printing service, which rewrites its configuration while it runs",
    "/etc/mtab": "the mounted file systems",
    "/etc/NetworkManager": "the machine's network",
    "/etc/resolv.conf*": "the machine's network",
    "/run/*.lock": "a lock of a program that runs; locks of ours are in WHOLE",
    "/run/*.pid": "a service that started",
    "/run/cdi": "is judged as /var/run/cdi",
    "/run/containers": "podman",
    "/run/crun": "podman",
    "/run/docker*": "docker",
    "/run/libpod": "podman",
    "/run/lock": "a lock of a program that runs",
    "/run/mount": "mount and umount",
    "/run/netns": "the container engine",
    "/run/podman": "podman",
    "/run/runc": "podman",
    "/run/sudo": "sudo, which the lab's engine uses",
    "/run/user": "people who log in",
    "/run/utmp": "people who log in",
    "/var/lib/cni": "podman's networks",
    "/var/lib/containers": "podman",
    "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint": "a kubelet of the machine, for each pod",
}

_MOST_LISTED = 20
_WHOLE, _OTHERS = (re.compile("|".join(map(fnmatch.translate, patterns))) for patterns in (WHOLE, OTHERS))

#: Path to what is compared of a file: mode, owner, group, and unless it is a directory: size, time of change, inode.
State = dict[str, tuple[int, ...]]


class Change(NamedTuple):
    """What happened to a path: it is `new`, `changed` or `gone`."""

    what: str
    path: str

    def __str__(self) -> str:
        return f"{self.what}: {self.path}"


def state(root: str = "/") -> State:
    """Read the judged files of the machine below `root`."""
    found: State = {}
    prefix = root.rstrip("/")
    for directory in NAMES:
        for path in _children(prefix, directory):
            if not _is_of_others(path):
                found[path] = ()
    for pattern in WHOLE:
        for path in glob.glob(glob.escape(prefix) + pattern):
            _read(prefix, path.removeprefix(prefix), found)
    return found


def changes(before: State, after: State) -> list[Change]:
    """Compare two states."""
    found = [Change("gone", path) for path in before.keys() - after.keys()]
    found += [Change("new", path) for path in after.keys() - before.keys()]
    found += [Change("changed", path) for path in before.keys() & after.keys() if before[path] != after[path]]
    return sorted(found, key=lambda change: change.path)


def complaint(who: str, found: list[str]) -> str:
    """The error message about changes. who: the command that made them."""
    listed = found[:_MOST_LISTED] + [f"and {len(found) - _MOST_LISTED} more"] * (len(found) > _MOST_LISTED)
    return (
        f"failed: {who} changed this machine: {', '.join(listed)}. Use a directory of the test's own, and undo the "
        "change; if another program made the change, run the command again or add the path to OTHERS in "
        "tests/machine.py."
    )


def _is_of_others(path: str) -> bool:
    return bool(_OTHERS.match(path) and not _WHOLE.match(path))


def _children(prefix: str, directory: str) -> Iterator[str]:
    # A missing directory has no names, and what this user may not read, no test of this user changes.
    with contextlib.suppress(OSError):
        for name in os.listdir(prefix + directory):
            yield f"{directory}/{name}"


def _read(prefix: str, path: str, found: State) -> None:
    if _is_of_others(path):
        return
    try:
        known = os.lstat(prefix + path)
    except OSError:
        return
    found[path] = (known.st_mode, known.st_uid, known.st_gid)
    if stat.S_ISDIR(known.st_mode):
        for child in _children(prefix, path):
            _read(prefix, child, found)
    else:
        found[path] += (known.st_size, known.st_mtime_ns, known.st_ino)


def main(command: list[str]) -> int:
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    before = state()
    code = subprocess.run(command).returncode
    if found := changes(before, state()):
        print(complaint(f"`{shlex.join(command)}`", [str(change) for change in found]), file=sys.stderr)
        return code or 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
