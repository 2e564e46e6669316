"""Checks the records of watch.py for disturbed workloads: judge.py RECORDS

A workload is disturbed if it is deleted, evicted, preempted, not admitted or ended without request. The same applies if
a container is restarted too often or has other devices afterwards, or if two pods have the same device simultaneously.
Prints a summary of each pod. Exits with 1 and a line for each disturbance.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any


class Workload:
    """A pod's records."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.name: str = record["name"]
        self.last = record
        #: Maps (container, number of restarts) to the devices that the container sees.
        self.seen: dict[tuple[str, int], list[str]] = {}
        self.is_gone = False
        self.hurts: dict[str, None] = {}

    def take(self, record: dict[str, Any]) -> None:
        """Add a state of the pod."""
        self.last = record
        why = f" ({record['reason']}: {record['message']})" if record["reason"] else ""
        if (record["event"] == "DELETED" or record["deleting"]) and not record["to_end"]:
            self.hurt(f"was deleted{why}")
        elif not record["to_end"]:
            if record["phase"] in ("Failed", "Succeeded"):
                self.hurt(f"is {record['phase']}{why}")
            for reason in record["disruption"]:
                self.hurt(f"was disrupted: {reason}")
        for container in record["containers"]:
            if container["restarts"] > record["to_restart"]:
                self.hurt(f"was restarted {container['restarts']} times, and not {record['to_restart']} times")
        self.is_gone = record["event"] == "DELETED" or record["phase"] in ("Failed", "Succeeded")

    def see(self, record: dict[str, Any]) -> None:
        """Add the devices that a container of the pod sees."""
        devices = record["devices"]
        if len(devices) != self.last["wants"]:
            self.hurt(f"sees {devices}, and wants {self.last['wants']}")
        for (container, restarts), before in self.seen.items():
            if container == record["container"] and before != devices:
                self.hurt(f"sees {devices} after restart {record['restarts']}, and {before} after restart {restarts}")
        self.seen[record["container"], record["restarts"]] = devices

    def end(self) -> None:
        """Check that the pod still runs, and that its containers had all requested restarts."""
        if self.is_gone:
            return
        if not self.last["containers"] or not all(each["ready"] for each in self.last["containers"]):
            self.hurt(f"does not run: {self.last['phase']}")
        for container in self.last["containers"]:
            if container["restarts"] != self.last["to_restart"]:
                self.hurt(f"was restarted {container['restarts']} times, and not {self.last['to_restart']} times")
            if (container["name"], container["restarts"]) not in self.seen:
                self.hurt(f"never said what it sees after restart {container['restarts']}")

    def hurt(self, how: str) -> None:
        self.hurts[f"{self.name} {how}"] = None


def workloads(records: list[dict[str, Any]]) -> dict[str, Workload]:
    """Return the workloads by uid. A device that two pods have counts as a disturbance."""
    found: dict[str, Workload] = {}
    holders: dict[tuple[str, str], str] = {}
    for record in records:
        pod = found.setdefault(record["uid"], Workload(record))
        if record["kind"] == "pod":
            pod.take(record)
        else:
            pod.see(record)
            for device in record["devices"]:
                holder = holders.setdefault((record["node"], device), record["uid"])
                if holder != record["uid"]:
                    pod.hurt(f"has {device}, which {found[holder].name} has")
        if pod.is_gone:
            holders = {device: holder for device, holder in holders.items() if holder != record["uid"]}
    for pod in found.values():
        pod.end()
    return found


def main(records: str) -> None:
    found = workloads([json.loads(line) for line in pathlib.Path(records).read_text(encoding="utf-8").splitlines()])
    for pod in found.values():
        devices = sorted({device for seen in pod.seen.values() for device in seen})
        state = "gone" if pod.is_gone else pod.last["phase"]
        print(f"{pod.name}: {state}, restarts {[restarts for _, restarts in pod.seen]}, devices {devices}")
    hurts = [hurt for pod in found.values() for hurt in pod.hurts]
    if hurts or not found:
        sys.exit("\n".join(hurts) or "no workload was watched")


if __name__ == "__main__":
    main(*sys.argv[1:])
