"""Looking at a process from outside, on a real one."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.verification.container_view import Expectation, expected_in_container, mount_points
from node_device_plugin.verification.looking import annotation_mismatches, compared, look


@pytest.fixture(scope="module")
def pid() -> Iterator[int]:
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    environment = {"NAME": "b", "INDEXED_0": "value=with=equals"}
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid


def expectation(**device: Any) -> Expectation:
    raw: dict[str, Any] = {"name": "example.com/dev", "env": device.pop("env", {}), "devices": [{"id": "d", **device}]}
    (resource,) = parse_resources([raw])
    return expected_in_container(resource, list(resource.devices))


def mismatches(pid: int, expected: Expectation) -> list[str]:
    (resource,) = parse_resources([{"name": "example.com/dev"}])
    return compared(pid, expected, resource, [])[0]


def test_nothing_is_missing(pid: int) -> None:
    expected = expectation(
        env={"INDEXED_{index}": "value=with=equals"},
        nodes=[{"path": "/dev/null"}, {"path": "/dev/zero", "permissions": "r"}],
        container_edits={
            "env": ["NAME=b"],
            "mounts": [{"host_path": "proc", "container_path": "/proc", "type": "proc"}],
        },
    )
    assert mismatches(pid, expected) == []


@pytest.mark.parametrize(
    "mount", [{}, {"type": "bind"}, {"type": "none"}, {"type": "ext4", "options": ["ro", "rbind"]}]
)
def test_what_is_mounted_from_the_host_has_any_file_system(pid: int, mount: dict[str, Any]) -> None:
    mounts = [{"host_path": "/srv", "container_path": "/proc", **mount}]
    assert mismatches(pid, expectation(container_edits={"mounts": mounts})) == []


@pytest.mark.parametrize(
    ("device", "says"),
    [
        ({"env": {"INDEXED_1": "x"}}, ["variable INDEXED_1: expected 'x', found nothing"]),
        ({"env": {"INDEXED_0": "x"}}, ["variable INDEXED_0: expected 'x', found 'value=with=equals'"]),
        ({"container_edits": {"env": ["NAME=a"]}}, ["variable NAME: expected 'a', found 'b'"]),
        ({"nodes": [{"path": "/dev/none"}]}, ["device node /dev/none: no such file or directory"]),
        ({"nodes": [{"path": "/etc/passwd"}]}, ["/etc/passwd: expected a device node, found another kind of file"]),
        (
            {"nodes": [{"path": "/dev/null", "host_path": "/dev/zero"}]},
            ["device node /dev/null: expected numbers c 1:5 (/dev/zero on the host), found c 1:3"],
        ),
        (
            {"nodes": [{"path": "/dev/null", "host_path": "/dev/unplugged"}]},
            ["device node /dev/null: /dev/unplugged on the host: no such file or directory"],
        ),
        # With its numbers, a node needs no path on the host.
        ({"nodes": [{"path": "/dev/null", "host_path": "/dev/no", "type": "c", "major": 1, "minor": 3}]}, []),
        (
            {"nodes": [{"path": "/dev/null", "host_path": "/dev/null", "type": "c", "major": 1, "minor": 5}]},
            ["device node /dev/null: expected numbers c 1:5, found c 1:3"],
        ),
        (
            {"nodes": [{"path": "/dev/null", "uid": 7, "gid": 8, "mode": "0600"}]},
            [
                "device node /dev/null: expected owner 7, found 0",
                "device node /dev/null: expected group 8, found 0",
                "device node /dev/null: expected mode 0600, found 0666",
            ],
        ),
        (
            {"container_edits": {"mounts": [{"host_path": "/x", "container_path": "/none"}]}},
            ["mount /none: expected a mount, found nothing"],
        ),
        (
            {"container_edits": {"mounts": [{"host_path": "tmpfs", "container_path": "/proc", "type": "tmpfs"}]}},
            ["mount /proc: expected type tmpfs, found proc"],
        ),
    ],
)
def test_each_mismatch_names_what_was_expected_and_found(pid: int, device: dict[str, Any], says: list[str]) -> None:
    assert mismatches(pid, expectation(**device)) == says


def test_mount_points_of_any_name() -> None:
    lines = [
        "36 35 98:0 / /plain rw,noatime master:1 - ext3 /dev/root rw",
        r"37 35 98:0 / /a\040b\134c rw - tmpfs tmpfs rw",
        "38 35 98:0 / /データ/ü rw shared:2 - overlay overlay rw",
    ]
    found = mount_points("".join(line + "\n" for line in lines).encode())
    assert found == {"/plain": "ext3", r"/a b\c": "tmpfs", "/データ/ü": "overlay"}


def test_annotations_that_the_runtime_does_not_have_are_named() -> None:
    (resource,) = parse_resources(
        [
            {
                "name": "example.com/dev",
                "devices": [{"id": "a"}, {"id": "b"}],
                "annotations": {"example.com/dev-{index}": "{id}"},
            }
        ]
    )
    expected = expected_in_container(resource, list(resource.devices))
    assert expected.annotations == {"example.com/dev-0": "a", "example.com/dev-1": "b"}
    assert annotation_mismatches({"example.com/dev-0": "a", "example.com/dev-1": "b", "x": "y"}, expected) == []
    assert annotation_mismatches({"example.com/dev-0": "b"}, expected) == [
        "annotation example.com/dev-0: expected 'a', found 'b'",
        "annotation example.com/dev-1: expected 'b', found nothing",
    ]


def test_a_process_that_ended_is_no_mismatch() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        mismatches(process.pid, expectation(env={"DEV": "x"}))
    (resource,) = parse_resources([{"name": "example.com/dev", "devices": [{"id": "d0"}], "env": {"DEV": "x"}}])
    with pytest.raises(ProcessLookupError, match="the container's process %d has ended" % process.pid):
        asyncio.run(look(process.pid, {}, resource, resource.devices))
