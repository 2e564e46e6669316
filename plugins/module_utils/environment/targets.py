# SPDX-License-Identifier: Apache-2.0
"""Chooses the wheels that a machine can use.

A target is a Python version and a machine, such as cp311-x86_64. The table of targets comes from the controller.
"""

from __future__ import annotations

import os
import platform
import re
import sys

from .build import VersionError

_GLIBC = re.compile(r"glibc ([0-9]+)\.([0-9]+)")


def libc():
    """Return name and version of the C library, such as ``glibc 2.41``; empty if unknown."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (OSError, ValueError):
        return ""


def own(table):
    """Return this process's target. Raises VersionError."""
    return choose(table, sys.version_info, platform.machine(), libc())


def choose(table, python, machine, libc):
    """Return the target of a machine. Raises VersionError if the table has none.

    table: by target, the oldest ``glibc``. python: the numbers of its version. machine: output of ``uname -m``. libc:
    as of the function of that name.
    """
    glibc = _GLIBC.match(libc)
    if not glibc:
        raise VersionError(
            f"the node's C library is {libc or 'not glibc'}, but the plugin's wheels need glibc: use a distribution "
            "with glibc"
        )
    name = f"cp{python[0]}{python[1]}-{machine}"
    if name not in table:
        raise VersionError(
            f"this release has no wheels for the node's Python and machine ({name}), only for "
            f"{', '.join(sorted(table))}: set ansible_python_interpreter to one of these versions"
        )
    oldest = tuple(table[name]["glibc"])
    if (int(glibc[1]), int(glibc[2])) < oldest:
        raise VersionError(
            f"the node's C library is {libc}, but the plugin's wheels need glibc {oldest[0]}.{oldest[1]} or later: use "
            "a later distribution"
        )
    return name
