"""What a proof asks for."""

import json
import socket
from pathlib import Path
from typing import Any, Optional, cast

import grpc
import pytest

from node_device_plugin.declaration import Resource, cdi, parse_configuration, parse_resources
from node_device_plugin.devices.health import CdiNames
from node_device_plugin.kubelet import pod_resources
from node_device_plugin.kubelet import queries as kubelet_queries
from node_device_plugin.kubelet.checkpoint import CheckpointError
from node_device_plugin.kubelet.pod_resources import Listing
from node_device_plugin.runtime import queries as runtime_queries
from node_device_plugin.runtime.client import CriClient
from node_device_plugin.support.bounded_calls import NoAnswer
from node_device_plugin.verification import without_lists
from node_device_plugin.verification.device_plugins import DevicePlugins
from node_device_plugin.verification.expected import Expected, expected
from node_device_plugin.verification.looking import Outcome
from node_device_plugin.verification.report import Row
from node_device_plugin.verification.scope import Runtime, Scope
from node_device_plugin.verification.verify import _runtime, verify

SHARED = {"name": "example.com/dev", "devices": [{"id": "d0"}], "env": {"DEV": "x"}, "replicas": 4}
IDS = ("d0::0", "d0::1", "d0::2", "d0::3")


def judged(resource: Resource, listing: Listing, devices: str) -> Row:
    return row_of(expected(resource, None, (), CdiNames(())), listing, devices)


def row_of(wanted: Expected, listing: Listing, devices: str) -> Row:
    runtime = Runtime("containerd 2.1.9", None, True)
    scope = Scope("/none.sock", "/kubelet", None, None, devices, False, None, 1.0)
    configuration = parse_configuration({"resources": []})
    return DevicePlugins(listing, configuration, runtime, scope).judge(wanted, [])


@pytest.mark.parametrize(
    ("limit", "devices", "shares"), [(None, "all", 4), (None, "one", 1), (2, "all", 2), (2, "one", 1), (9, "all", 4)]
)
def test_a_proof_asks_for_no_more_than_a_container_may_have(limit: Optional[int], devices: str, shares: int) -> None:
    (resource,) = parse_resources([{**SHARED, "container_limit": limit}])
    listing = Listing(0, [], allocatable={"example.com/dev": IDS}, checkpointed=frozenset({"example.com/dev"}))
    row = judged(resource, listing, devices)
    assert (row.state, row.shares, row.capacity) == ("unproven", shares, 4)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"example.com/dev": IDS[1:]}, "expected 4 healthy devices with the kubelet, found 3 (missing: d0::0)"),
        ({"example.com/dev": (*IDS, "x")}, "expected 4 healthy devices with the kubelet, found 5 (not declared: x)"),
        ({}, "expected the resource to be registered with the kubelet, found no such resource"),
    ],
)
def test_other_devices_than_are_declared_are_a_failure(found: dict[str, tuple[str, ...]], says: str) -> None:
    (resource,) = parse_resources([SHARED])
    row = judged(resource, Listing(0, [], allocatable=found, checkpointed=frozenset(found)), "all")
    assert (row.state, row.shares, row.detail) == ("failed", 0, says)


@pytest.mark.parametrize(("limit", "given"), [(None, ["a", "b"]), (1, ["a"]), (3, ["a", "b"])])
async def test_without_a_kubelet_neither(limit: Optional[int], given: list[str]) -> None:
    class Runtime:
        """Remembers what a container asks for; it ends at once."""

        asked: list[str]

        def __getattr__(self, name: str) -> Any:
            async def answer(*arguments: Any) -> Any:
                if name == "create_container":
                    self.asked = [device.name for device in arguments[1].CDI_devices]
                return None if name == "container_pid" else "id"

            return answer

    # With a limit of 1 they may well be the same path in a container.
    devices = [{"id": name, "nodes": [{"path": "/dev/%s" % name, "host_path": "/dev/null"}]} for name in "ab"]
    (resource,) = parse_resources([{"name": "example.com/dev", "devices": devices, "container_limit": limit}])
    runtime = Runtime()
    outcome = await without_lists.prove_by_runtime(resource, cast(CriClient, runtime), "pause", CdiNames(()))
    assert outcome.mismatches == ("expected a running container, but the container has ended",)
    assert runtime.asked == ["example.com/dev=%s" % name for name in given]


