#!/usr/bin/env python3
"""Restarts a lab node's kubelet several times, and waits each time until all resources are registered again.

Usage on the node: restart_kubelet.py TIMES. Prints JSON. kubelet: the version. back: for each restart, the seconds from
the new socket until the plugin logs the last registration. If a resource is missing after a minute, the script exits
with 1 and names the resource.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

SOCKET = "/var/lib/kubelet/device-plugins/kubelet.sock"
JOURNAL = ["journalctl", "--unit", "node-device-plugin", "--output", "json", "--no-pager"]
REGISTERED = "registered with the kubelet resource="
TIMEOUT = 60


def output(*command: str) -> str:
    """The output of a command."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def identity() -> tuple[int, int] | None:
    """The identity of the kubelet's current socket; None if no socket exists."""
    try:
        found = os.stat(SOCKET)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def registered(cursor: str) -> dict[str, float]:
    """Maps each resource to its registration time (seconds since the epoch) in the journal after ``cursor``."""
    entries = [json.loads(line) for line in output(*JOURNAL, "--after-cursor", cursor).splitlines()]
    return {
        entry["MESSAGE"][len(REGISTERED) :]: int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        for entry in entries
        if entry["MESSAGE"].startswith(REGISTERED)
    }


def restart(resources: set[str]) -> float:
    """Restart the kubelet. Returns the seconds from its new socket to the last registration."""
    cursor = json.loads(output(*JOURNAL, "--lines", "1"))["__CURSOR"]
    before = identity()
    output("systemctl", "restart", "kubelet")
    until = time.monotonic() + TIMEOUT
    done: dict[str, float] = {}
    while time.monotonic() < until:
        done = registered(cursor) if identity() not in (None, before) else {}
        if resources <= set(done):
            return max(done.values()) - os.stat(SOCKET).st_ctime_ns / 1e9
        time.sleep(0.2)
    sys.exit("not registered again %d s after the restart: %s" % (TIMEOUT, ", ".join(sorted(resources - set(done)))))


def main() -> None:
    status = json.loads(output("node-device-plugin", "status", "--output", "json"))
    resources = {resource["name"] for resource in status["plugin"]["resources"]}
    if not resources:
        sys.exit("the plugin serves no resource: declare one, and run site.yml")
    back = [restart(resources) for _ in range(int(sys.argv[1]))]
    print(json.dumps({"kubelet": output("kubelet", "--version").strip(), "back": back}))


if __name__ == "__main__":
    main()
