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


def with_ours(spec_dirs, static, running):
    """CDI directories of a runtime, and ours among them.

    What lies in a later directory goes before an earlier one's, and running goes before static.
    """
    wanted = list(spec_dirs)
    missing = lacking([static, running], spec_dirs)
    if static in missing:
        names = [normal(directory) for directory in wanted]
        wanted.insert(len(wanted) if running in missing else names.index(normal(running)), static)
    if running in missing:
        wanted.append(running)
    return wanted
