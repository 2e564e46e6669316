# SPDX-License-Identifier: Apache-2.0
"""Reads a runtime unit's kill mode, and the options that the unit's next start changes, from systemd.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import os
import re

from .node_device_plugin.support.node_process import options, properties

_CONFIG = ("--config", "-config", "-c")
#: Maps a runtime to its options for configuration and CDI directories. Each option is a tuple of its spellings.
_READS = {
    "containerd": (_CONFIG,),
    "crio": (_CONFIG, ("--config-dir", "-config-dir", "-d"), ("--cdi-spec-dirs", "-cdi-spec-dirs")),
}


def unit_facts(unit, name, arguments):
    """Return the facts of a runtime's unit. unit: its name; None if the runtime has no unit.

    name: the runtime's name. arguments: its command line. In the result, ``kill_mode`` (see systemd.kill(5)) is None if
    unknown. ``next_start`` lists the options that the next start changes, each with both values.
    """
    said = properties(unit, "KillMode", "ExecStart") if unit else {}
    return {
        "unit": unit,
        "kill_mode": said.get("KillMode") or None,
        "next_start": list(_changes(name, arguments, _command(said.get("ExecStart", ""), name))),
    }


def _command(exec_start, name):
    """Return a unit's command line; None if the command line has a variable or starts a wrapper."""
    found = re.search(r"argv\[\]=(.*?) ; ignore_errors=", exec_start)
    words = found.group(1).split() if found else []
    return words if words and os.path.basename(words[0]) == name and "$" not in found.group(1) else None


def _changes(name, now, then):
    for names in _READS.get(name, ()) if then else ():
        values = [options(arguments, *names) for arguments in (now, then)]
        if values[0] != values[1]:
            yield {"option": names[0], "now": values[0], "then": values[1]}
