# SPDX-License-Identifier: Apache-2.0
"""Finds out whether the plugin's service can run the node's Python.

The unit's sandbox hides some directories from the service. The service runs as root at every boot, so only root may be
able to replace its files.
"""

from __future__ import annotations

import os
import sysconfig

from ..node_device_plugin.support import directory_names
from ..node_device_plugin.support.node_process import not_roots_alone
from .build import base_python


def obstacle():
    """Return why the service cannot or must not run this process's Python, as the end of a sentence; None if it can."""
    for path in _files():
        hidden = hidden_below(path)
        if hidden:
            return f"the sandbox of the plugin's service hides {path}, because it hides {hidden}"
        theirs = not_roots_alone(path)
        if theirs:
            return f"the plugin's service would run it as root at every boot, but {theirs}"
    return None


def hidden_below(path):
    """Return the directory that the sandbox hides and that contains ``path``; None if the service sees ``path``."""
    return directory_names.above(path, directory_names.HIDDEN)


def _files():
    """Return the real paths of the interpreter, of its standard library and of its shared library, if it has one."""
    paths = [base_python(), sysconfig.get_path("stdlib")]
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            mapped = {line.split(None, 5)[-1].rstrip("\n") for line in file}
    except OSError:
        mapped = set()
    paths += sorted(path for path in mapped if os.path.basename(path).startswith("libpython"))
    return list(dict.fromkeys(os.path.realpath(path) for path in paths))