@pytest.mark.parametrize(
    ("name", "version", "enabled", "said"),
    [
        ("containerd", "1.7.24~ds1", False, "found off in the running daemon: a container would start without its"),
        ("containerd", "v2.2.4", False, "found off in the running daemon: a container would start without its devices"),
        ("containerd", "v2.3.0", False, "found off in the running daemon: a container could not be created with its"),
        (
            "containerd",
            "1.6.20",
            None,
            "found nothing about CDI in the running daemon: a container would start without",
        ),
        ("containerd", "v2.3.0", True, None),
        ("cri-o", "1.32.9", True, None),
    ],
)
async def test_a_runtime_without_cdi(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str, enabled: Optional[bool], said: Optional[str]
) -> None:
    async def runtime(_socket: str) -> dict[str, Any]:
        return {"name": name, "version": version, "cdi": {"enabled": enabled}, "sandbox_image": "pause"}

    monkeypatch.setattr(runtime_queries, "runtime", runtime)
    device = {"id": "d0", "nodes": [{"path": "/dev/null"}]}
    resources = parse_resources([{"name": "example.com/dev", "devices": [device]}])
    problems: list[str] = []
    scope = Scope("/run/x.sock", "/var/lib/kubelet", None, None, "one", False, None, 0.0)
    found = await _runtime(scope, resources, problems)
    assert found.gives_cdi is (said is None)
    assert [said in problem and problem.endswith("of example.com/dev") for problem in problems] == [True] * bool(said)


async def test_a_kubelet_with_too_many_questions_is_not_one_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
    async def listing(*_: object) -> Any:
        raise pod_resources.PodResourcesError(
            "/s", "list", grpc.StatusCode.RESOURCE_EXHAUSTED, pod_resources._RATE_LIMIT
        )

    monkeypatch.setattr(kubelet_queries, "listing", listing)
    (short_path / kubelet_queries.POD_RESOURCES_SOCKET).parent.mkdir()
    (short_path / kubelet_queries.POD_RESOURCES_SOCKET).touch()
    resources = [{"name": "example.com/dev", "devices": [{"id": "d0", "nodes": [{"path": "/dev/null"}]}]}]
    scope = Scope("/run/x.sock", str(short_path), None, None, "all", False, None, 0.0)
    report = await verify(parse_configuration({"resources": resources}), scope)
    assert (report.kubelet, report.rows[0].detail) == ("rate limited", "the kubelet gets too many requests")


@pytest.mark.parametrize(
    ("is_there", "kubelet", "detail"),
    [(True, "not answering", "the kubelet does not answer"), (False, "none", "no kubelet yet")],
)
async def test_a_kubelet_that_hangs_is_another_than_none(
    monkeypatch: pytest.MonkeyPatch, short_path: Path, is_there: bool, kubelet: str, detail: str
) -> None:
    """The row says it, and nothing is proven beside it: when it goes on it may end what it does not know."""
    monkeypatch.setattr(pod_resources, "_TIMEOUT", 0.1)
    proofs: list[str] = []

    async def prove(resource: Resource, *_: object) -> Outcome:
        proofs.append(resource.name)
        return Outcome((), ())

    async def runtime(_socket: str) -> dict[str, Any]:
        return {"name": "containerd", "version": "2.1.9", "cdi": {"enabled": True}, "sandbox_image": "pause"}

    monkeypatch.setattr(runtime_queries, "runtime", runtime)
    monkeypatch.setattr(without_lists, "prove_by_runtime", prove)
    path = short_path / kubelet_queries.POD_RESOURCES_SOCKET
    path.parent.mkdir()
    device = {"id": "d0", "nodes": [{"path": "/dev/null"}]}
    configuration = parse_configuration({"resources": [{"name": "example.com/dev", "devices": [device]}]})
    scope = Scope("/run/x.sock", str(short_path), str(short_path), None, "all", False, None, 0.0)
    with socket.socket(socket.AF_UNIX) as listening:
        if is_there:
            listening.bind(str(path))
            listening.listen()
        report = await verify(configuration, scope)
    (row,) = report.rows
    assert (report.kubelet, row.state, row.detail) == (kubelet, "pending", detail)
    problem = "kubelet: expected an answer on %s, found none in 0 s" % path
    assert report.problems == [problem] * is_there
    assert proofs == ["example.com/dev"] * (not is_there)


