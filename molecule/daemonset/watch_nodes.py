#!/usr/bin/env python3
"""Checks that no node object shows fewer devices than at first: watch_nodes.py KUBECONFIG FILE

Watches the workers until FILE exists. Prints the number of states. Exits with 1 and a line for each decrease.
"""

from __future__ import annotations

import os
import sys
import time

from cluster_api import Cluster

WORKERS = ("kind-worker", "kind-worker2")


def shown(cluster: Cluster, node: str) -> dict[str, int]:
    """Return the allocatable quantities of resources."""
    allocatable = cluster.ask("GET", f"/api/v1/nodes/{node}")["status"]["allocatable"]
    return {name: int(count) for name, count in allocatable.items() if "/" in name}


def main(kubeconfig: str, end: str) -> int:
    """Return the exit code."""
    cluster = Cluster(kubeconfig)
    first = {node: shown(cluster, node) for node in WORKERS}
    drops, looks = [], 0
    while not os.path.exists(end):
        for node in WORKERS:
            now = shown(cluster, node)
            drops += [
                f"{node}: {name} was {count}, is {now.get(name)}"
                for name, count in first[node].items()
                if now.get(name, 0) < count
            ]
        looks += 1
        time.sleep(0.2)
    print("\n".join(drops) or f"{looks} looks, never less: {first}")
    return int(bool(drops))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
