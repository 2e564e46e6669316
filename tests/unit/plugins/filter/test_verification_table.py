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
        "checked": {"verification_report": {"skipped": True}, "node_devices_node": {"joined": True}},
        "to-come": {"node_devices_node": {"joined": False}},
        "not-shown": {"verification_report": {"resources": report}},
    }
    table = FilterModule().filters()["verification_table"](["worker1", "worker2", "checked", "to-come"], hostvars)
    assert table.splitlines() == [
        "NODE     RESOURCE  CAPACITY  HEALTHY  CONTAINER SAW  STATE",
        "worker1  a.io/a    2         1        one two        proven",
        "worker1  a.io/b    2         1        -              failed",
        "worker1  a.io/c    2         1        -              in use (by default/pod)",
        "worker1  a.io/d    2         1        -              unproven (no image)",
        "worker2  -         -         -        -              not verified",
        "checked  -         -         -        -              not verified",
        "to-come  -         -         -        -              not joined",
    ]


def test_static_capacities_have_rows():
    """Only the node object has them."""

    def row(name, state, declared="4", capacity="4"):
        return {"resource": name, "declared": declared, "capacity": capacity, "allocatable": "4", "state": state}

    rows = [
        row("a.io/seat", "as declared"),
        row("a.io/lost", "not as declared: the next run patches it", capacity="-"),
        row("a.io/camera", "served", declared="plugin"),
        row("a.io/old", "no longer declared", declared="-"),
    ]
    hostvars = {
        "worker1": {"verification_report": {"resources": []}, "extended_resources_result": {"resources": rows}},
        "worker2": {"extended_resources_result": {"resources": rows[:1]}},
        "skipped": {"verification_report": {"resources": []}, "extended_resources_result": {"skipped": True}},
    }
    table = FilterModule().filters()["verification_table"](list(hostvars), hostvars)
    assert table.splitlines() == [
        "NODE     RESOURCE   CAPACITY  HEALTHY  CONTAINER SAW  STATE",
        "worker1  a.io/seat  4         4        -              as declared",
        "worker1  a.io/lost  -         4        -              not as declared: the next run patches it",
        "worker2  -          -         -        -              not verified",
        "worker2  a.io/seat  4         4        -              as declared",
    ]
