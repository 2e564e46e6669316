# SPDX-License-Identifier: Apache-2.0
"""Remembers texts until this run of Ansible ends, for the tasks of all hosts. Each task has its own process."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

from ansible import constants


def remembered(name: str, make: Callable[[], str]) -> str:
    """Return the text that the first task of any host has made under this name. name: of a file."""
    path = pathlib.Path(constants.DEFAULT_LOCAL_TMP) / name
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        text = make()
        # Two tasks may make the text at the same time.
        new = path.with_name(f"{name}.{os.getpid()}")
        new.write_bytes(text.encode())
        new.replace(path)
        return text
