"""The report: a table for people, data for programs."""

from node_device_plugin.verification.report import FAILED, IN_USE, PROVEN, Report, Row

REPORT = Report(
    "containerd 2.1.9",
    "running",
    [
        Row("example.com/a", 3, 3, ("a0", "a1"), PROVEN, ""),
        Row("example.com/bcd", 1, 1, (), IN_USE, "by default/pod"),
        Row("example.com/e", 1, 0, (), FAILED, "expected 1 healthy devices with the kubelet, found 0"),
    ],
    ["example.com/e: expected 1 healthy devices with the kubelet, found 0"],
    {"example.com/a": "hash"},
    {},
    "pause:3.10",
    ["example.com/a: a warning"],
)


def test_the_table() -> None:
    assert REPORT.to_text().splitlines() == [
        "runtime containerd 2.1.9, kubelet running",
        "RESOURCE         CAPACITY  HEALTHY  CONTAINER SAW  STATE",
        "example.com/a    3         3        a0 a1          proven",
        "example.com/bcd  1         1        -              in use (by default/pod)",
        "example.com/e    1         0        -              failed",
        "warning: example.com/a: a warning",
        "problem: example.com/e: expected 1 healthy devices with the kubelet, found 0",
    ]


def test_the_data() -> None:
    data = REPORT.to_data()
    assert data["resources"][0] == {
        "resource": "example.com/a",
        "capacity": 3,
        "healthy": 3,
        "seen": ("a0", "a1"),
        "state": "proven",
        "detail": "",
        "shares": 0,
        "absent": (),
    }
    assert data["image"] == "pause:3.10"
    assert data["proven"] == {"example.com/a": "hash"}
