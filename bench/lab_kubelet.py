"""Measures restarts of the kubelets, real or stand-in, on the lab's nodes (`make lab`).

The time runs from the kubelet's socket until the plugin reports that its last resource is registered, both by the
node's clock. If a node does not run, the module prints a message and skips the node.
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
    """Measure each node. Raises RuntimeError if a resource is not registered again."""
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
