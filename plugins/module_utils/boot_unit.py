# SPDX-License-Identifier: Apache-2.0
"""Writes and removes a systemd unit for the next boot. The unit exists only while a change is incomplete."""

from __future__ import annotations

import contextlib
import os

from . import ledger as ledgers

#: systemd's directory for units that survive a boot.
UNITS = "/etc/systemd/system"


def paths(units, name):
    """Return the paths of the unit file and of the link that enables it at boot."""
    return os.path.join(units, name), os.path.join(units, "multi-user.target.wants", name)


def write(units, name, text):
    """Write and enable the unit, durably."""
    path, link = paths(units, name)
    ledgers.write_file(path, text.encode(), 0o644)
    ledgers.make_directory(os.path.dirname(link))
    with contextlib.suppress(FileExistsError):
        os.symlink(path, link)
    ledgers.sync(os.path.dirname(link))


def remove(units, name):
    """Disable and remove the unit if it exists. The link is removed first."""
    path, link = paths(units, name)
    ledgers.remove_file(link)
    ledgers.remove_file(path)
    ledgers.remove_leftover(path)
