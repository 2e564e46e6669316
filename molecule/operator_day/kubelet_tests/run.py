"""Runs the cases of the kubelet's own device tests with a real kubelet and our plugin: run.py KUBECONFIG

PYTHONPATH names molecule/shared.

Each module in this directory is one case. docs/testing.md maps the cases to the kubelet's tests. Prints a line for each
case. Exits with 1 and a sentence for the first failed case.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import container_and_kubelet_restart
import device_health
import get_device_plugin_options
import grace_period
import init_and_sidecar
import orphaned_pod
import reboot_without_plugin
import succeeded_pod
import topology_manager
from cluster_api import Cluster
from tested_node import TestedNode

#: The grace period comes last, because it needs a kubelet without restarts and ends the plugin.
TESTS: tuple[Callable[[TestedNode], str], ...] = (
    topology_manager.run,
    container_and_kubelet_restart.run,
    succeeded_pod.run,
    orphaned_pod.run,
    reboot_without_plugin.run,
    device_health.run,
    init_and_sidecar.run,
    get_device_plugin_options.run,
    grace_period.begin,
    grace_period.end,
)


def main(kubeconfig: str) -> None:
    cluster = Cluster(kubeconfig)
    cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "kubelet-tests"}})
    for test in TESTS:
        name = test.__module__ + ("" if test.__name__ == "run" else f", {test.__name__}")
        begin = time.monotonic()
        try:
            said = test(TestedNode(cluster))
        except AssertionError as failure:
            sys.exit(f"{name}: {failure}")
        print(f"{name} ({time.monotonic() - begin:.0f} s): {said}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
