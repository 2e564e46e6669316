"""``python -m tests.faults.killed_while_preparing run …``: a plugin that is killed at a step of preparing a claim.

A step is the request to the API server, or a change of a directory. KILLED_AT: the number of steps before the kill.
"""

import os
import signal
import sys
from typing import Any, Callable

from node_device_plugin.cli.main import main
from node_device_plugin.cluster.api import Api
from node_device_plugin.kubelet.dra.preparing import Preparing

_left = int(os.environ["KILLED_AT"])


def _step() -> None:
    global _left
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    _left -= 1


def _counted(change: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **keywords: Any) -> Any:
        _step()
        return change(*arguments, **keywords)

    return run


async def _prepare(self: Preparing, *arguments: Any) -> Any:
    # From now on, only the claim changes anything.
    for name in ("mkdir", "fchmod", "replace"):
        setattr(os, name, _counted(getattr(os, name)))
    Api.get = _counted(Api.get)  # type: ignore[method-assign]
    prepared = await _original(self, *arguments)
    _step()
    return prepared


_original = Preparing.prepare
Preparing.prepare = _prepare  # type: ignore[method-assign]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