@pytest.mark.parametrize(
    "error", [CheckpointError("x is no device checkpoint"), PermissionError(13, "Permission denied", "/x")], ids=repr
)
async def test_a_checkpoint_that_cannot_be_read_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, short_path: Path, error: Exception
) -> None:
    async def listing(*_: object) -> Any:
        raise error

    monkeypatch.setattr(kubelet_queries, "listing", listing)
    resources = [{"name": "example.com/dev", "devices": [{"id": "d0", "nodes": [{"path": "/dev/null"}]}]}]
    scope = Scope(str(short_path / "none"), str(short_path), None, None, "all", False, None, 0.0)
    report = await verify(parse_configuration({"resources": resources}), scope)
    assert "kubelet: %s" % error in report.problems
    (row,) = report.rows
    assert (report.kubelet, row.state, row.detail) == ("running", "pending", "the kubelet's checkpoint cannot be read")


async def test_what_nobody_says_of_holders_is_a_problem(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    async def holders(*_: object) -> None:
        raise NoAnswer("what containers were given: it did not answer in 5 s")

    monkeypatch.setattr(kubelet_queries, "holders", holders)
    configuration = parse_configuration({"resources": [{"name": "example.com/dev", "devices": []}]})
    scope = Scope(str(short_path / "none"), str(short_path), None, None, "all", False, None, 0.0)
    report = await verify(configuration, scope)
    said = "cannot find out which pods hold devices: what containers were given: it did not answer in 5 s"
    assert said in report.problems


def test_an_optional_device_that_no_spec_has_is_not_expected(tmp_path: Path) -> None:
    devices = [{"id": name, "cdi_devices": [f"vendor.com/gpu={name}"], "required": False} for name in ("a", "b")]
    (resource,) = parse_resources([{"name": "example.com/gpu", "devices": devices}])
    listed = [{"name": "a", "containerEdits": {"env": ["A=B"]}}]
    spec = {"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": listed}
    (tmp_path / "vendor.json").write_text(json.dumps(spec))
    names = CdiNames([str(tmp_path)])
    names.read(name for device in resource.devices for name in device.cdi_devices)
    wanted = expected(resource, None, (), names)
    why = f"b: the CDI name vendor.com/gpu=b is in no valid spec of {tmp_path}"
    assert (wanted.ids, wanted.absent) == (["a"], (why,))


MISSING = (
    "the mount of its CDI spec does not exist, so no container with example.com/fpga={} starts: create it, or change"
)


@pytest.mark.parametrize(("is_required", "ids"), [(True, ["a", "b"]), (False, ["a"])])
def test_a_device_whose_mount_has_no_source_is_missing_for_this_reason(
    tmp_path: Path, is_required: bool, ids: list[str]
) -> None:
    """The reason of an optional device that nobody misses is none of the failure."""
    mounts = {"a": "/proc/self", "b": "/no-such", "c": "/no-such-either"}
    devices = [
        {
            "id": name,
            "required": is_required and name != "c",
            "container_edits": {"mounts": [{"host_path": path, "container_path": f"/{name}"}]},
        }
        for name, path in mounts.items()
    ]
    (resource,) = parse_resources([{"name": "example.com/fpga", "devices": devices}])
    spec = cdi.render_spec(resource)
    assert spec is not None
    (tmp_path / "node-device-plugin_example.com_fpga.json").write_text(cdi.serialise(spec))
    names = CdiNames([str(tmp_path)])
    names.read([])
    wanted = expected(resource, None, (), names)
    assert wanted.ids == ids
    found = {"example.com/fpga": ("a",)}
    listing = Listing(0, [], allocatable=found, checkpointed=frozenset(found))
    row = row_of(wanted, listing, "one")
    if is_required:
        why = "/no-such: " + MISSING.format("b")
        said = f"expected 2 healthy devices with the kubelet, found 1 (missing: b); b: {why} the declaration"
        assert (row.state, row.detail) == ("failed", said)
    else:
        assert row.state == "unproven"
