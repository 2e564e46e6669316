# SPDX-License-Identifier: Apache-2.0
"""Remembers texts until this run of Ansible ends, for the tasks of all hosts. Each task has its own process."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Callable

from ansible import constants


def file_of(what: str, *of: str) -> pathlib.Path:
    """Return the path of a file that remembers something. of: whose it is, such as a host's name."""
    digest = hashlib.sha256("\0".join(of).encode()).hexdigest()[:24]
    return pathlib.Path(constants.DEFAULT_LOCAL_TMP) / f"{what}-{digest}"


def remembered(make: Callable[[], str], what: str, *of: str) -> str:
    """Return the text that the first task of any host has made. what, of: as in ``file_of``."""
    path = file_of(what, *of)
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        text = make()
        # Two tasks may make the text at the same time.
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(text.encode())
        new.replace(path)
        return text
