"""The return after a restart of the kubelets on the lab's nodes (`make lab`), real ones or our stand-in.

The time runs from the kubelet's socket until the plugin reports that its last resource is registered, both by the
node's clock. If there is no lab, the module prints that and measures nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from .figures import Figure, median

RESTARTS = 10
NODES = ("lab-node1", "lab-node2")
_FILES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lab/roles/lab_node/files")
_ENGINE = os.path.join(_FILES, "engine")


def measure() -> list[Figure]:
    """Raises RuntimeError if a resource does not come back."""
    figures = []
    for node in NODES:
        answer = _ask(node)
        if answer is None:
            print("bench: %s: left out, because no such node runs: run make lab first" % node, file=sys.stderr)
            continue
        back = [seconds * 1e3 for seconds in answer["back"]]
        name = "back after a kubelet restart, %s on %s, median of %d" % (answer["kubelet"], node, RESTARTS)
        figures.append(Figure(name, "ms", median(back), most=250))
    return figures


def _ask(node: str) -> dict[str, Any] | None:
    command = [_ENGINE, "exec", "--interactive", node, "/usr/bin/python3", "-", str(RESTARTS)]
    with open(os.path.join(_FILES, "restart_kubelet.py")) as script:
        done = subprocess.run(command, stdin=script, capture_output=True, text=True)
    if done.returncode:
        if "no such container" in done.stderr.lower() or "no container with name" in done.stderr.lower():
            return None
        raise RuntimeError("%s: %s" % (node, (done.stderr.strip().splitlines() or ["?"])[-1]))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
