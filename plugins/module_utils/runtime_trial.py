# SPDX-License-Identifier: Apache-2.0
"""Lets the node's container runtime read a new text before the text is written.

Runs on nodes: Python 3.9. The caller has loaded the plugin's code (module_utils/node_code.py). The copies may have
secrets, so only root can read them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile

from . import safe_words
from .ledger import naming
from .transaction.runtime import run


def check(adapter, text, beside, drop_in=None, as_drop_in=None):
    """Let the runtime read a new text: see the protocol Check of the adapters. adapter: of the runtime."""
    if as_drop_in is not None:
        return _in_directory(adapter, text, as_drop_in)
    path = adapter.config["path"]
    with contextlib.ExitStack() as stack:
        if drop_in is not None:
            text = text.replace("/{drop_in}", stack.enter_context(_copy(drop_in)))
        staged = stack.enter_context(_copy(text, os.path.dirname(path) if beside else None))
        return _answer([adapter.program, "--config", staged, "config", "dump"], staged, path)


def _in_directory(adapter, text, path):
    """Let the runtime read a copy of its drop-in directory with the new text."""
    directory = adapter.config["drop_in_directory"]
    with tempfile.TemporaryDirectory(prefix="node-devices.") as top:
        copy = os.path.join(top, "drop-ins")
        if os.path.isdir(directory):
            shutil.copytree(directory, copy)
        staged = os.path.join(copy, os.path.relpath(path, directory))
        os.makedirs(os.path.dirname(staged), exist_ok=True)
        with naming(staged), open(staged, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        command = [word.replace("{staged}", copy) for word in adapter.staged_command()]
        return _answer(command, staged, path)


def _answer(command, staged, path):
    from node_device_plugin.runtime.configuration.cdi import UnsupportedConfig

    code, output, error = run(command)
    if code:
        known = (command[0], os.path.basename(command[0]), path)
        said = safe_words.message(error.strip().replace(staged, path), known)
        raise UnsupportedConfig(f"{command[0]} rejects the new configuration: {said}")
    return output.replace(staged, path)


@contextlib.contextmanager
def _copy(text, directory=None):
    """Write a text to a temporary file, and yield the file's path."""
    descriptor, path = tempfile.mkstemp(prefix=".node-devices.", suffix=".tmp", dir=directory)
    try:
        with naming(path), os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)
