"""Which host paths a container got with each of its devices: one answer covers all devices of a resource."""

import json
from pathlib import Path

import pytest

from node_device_plugin.cdi.links import Links
from node_device_plugin.cdi.reader import SpecReader
from node_device_plugin.cdi.resolution import HostPaths
from node_device_plugin.kubelet import queries
from node_device_plugin.kubelet.checkpoint import Checkpoint, PodDevices
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

OURS = {
    "example.com/dev=a": HostPaths(frozenset(["/dev/a"]), frozenset(["/dev/a", "/dev/common"])),
    "example.com/dev=b": HostPaths(frozenset(["/dev/b"]), frozenset(["/dev/b", "/dev/common"])),
}
FOREIGN = {name: HostPaths(frozenset([path]), frozenset([path])) for name, path in [("v.com/x=0", "/dev/x0")]}


def found(answer: api.ContainerAllocateResponse, *devices: str) -> dict[str, tuple[str, ...]]:
    entry = PodDevices("uid", "main", "example.com/dev", devices, b"")
    held = queries._held(entry, answer, {**FOREIGN, **OURS}, OURS.keys(), Links())
    return {each.device: each.host_paths for each in held}


def answer(*names: str, node: str = "", mount: str = "") -> api.ContainerAllocateResponse:
    return api.ContainerAllocateResponse(
        cdi_devices=[api.CDIDevice(name=name) for name in names],
        devices=[api.DeviceSpec(host_path=node)] if node else [],
        mounts=[api.Mount(host_path=mount)] if mount else [],
    )


def test_a_device_has_the_paths_of_its_own_name() -> None:
    both = answer("example.com/dev=a", "example.com/dev=b")
    assert found(both, "a", "b") == {"a": ("/dev/a",), "b": ("/dev/b",)}
    assert found(both, "a::1") == {"a::1": ("/dev/a",)}


def test_a_device_without_a_name_of_its_own_may_have_each() -> None:
    assert found(answer("example.com/dev=a", "example.com/dev=b"), "renamed") == {"renamed": ("/dev/a", "/dev/b")}


def test_our_name_and_another_programs_name_are_told_apart() -> None:
    """The other program's name does not end with our id, and belongs to the device nevertheless."""
    assert found(answer("example.com/dev=a", "v.com/x=0"), "a") == {"a": ("/dev/a", "/dev/x0")}


def test_every_device_has_what_the_answer_itself_gives() -> None:
    assert found(answer("example.com/dev=a", node="/dev/n", mount="/m"), "a") == {"a": ("/dev/a", "/dev/n", "/m")}


def test_all_paths_and_all_names_are_told() -> None:
    entry, given = PodDevices("uid", "main", "example.com/dev", ("a",), b""), {**FOREIGN, **OURS}
    (held,) = queries._held(entry, answer("v.com/gone=1", "example.com/dev=a"), given, OURS.keys(), Links())
    assert (held.resource, held.device, held.pod, held.container) == ("example.com/dev", "a", "uid", "main")
    assert held.all_host_paths == ("/dev/a", "/dev/common")
    assert held.cdi_names == ("example.com/dev=a", "v.com/gone=1")
    assert held.by_our_cdi
    (held,) = queries._held(entry, answer("v.com/x=0"), FOREIGN, (), Links())
    assert not held.by_our_cdi


async def test_an_unreadable_answer_hides_no_held_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = (
        PodDevices("uid", "main", "example.com/x", ("bad",), b"\xff"),
        PodDevices("uid", "main", "example.com/x", ("good",), answer(node="/dev/n").SerializeToString()),
    )
    monkeypatch.setattr(queries, "read_checkpoint", lambda _directory: Checkpoint({}, entries))
    holders = await queries.checkpointed_holders("", [str(tmp_path)], Links(), "no kubelet")
    assert {each.device: each.host_paths for each in holders.held} == {"bad": (), "good": ("/dev/n",)}


