"""Whether a workload was hurt, by the records of watch.py: judge.py RECORDS

A workload is hurt where it is deleted, evicted, preempted, refused by the kubelet or ended, where a container of it is
restarted more often than was asked for, or has other devices afterwards, and where two pods have one device at a time.
Prints what each pod went through; ends with 1 and a line for each hurt.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any


class Workload:
    """One pod, by all that was recorded of it."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.name: str = record["name"]
        self.last = record
        #: (container, restarts) to the devices that it sees.
        self.seen: dict[tuple[str, int], list[str]] = {}
        self.is_gone = False
        self.hurts: dict[str, None] = {}

    def take(self, record: dict[str, Any]) -> None:
        """One more state of the pod."""
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
        """What one of its containers sees."""
        devices = record["devices"]
        if len(devices) != self.last["wants"]:
            self.hurt(f"sees {devices}, and wants {self.last['wants']}")
        for (container, restarts), before in self.seen.items():
            if container == record["container"] and before != devices:
                self.hurt(f"sees {devices} after restart {record['restarts']}, and {before} after restart {restarts}")
        self.seen[record["container"], record["restarts"]] = devices

    def end(self) -> None:
        """It runs to the end, and was restarted whenever it should be."""
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
    """By uid. What they were hurt by includes a device that two of them have."""
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
