# SPDX-License-Identifier: Apache-2.0
"""Compares directory names and ignores different spellings. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import posixpath


def normal(path):
    """Return a directory without trailing slash, and with /run instead of /var/run, which systemd links to /run."""
    path = posixpath.normpath(path)
    return path[len("/var") :] if path == "/var/run" or path.startswith("/var/run/") else path


def missing(wanted, there):
    """Return the directories in ``wanted`` that ``there`` does not contain. Ignores different spellings."""
    names = {normal(directory) for directory in there}
    return [directory for directory in wanted if normal(directory) not in names]


def with_ours(spec_dirs, static, running):
    """Return a runtime's CDI directories with ours added.

    A spec in a later directory overrides a spec in an earlier directory, so ``running`` comes after ``static``.
    """
    wanted = list(spec_dirs)
    absent = missing([static, running], spec_dirs)
    if static in absent:
        names = [normal(directory) for directory in wanted]
        wanted.insert(len(wanted) if running in absent else names.index(normal(running)), static)
    if running in absent:
        wanted.append(running)
    return wanted
