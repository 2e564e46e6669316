"""The table of what the role verification found on all hosts."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.filter.verification_table import FilterModule


def test_one_table_has_the_reports_of_all_hosts():
    def row(resource, state, detail="", seen=()):
        return {"resource": resource, "capacity": 2, "healthy": 1, "seen": seen, "state": state, "detail": detail}

    report = [
        row("a.io/a", "proven", seen=["one", "two"]),
        # The task that failed has said why.
        row("a.io/b", "failed", "expected 2 devices, found 1"),
        row("a.io/c", "in use", "by default/pod"),
        row("a.io/d", "unproven", "no image"),
    ]
    hostvars = {
        "worker1": {"verification_report": {"resources": report}},
        "worker2": {},
        "checked": {"verification_report": {"skipped": True}},
        "not-shown": {"verification_report": {"resources": report}},
    }
    table = FilterModule().filters()["verification_table"](["worker1", "worker2", "checked"], hostvars)
    assert table.splitlines() == [
        "NODE     RESOURCE  CAPACITY  HEALTHY  CONTAINER SAW  STATE",
        "worker1  a.io/a    2         1        one two        proven",
        "worker1  a.io/b    2         1        -              failed",
        "worker1  a.io/c    2         1        -              in use (by default/pod)",
        "worker1  a.io/d    2         1        -              unproven (no image)",
        "worker2  -         -         -        -              not verified",
        "checked  -         -         -        -              not verified",
    ]
