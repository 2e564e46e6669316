# SPDX-License-Identifier: Apache-2.0
"""Names of folders, compared as what they are. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import posixpath


def normal(path):
    """One spelling for a folder: no trailing slash, and /run for /var/run, which systemd makes a link to it."""
    path = posixpath.normpath(path)
    return path[len("/var") :] if path == "/var/run" or path.startswith("/var/run/") else path


def lacking(wanted, there):
    """Those of ``wanted`` that are not among ``there``, however they are spelled."""
    names = {normal(directory) for directory in there}
    return [directory for directory in wanted if normal(directory) not in names]
