# SPDX-License-Identifier: Apache-2.0
"""What systemd says of a runtime's unit: what else its restart ends, and what its next start is given.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import os
import re

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.node_process import options, properties

_CONFIG = ("--config", "-config", "-c")
#: The options that say what a runtime reads, or say it themselves, by its name; each with its other names.
_READS = {
    "containerd": (_CONFIG,),
    "crio": (_CONFIG, ("--config-dir", "-config-dir", "-d"), ("--cdi-spec-dirs", "-cdi-spec-dirs")),
}


def unit_facts(unit, name, arguments):
    """Of a runtime's unit, None for one that has none.

    name: the runtime's. arguments: its command line. ``kill_mode``: see systemd.kill(5), None where nobody tells.
    ``next_start``: the options that its next start gives other values than this one, each with those.
    """
    said = properties(unit, "KillMode", "ExecStart") if unit else {}
    return {
        "unit": unit,
        "kill_mode": said.get("KillMode") or None,
        "next_start": list(_changes(name, arguments, _command(said.get("ExecStart", ""), name))),
    }


def _command(exec_start, name):
    """What a unit starts, where that is the runtime itself; None where only its process tells: variables, wrappers."""
    found = re.search(r"argv\[\]=(.*?) ; ignore_errors=", exec_start)
    words = found.group(1).split() if found else []
    return words if words and os.path.basename(words[0]) == name and "$" not in found.group(1) else None


def _changes(name, now, then):
    for names in _READS.get(name, ()) if then else ():
        values = [options(arguments, *names) for arguments in (now, then)]
        if values[0] != values[1]:
            yield {"option": names[0], "now": values[0], "then": values[1]}