async def test_the_last_entry_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ended pod may have had the same container name and id."""
    entries = tuple(
        PodDevices(uid, "main", "example.com/x", ("a",), answer(node=node).SerializeToString())
        for uid, node in (("ended", "/dev/old"), ("present", "/dev/new"))
    )
    monkeypatch.setattr(queries, "read_checkpoint", lambda _directory: Checkpoint({}, entries))
    holders = await queries.checkpointed_holders("", [str(tmp_path)], Links(), "no kubelet")
    assert [(each.pod, each.host_paths) for each in holders.held] == [
        ("ended", ("/dev/new",)),
        ("present", ("/dev/new",)),
    ]


def write(directory: Path, kind: str, devices: list[dict[str, object]]) -> None:
    spec = {"cdiVersion": "0.5.0", "kind": kind, "devices": devices}
    (directory / f"{kind.partition('/')[2]}.json").write_text(json.dumps(spec))


A, B = "GPU-8dcd427f-483b-4b48-9a26-5a1f6f1a7e2c", "GPU-8dcd427f-483b-4b48-9a26-5a1f6f1a7e2d"


@pytest.mark.parametrize(
    ("held", "is_uuid", "free"),
    [
        ({"v.com/gpu=gone"}, False, {"/dev/g0", "/dev/g1", "/dev/g2"}),
        ({"v.com/gpu=gone"}, True, {"/dev/g2"}),
        # The name 0 means the same device as its UUID.
        ({"v.com/gpu=0"}, False, {"/dev/g1", "/dev/g2"}),
        ({"v.com/gpu=2"}, True, set()),
    ],
)
def test_a_name_that_is_gone_may_have_meant_any_device_that_nobody_holds(
    tmp_path: Path, held: set[str], is_uuid: bool, free: set[str]
) -> None:
    nodes = {"0": "/dev/g0", A: "/dev/g0", B: "/dev/g1", "2": "/dev/g2"}
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": path}, {"path": "/dev/ctl"}]}}
        for name, path in nodes.items()
    ]
    write(tmp_path, "v.com/gpu", devices)
    other = [{"name": "x", "containerEdits": {"deviceNodes": [{"path": "/dev/other"}]}}]
    write(tmp_path, "v.com/other", other)
    specs = SpecReader([str(tmp_path)]).read(["v.com/gpu", "v.com/other"])
    own = specs.own_nodes(["v.com/gpu=gone", "v.com/other=x"])
    # What it may have given includes what every device of the kind gives.
    expected = free | {"/dev/ctl"} if free else set()
    assert queries._free_nodes(specs, own, held, "v.com/gpu", is_uuid) == expected


def test_what_our_specs_give_counts_also_where_another_spec_overrides_it(tmp_path: Path) -> None:
    def edits(*nodes: str, mounts: tuple[str, ...] = ()) -> dict[str, object]:
        return {
            "deviceNodes": [{"path": path} for path in nodes],
            "mounts": [{"hostPath": path, "containerPath": path, "type": "bind"} for path in mounts],
            "hooks": [{"hookName": "prestart", "path": "/hook"}],
        }

    ours = {
        "cdiVersion": "0.6.0",
        "kind": "v.com/gpu",
        "containerEdits": edits("/dev/of-kind", mounts=("/m/of-kind",)),
        "devices": [
            {"name": "a", "containerEdits": edits("/dev/link", "/dev/common", mounts=("/m/a",))},
            {"name": "b", "containerEdits": edits("/dev/b", "/dev/common")},
            {"name": "same-as-b", "containerEdits": edits("/dev/b", "/dev/common")},
        ],
    }
    (tmp_path / "node-device-plugin_v.com_gpu.json").write_text(json.dumps(ours))
    (tmp_path / "later").mkdir()
    write(tmp_path / "later", "v.com/gpu", [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/x"}]}}])
    specs = SpecReader([str(tmp_path), str(tmp_path / "later")]).read(["v.com/gpu"])
    assert specs.is_foreign("v.com/gpu=a")
    of_b = HostPaths(frozenset(["/dev/b"]), frozenset(["/dev/b", "/dev/common", "/m/of-kind"]))
    real = {"/dev/link": "/dev/a"}
    assert specs.of_ours(lambda path: real.get(path, path)) == {
        "v.com/gpu=a": HostPaths(
            frozenset(["/dev/a", "/m/a"]), frozenset(["/dev/a", "/dev/common", "/m/a", "/m/of-kind"])
        ),
        "v.com/gpu=b": of_b,
        "v.com/gpu=same-as-b": of_b,
    }
    assert SpecReader([str(tmp_path / "later")]).read(["v.com/gpu"]).of_ours(str) == {}
