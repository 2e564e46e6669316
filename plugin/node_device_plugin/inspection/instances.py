"""The plugin's processes on this node, as their command lines tell. One serves; others wait until it ends."""

from __future__ import annotations

import os
from typing import List

_PROGRAM = "node-device-plugin"
_MODULE = "node_device_plugin"


def running_instances(proc: str = "/proc") -> List[int]:
    """The process ids of every ``node-device-plugin run``."""
    found = []
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            with open(os.path.join(proc, pid, "cmdline"), "rb") as file:
                words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
        except OSError:
            continue
        # The script itself, its interpreter with it, or the interpreter with -m.
        for position, word in enumerate(words[:3]):
            is_ours = os.path.basename(word) == _PROGRAM or (word == _MODULE and words[position - 1] == "-m")
            if is_ours and words[position + 1 : position + 2] == ["run"]:
                found.append(int(pid))
                break
    return sorted(found)
