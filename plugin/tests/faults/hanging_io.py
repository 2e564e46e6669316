"""The plugin as ``python -m node_device_plugin``, in which calls hang on the paths of one directory.

HANGING_DIRECTORY: that directory. HANGING_CALL: which of CALLS hangs, or all. HANGING_FROM: a file; while it is there
they hang. HUNG: a file that the first of them makes. LIMIT: seconds that the plugin gives each call; empty for its own
limits. Plain files stand for device nodes, which not everybody may make.
"""

import builtins
import os
import runpy
import stat
import sys
import time
from typing import Any

from node_device_plugin.devices.events.inotify import Inotify
from node_device_plugin.support.bounded_calls import BoundedCalls

#: Who has a call, its name, and the position of the path among its arguments.
CALLS = {
    "stat": (os, "stat", 0),
    "lstat": (os, "lstat", 0),
    "scandir": (os, "scandir", 0),
    "listdir": (os, "listdir", 0),
    "readlink": (os, "readlink", 0),
    "open": (builtins, "open", 0),
    "os.open": (os, "open", 0),
    "inotify": (Inotify, "_add", 1),
}


def hang_in(owner: Any, name: str, position: int) -> None:
    real, look, make = getattr(owner, name), os.stat, open

    def is_due(arguments: Any) -> bool:
        path = arguments[position] if len(arguments) > position else None
        if not isinstance(path, str) or not path.startswith(os.environ["HANGING_DIRECTORY"]):
            return False
        try:
            look(os.environ["HANGING_FROM"])
        except OSError:
            return False
        return True

    def call(*arguments: Any, **keywords: Any) -> Any:
        while is_due(arguments):
            make(os.environ["HUNG"], "w").close()
            time.sleep(0.05)
        return real(*arguments, **keywords)

    setattr(owner, name, call)


if __name__ == "__main__":
    wanted = os.environ["HANGING_CALL"]
    for function in CALLS if wanted == "all" else [wanted]:
        hang_in(*CALLS[function])
    stat.S_ISCHR = lambda mode: not stat.S_ISDIR(mode)  # type: ignore[assignment]
    limit, begin = os.environ["LIMIT"], BoundedCalls.__init__
    if limit:
        BoundedCalls.__init__ = lambda self, _=0.0, busy=0.0: begin(self, float(limit), busy=busy)  # type: ignore[method-assign]
    sys.argv[0] = "node_device_plugin"
    runpy.run_module("node_device_plugin", run_name="__main__", alter_sys=True)
