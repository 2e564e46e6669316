#!/usr/bin/env python3
"""Restart a lab node's kubelet again and again, and wait each time until every resource is registered with it anew.

Usage, on the node: restart_kubelet.py TIMES. Prints as JSON what the kubelet is, and for each time the seconds from the
moment its socket was there until the plugin said of the last resource that it is registered. Fails, and names what is
missing, where a resource is not back after a minute.
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
    """What a command prints."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def identity() -> tuple[int, int] | None:
    """Tells one kubelet's socket from the next one's."""
    try:
        found = os.stat(SOCKET)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def registered(cursor: str) -> dict[str, float]:
    """When each resource was registered, in seconds of the epoch, since a place in the journal."""
    entries = [json.loads(line) for line in output(*JOURNAL, "--after-cursor", cursor).splitlines()]
    return {
        entry["MESSAGE"][len(REGISTERED) :]: int(entry["__REALTIME_TIMESTAMP"]) / 1e6
        for entry in entries
        if entry["MESSAGE"].startswith(REGISTERED)
    }


def restart(resources: set[str]) -> float:
    """Seconds from the new socket to the last resource."""
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
    sys.exit("not registered again after %d s: %s" % (TIMEOUT, ", ".join(sorted(resources - set(done)))))


def main() -> None:
    status = json.loads(output("node-device-plugin", "status", "--output", "json"))
    resources = {resource["name"] for resource in status["plugin"]["resources"]}
    if not resources:
        sys.exit("the plugin serves no resource")
    back = [restart(resources) for _ in range(int(sys.argv[1]))]
    print(json.dumps({"kubelet": output("kubelet", "--version").strip(), "back": back}))


if __name__ == "__main__":
    main()
