"""Discovery of devices in other programs' CDI specs, with specs in the shapes that the vendors' generators document."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from node_device_plugin.cdi.reader import SpecReader
from node_device_plugin.cdi.resolution import Resolution
from node_device_plugin.declaration import Device, parse_resources
from node_device_plugin.devices.discovery import Cdi, Discovered, Discoverer
from node_device_plugin.devices.discovery.root import Root
from node_device_plugin.support.bounded_calls import BoundedCalls

from .conftest import LinksInside, Machine

GPU0, GPU1 = "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c", "GPU-0f2e5a4c-9d9b-8a7d-6c1e-5b4a39281706"
MIG0, MIG1 = "MIG-b6e3a6d2-63b1-5a1c-9f0b-6b1d6c6f2a11", "MIG-6f3d0a5e-0c52-5a9d-8e0e-2f6f7c9d4b22"
ALL = {"cdi": {"kind": "nvidia.com/gpu"}}
CONTROL = ["/dev/nvidiactl", "/dev/nvidia-uvm"]


def device(name: str, *nodes: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": node} for node in nodes], **more}}


def hook(link: str) -> list[dict[str, Any]]:
    args = ["nvidia-cdi-hook", "create-symlinks", "--link", link]
    return [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": args}]


def write(
    machine: Machine,
    devices: Sequence[Mapping[str, Any]],
    kind: str = "nvidia.com/gpu",
    path: str = "/var/run/cdi/nvidia.yaml",
    **more: Any,
) -> None:
    machine.file(path, json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": list(devices), **more}))


def discovered(machine: Machine, *declared: Mapping[str, Any]) -> dict[str, Discovered]:
    resources = parse_resources(list(declared))
    root = str(machine.path)
    discoverer = Discoverer(LinksInside(root), root)
    return asyncio.run(discoverer.discover(resources, dict, spec_dirs=["/etc/cdi", "/var/run/cdi"]))


def found(machine: Machine, discover: Mapping[str, Any] = ALL, **more: Any) -> dict[str, Device]:
    name = "example.com/gpu"
    devices = discovered(machine, {"name": name, "discover": discover, **more})[name].devices
    return {device.id: device for device in devices}


def two_gpus() -> list[dict[str, Any]]:
    first = {"hooks": hook("../card1::/dev/dri/by-path/pci-0000:01:00.0-card")}
    one, two = ("/dev/nvidia0", "/dev/dri/card1", "/dev/dri/renderD128"), ("/dev/nvidia1",)
    return [
        device("0", *one, **first),
        device(GPU0, *one, **first),
        device("1", *two),
        device(GPU1, *two),
        device("all", *one, *two, **first),
    ]


def test_gpus_of_nvidia_ctk_are_offered_once_by_their_uuids(machine: Machine) -> None:
    write(machine, two_gpus(), containerEdits={"deviceNodes": [{"path": path} for path in CONTROL]})
    gpus = found(machine)
    assert list(gpus) == [GPU1, GPU0]
    assert gpus[GPU0].cdi_devices == (f"nvidia.com/gpu={GPU0}",)
    assert gpus[GPU0].nodes == ()
    assert gpus[GPU0].properties == {"kind": "nvidia.com/gpu", "name": GPU0, "pci_address": ""}


def test_a_name_comes_before_an_index_and_names_are_in_natural_order(machine: Machine) -> None:
    write(machine, [device(name, "/dev/a") for name in ("all", "0", "b10", "b2")])
    (only,) = found(machine).values()
    assert (only.id, only.cdi_devices) == ("b2", ("nvidia.com/gpu=b2",))


def test_a_gpu_alone_is_all_gpus(machine: Machine) -> None:
    write(machine, [device("0", "/dev/nvidia0"), device(GPU0, "/dev/nvidia0"), device("all", "/dev/nvidia0")])
    assert list(found(machine)) == [GPU0]


@pytest.mark.parametrize("parents", [[], [device(GPU0, "/dev/nvidia0", "/dev/dri/card1")]])
def test_mig_parts_share_the_node_of_their_gpu_which_is_not_listed_beside_them(
    machine: Machine, parents: list[dict[str, Any]]
) -> None:
    caps = "/dev/nvidia-caps/nvidia-cap"
    parts = [
        device("0:0", "/dev/nvidia0", caps + "21", caps + "22"),
        device(MIG0, "/dev/nvidia0", caps + "21", caps + "22"),
        device("0:1", "/dev/nvidia0", caps + "30", caps + "31"),
        device(MIG1, "/dev/nvidia0", caps + "30", caps + "31"),
        device("all", "/dev/nvidia0", *(caps + number for number in ("21", "22", "30", "31"))),
    ]
    write(machine, [*parents, *parts, device(GPU1, "/dev/nvidia1")])
    assert list(found(machine)) == [GPU1, MIG1, MIG0]


def test_gpus_with_a_control_node_each_stay_beside_parts_of_another_one(machine: Machine) -> None:
    part = device(MIG0, "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21")
    gpus = [device(name, "/dev/nvidiactl", f"/dev/nvidia{number}") for number, name in enumerate((GPU0, GPU1))]
    write(machine, [*gpus, part])
    assert list(found(machine)) == [GPU1, MIG0]


def test_a_gpu_with_a_control_node_stays_beside_parts_of_a_gpu_that_is_not_listed(machine: Machine) -> None:
    part = device(MIG0, "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21")
    write(machine, [device(GPU1, "/dev/nvidiactl", "/dev/nvidia1"), part])
    assert list(found(machine)) == [GPU1, MIG0]


def test_parts_by_type_and_index_are_parts(machine: Machine) -> None:
    """As nvidia-ctk names them with the strategy ``type-index``."""
    part = device("mig0:1", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21")
    write(machine, [device("gpu0", "/dev/nvidia0", "/dev/dri/card1"), part])
    assert list(found(machine)) == ["mig0:1"]


def gpu_with_parts() -> list[dict[str, Any]]:
    caps = {"0:0": MIG0, "0:1": MIG1}
    parts = [
        device(name, "/dev/nvidia0", f"/dev/nvidia-caps/nvidia-cap{number}")
        for number, names in enumerate(caps.items())
        for name in names
    ]
    return [device("0", "/dev/nvidia0", "/dev/dri/card1"), *parts]


@pytest.mark.parametrize(
    ("name", "left"), [("0", []), ("0:0", [MIG1]), (MIG0, [MIG1])], ids=["whole", "index of a part", "part"]
)
def test_a_declared_gpu_reserves_its_parts_and_a_declared_part_leaves_the_other_ones(
    machine: Machine, name: str, left: list[str]
) -> None:
    write(machine, gpu_with_parts())
    declared = {"name": "example.com/one", "devices": [{"id": "one", "cdi_devices": [f"nvidia.com/gpu={name}"]}]}
    listed = discovered(machine, declared, {"name": "example.com/gpu", "discover": ALL})["example.com/gpu"]
    assert [each.id for each in listed.devices] == left
    if not left:
        assert {why for _device, why in listed.left_out} == {"/dev/nvidia0 is already a node of example.com/one=one"}


def test_a_declared_part_reserves_its_gpu(machine: Machine) -> None:
    """In another kind, too."""
    whole, *parts = gpu_with_parts()
    write(machine, parts)
    write(machine, [whole], kind="nvidia.com/whole", path="/etc/cdi/whole.json")
    declared = {"name": "example.com/one", "devices": [{"id": "one", "cdi_devices": ["nvidia.com/gpu=0:0"]}]}
    gpus = {"name": "example.com/gpu", "discover": {"cdi": {"kind": "nvidia.com/whole"}}}
    assert discovered(machine, declared, gpus)["example.com/gpu"].devices == ()


@pytest.mark.parametrize("is_first", [True, False])
def test_parts_go_to_one_resource_and_the_node_of_their_gpu_to_no_other_one(machine: Machine, is_first: bool) -> None:
    machine.file("/dev/nvidia0")
    write(machine, gpu_with_parts())
    resources = [
        {"name": "example.com/gpu", "discover": {"cdi": {"kind": "nvidia.com/gpu", "match": ["0:0"]}}},
        {"name": "example.com/other", "discover": {"cdi": {"kind": "nvidia.com/gpu", "match": ["0:1"]}}},
        {"name": "example.com/node", "discover": {"paths": ["/dev/nvidia?"]}},
    ]
    listed = discovered(machine, *resources[:: 1 if is_first else -1])
    assert [len(listed[each["name"]].devices) for each in resources] == ([1, 1, 0] if is_first else [0, 0, 1])


def test_a_node_goes_to_one_device_of_a_resource_with_two_methods(machine: Machine) -> None:
    machine.file("/dev/nvidia0")
    write(machine, two_gpus())
    listed = discovered(machine, {"name": "example.com/gpu", "discover": {**ALL, "paths": ["/dev/nvidia?"]}})
    gpus = listed["example.com/gpu"]
    assert [each.id for each in gpus.devices] == [GPU1, "nvidia0"]
    assert [(each.id, why) for each, why in gpus.left_out] == [
        (GPU0, "/dev/nvidia0 is already a node of example.com/gpu=nvidia0")
    ]


@pytest.mark.parametrize("is_declared", [True, False])
def test_devices_of_two_kinds_may_share_a_control_device(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, is_declared: bool
) -> None:
    control = "/dev/infiniband/rdma_cm"
    monkeypatch.setattr(Root, "device_number", lambda _root, path: "char/10:58" if path == control else "char/231:0")
    machine.link("/sys/dev/char/10:58", "../../devices/virtual/misc/rdma_cm")
    for number, vendor in enumerate(("a.example", "b.example")):
        nic = device(f"nic{number}", f"/dev/infiniband/uverbs{number}", control)
        write(machine, [nic], kind=f"{vendor}/nic", path=f"/etc/cdi/{vendor}.json")
    first = {"devices": [{"id": "nic", "cdi_devices": ["a.example/nic=nic0"]}]}
    resources = [
        {"name": "example.com/a", **(first if is_declared else {"discover": {"cdi": {"kind": "a.example/nic"}}})},
        {"name": "example.com/b", "discover": {"cdi": {"kind": "b.example/nic"}}},
    ]
    assert [each.id for each in discovered(machine, *resources)["example.com/b"].devices] == ["nic1"]


def test_all_alone_is_offered_as_on_wsl(machine: Machine) -> None:
    write(machine, [device("all", "/dev/dxg")])
    assert list(found(machine)) == ["nvidia.com-gpu-all"]


def test_indexes_alone_are_offered_as_amd_writes_them(machine: Machine) -> None:
    nodes = [["/dev/kfd", f"/dev/dri/card{n}", f"/dev/dri/renderD{128 + n}"] for n in range(2)]
    listed = [device(str(n), *each) for n, each in enumerate(nodes)]
    write(machine, [*listed, device("all", *nodes[0], *nodes[1])], kind="amd.com/gpu")
    gpus = found(machine, {"cdi": {"kind": "amd.com/gpu"}})
    assert {name: device.cdi_devices for name, device in gpus.items()} == {
        "amd.com-gpu-0": ("amd.com/gpu=0",),
        "amd.com-gpu-1": ("amd.com/gpu=1",),
    }


def test_a_node_that_has_only_a_number_is_the_node_of_the_host_with_this_number(machine: Machine) -> None:
    """A container gets the device of this number, whatever the host has at the path."""
    for node in ("/dev/dri/card0", "/dev/dri/card1"):
        machine.file(node)
    machine.file("/sys/dev/char/226:1/uevent", "MAJOR=226\nMINOR=1\nDEVNAME=dri/card1\n")
    numbers = {"type": "c", "major": 226, "minor": 1}
    write(machine, [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/dri/card0", **numbers}]}}])
    by_path = {"name": "example.com/node", "discover": {"paths": ["/dev/dri/card?"]}}
    nodes = discovered(machine, {"name": "example.com/gpu", "discover": ALL}, by_path)["example.com/node"]
    assert [each.nodes[0].path for each in nodes.devices] == ["/dev/dri/card0"]


def test_a_number_belongs_to_another_node_once_the_driver_is_loaded(machine: Machine) -> None:
    node = {"path": "/dev/dri/card0", "type": "c", "major": 226}
    write(machine, [{"name": "0", "containerEdits": {"deviceNodes": [node]}}])
    reader = SpecReader([str(machine.path / "var/run/cdi")], str(machine.path / "sys"))
    before = reader.read({"nvidia.com/gpu"})
    assert before.nodes("nvidia.com/gpu=0") == {"/dev/dri/card0"}
    assert reader.read({"nvidia.com/gpu"}) is before
    machine.file("/sys/dev/char/226:0/uevent", "DEVNAME=dri/card7\n")
    assert reader.read({"nvidia.com/gpu"}).nodes("nvidia.com/gpu=0") == {"/dev/dri/card7"}
    assert reader.is_as_read()


async def test_the_specs_of_kinds_that_are_no_longer_discovered_are_not_kept(machine: Machine) -> None:
    """Those of the former declaration are: a device may be the same under a name of another kind."""
    kinds = ["amd.com/kept", "intel.com/kept", "nvidia.com/kept"]
    discoverer = Discoverer(LinksInside(str(machine.path)), str(machine.path))

    def kept() -> set[str]:
        gc.collect()
        specs = [each for each in gc.get_objects() if type(each) is dict and "cdiVersion" in each]
        return {each["kind"] for each in specs}.intersection(kinds)

    for kind in kinds:
        write(machine, [device("gpu0", "/dev/null")], kind, f"/etc/cdi/{kind[:3]}.json")
        (gpus,) = parse_resources([{"name": "example.com/gpu", "discover": {"cdi": {"kind": kind}}}])
        for _again in range(2):
            listed = await discoverer.discover([gpus], dict, spec_dirs=["/etc/cdi"])
            assert [each.id for each in listed[gpus.name].devices] == ["gpu0"]
    assert kept() == {*kinds[1:]}


def test_an_index_that_moves_is_no_id_where_the_pci_address_is_known(machine: Machine) -> None:
    """Plain files have the number 0:0, so both GPUs have one PCI address, and only one alone has it for its id."""
    pci = "pci0000:00/0000:03:00.0"
    machine.file("/dev/dri/card0")
    machine.link("/sys/dev/char/0:0", f"../../devices/{pci}/drm/card0")
    machine.file(f"/sys/devices/{pci}/drm/card0/dev", "226:0\n")
    write(machine, [device("7", "/dev/dri/card0"), device("8", "/dev/none")], kind="amd.com/gpu")
    gpus = found(machine, {"cdi": {"kind": "amd.com/gpu"}})
    assert {name: device.cdi_devices for name, device in gpus.items()} == {
        "amd.com-gpu-8": ("amd.com/gpu=8",),
        "pci-0000:03:00.0": ("amd.com/gpu=7",),
    }
    machine.file("/dev/dri/card1")
    write(machine, [device("7", "/dev/dri/card0"), device("8", "/dev/dri/card1")], kind="amd.com/gpu")
    assert list(found(machine, {"cdi": {"kind": "amd.com/gpu"}})) == ["amd.com-gpu-7", "amd.com-gpu-8"]


def test_equal_names_of_two_kinds_are_two_devices(machine: Machine) -> None:
    kinds = ["amd.com/gpu", "amd.com/npu", "nvidia.com/gpu"]
    for number, kind in enumerate(kinds):
        write(machine, [device("0", f"/dev/gpu{number}")], kind=kind, path=f"/etc/cdi/{number}.json")
    resources = [{"name": f"example.com/{number}", "discover": {"cdi": {"kind": k}}} for number, k in enumerate(kinds)]
    listed = [[each.id for each in found.devices] for found in discovered(machine, *resources).values()]
    assert listed == [["amd.com-gpu-0"], ["amd.com-npu-0"], ["nvidia.com-gpu-0"]]


def test_an_index_and_a_name_like_its_class_are_two_devices(machine: Machine) -> None:
    write(machine, [device("0", "/dev/a"), device("gpu-0", "/dev/b")])
    assert list(found(machine)) == ["gpu-0", "nvidia.com-gpu-0"]


@pytest.mark.parametrize(
    "odd",
    [
        device("x", "/dev/\0"),
        device("x", "/dev" + "/a" * 3000),
        device("x", "/" + "a/" * 600 + "x"),
        device("1" * 5000, "/dev/x"),
        device("x", "/dev/x", mounts=[{"hostPath": "/\0", "containerPath": "/a"}]),
    ],
    ids=["nul", "long", "deep", "digits", "mount"],
)
def test_an_odd_device_hides_no_other_one(machine: Machine, odd: dict[str, Any]) -> None:
    machine.file("/dev/lamp0")
    write(machine, [device(GPU0, "/dev/nvidia0"), odd, device("2", "/dev/nvidia2")])
    lamps = {"name": "example.com/lamp", "discover": {"paths": ["/dev/lamp*"]}}
    listed = discovered(machine, {"name": "example.com/gpu", "discover": ALL}, lamps)
    assert len(listed["example.com/lamp"].devices) == 1
    assert {GPU0, "nvidia.com-gpu-2"} <= {each.id for each in listed["example.com/gpu"].devices}


async def test_specs_that_hang_are_as_they_were_read_last_and_news_when_they_are_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    news, released, read = asyncio.Event(), threading.Event(), SpecReader.read
    root = str(machine.path)
    discoverer = Discoverer(LinksInside(root, BoundedCalls(limit=1.0)), root, on_news=news.set)
    write(machine, [device(GPU0, "/dev/nvidia0")])
    gpus = {"name": "example.com/gpu", "discover": ALL}
    late = "discovery by cdi did not answer in 1 s"

    async def scan(*declared: Mapping[str, Any]) -> dict[str, list[str]]:
        listed = await discoverer.discover(parse_resources([gpus, *declared]), dict, spec_dirs=["/var/run/cdi"])
        return {name: [each.id for each in found.devices] for name, found in listed.items()}

    def hang(reader: SpecReader, kinds: Collection[str]) -> Resolution:
        released.wait(30)
        return read(reader, kinds)

    async def answer(*declared: Mapping[str, Any]) -> None:
        released.set()
        await asyncio.wait_for(news.wait(), 30)
        # On a busy machine, a scan may be late once more; one that was not calls for no other one.
        while discoverer.late or news.is_set():
            news.clear()
            found = await scan(*declared)
            await asyncio.sleep(0)
        assert found == {"example.com/gpu": [GPU0]}

    monkeypatch.setattr(SpecReader, "read", hang)
    assert (await scan(), discoverer.late) == ({}, {"example.com/gpu": late})
    assert not news.is_set()
    await answer()
    released.clear()
    assert (await scan(), discoverer.late) == ({"example.com/gpu": [GPU0]}, {"example.com/gpu": late})
    # A device that is declared by another kind could be offered a second time.
    declared = {"name": "example.com/set", "devices": [{"id": "set", "cdi_devices": ["vendor.com/set=0"]}]}
    assert (await scan(declared), discoverer.late) == ({}, {"example.com/gpu": late})
    await answer(declared)


def test_a_method_that_fails_for_a_resource_hides_no_other_resource(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise RuntimeError("sysfs is odd")

    monkeypatch.setattr(Cdi, "find", fail)
    machine.file("/dev/lamp0")
    discoverer = Discoverer(LinksInside(str(machine.path)), str(machine.path))
    lamps = {"name": "example.com/lamp", "discover": {"paths": ["/dev/lamp*"]}}
    resources = parse_resources([{"name": "example.com/gpu", "discover": ALL}, lamps])
    listed = asyncio.run(discoverer.discover(resources, dict, spec_dirs=["/etc/cdi"]))
    assert len(listed["example.com/lamp"].devices) == 1
    assert discoverer.late == {"example.com/gpu": "discovery by cdi failed: RuntimeError('sysfs is odd')"}


@pytest.mark.parametrize(
    "other",
    [
        {"deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/dri/card1"}]},
        {"deviceNodes": [{"path": "/dev/dri/card1"}, {"path": "/dev/nvidia0", "hostPath": "/dev/nvidia0"}]},
        {"deviceNodes": [{"path": "/dev/dri/card1", "permissions": "rwm"}, {"path": "/dev/nvidia0"}], "mounts": []},
        {"deviceNodes": [{"path": "/dev/dri/card1"}, {"path": "/dev/nvidia0"}], "env": None},
    ],
)
def test_the_same_edits_in_other_words_are_one_device(machine: Machine, other: dict[str, Any]) -> None:
    edits = {key: value for key, value in other.items() if value is not None}
    write(machine, [device(GPU0, "/dev/dri/card1", "/dev/nvidia0"), {"name": "0", "containerEdits": edits}])
    assert list(found(machine)) == [GPU0]


def test_another_order_of_hooks_is_another_device(machine: Machine) -> None:
    both = [*hook("a::b"), *hook("b::c")]
    write(machine, [device("x", "/dev/a", hooks=both), device("y", "/dev/a", hooks=both[::-1])])
    assert list(found(machine)) == ["x", "y"]


@pytest.mark.parametrize("nodes", [["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-modeset"], []])
def test_all_is_not_offered_beside_other_devices(machine: Machine, nodes: list[str]) -> None:
    write(
        machine,
        [
            device(GPU0, *nodes[:1], env=["A=0"]),
            device(GPU1, *nodes[1:2], env=["A=1"]),
            device("all", *nodes, env=["A=2"]),
        ],
    )
    assert list(found(machine)) == [GPU1, GPU0]


def test_a_pattern_in_nodes_adds_nodes_of_the_host(machine: Machine) -> None:
    machine.file("/dev/fpga0")
    write(machine, [device(GPU0, "/dev/nvidia0")])
    gpu = found(machine, {**ALL, "nodes": [{"path": "/dev/fpga?"}]})[GPU0]
    assert [node.path for node in gpu.nodes] == ["/dev/fpga0"]


@pytest.mark.parametrize("name", ["all", "0", GPU0])
def test_a_declared_device_reserves_its_hardware(machine: Machine, name: str) -> None:
    """By any of its names, and as part of another device; for discovery by paths, too."""
    for node in ("/dev/nvidia0", "/dev/nvidia1"):
        machine.file(node)
    write(machine, [*two_gpus(), device("spare", "/dev/spare")])
    declared = {"name": "example.com/one", "devices": [{"id": "one", "cdi_devices": [f"nvidia.com/gpu={name}"]}]}
    by_path = {"name": "example.com/node", "discover": {"paths": ["/dev/nvidia?"]}}
    listed = discovered(machine, declared, {"name": "example.com/gpu", "discover": ALL})["example.com/gpu"]
    left = ["spare"] if name == "all" else [GPU1, "spare"]
    assert [each.id for each in listed.devices] == left
    listed = discovered(machine, declared, by_path)["example.com/node"]
    assert [each.nodes[0].path for each in listed.devices] == ([] if name == "all" else ["/dev/nvidia1"])
    assert {why for _device, why in listed.left_out} == {
        f"/dev/nvidia{number} is already a node of example.com/one=one" for number in range(2 if name == "all" else 1)
    }


def test_network_devices_need_no_device_node(machine: Machine) -> None:
    nics = [
        {"name": name, "containerEdits": {"netDevices": [{"hostInterfaceName": name, "name": "net1"}]}}
        for name in ("ens1f0v0", "ens1f0v1")
    ]
    spec = {"cdiVersion": "1.1.0", "kind": "vendor.example/nic", "devices": nics}
    machine.file("/etc/cdi/nic.json", json.dumps(spec))
    assert list(found(machine, {"cdi": {"kind": "vendor.example/nic"}})) == ["ens1f0v0", "ens1f0v1"]


def test_a_pci_address_and_numa_node_come_from_a_device_node(machine: Machine) -> None:
    """Plain files have the number 0:0."""
    pci = "pci0000:00/0000:00:01.0/0000:03:00.0"
    machine.file("/dev/dri/card0")
    machine.link("/sys/dev/char/0:0", f"../../devices/{pci}/drm/card0")
    machine.file(f"/sys/devices/{pci}/numa_node", "1\n")
    machine.link(f"/sys/devices/{pci}/driver", "../../../../bus/pci/drivers/xe")
    machine.link(f"/sys/devices/{pci}/subsystem", "../../../../bus/pci")
    machine.file(f"/sys/devices/{pci}/drm/card0/dev", "226:0\n")
    name = "0000-03-00-0-0x56a0"
    write(machine, [device(name, "/dev/dri/card0", "/dev/dri/renderD128")], kind="intel.com/gpu")
    gpu = found(machine, {"cdi": {"kind": "intel.com/gpu"}}, env={"GPU_{index}": "{pci_address}"})[name]
    assert (gpu.numa_node, gpu.properties["pci_address"]) == (1, "0000:03:00.0")
    assert gpu.attributes.known() == {
        "pci_address": "0000:03:00.0",
        "pcie_root": "pci0000:00",
        "driver": "xe",
        "subsystem": "pci",
    }


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({"match": ["GPU-4*"]}, [GPU0]),
        ({"match": ["1"]}, [GPU1]),
        ({"exclude": ["0"]}, [GPU1]),
        ({"match": ["GPU-*"], "exclude": ["*"]}, []),
    ],
)
def test_patterns_match_any_name_of_a_device(machine: Machine, selector: dict[str, Any], names: list[str]) -> None:
    write(machine, two_gpus())
    assert list(found(machine, {"cdi": {"kind": "nvidia.com/gpu", **selector}})) == names


def test_a_later_directory_replaces_a_device_and_a_broken_spec_has_none(machine: Machine) -> None:
    write(machine, [device("a", "/dev/a"), device("b", "/dev/b")], path="/etc/cdi/one.json")
    write(machine, [device("b", "/dev/a")], path="/var/run/cdi/two.json")
    assert list(found(machine)) == ["a"]
    write(machine, [device("c", "/dev/c"), device("c", "/dev/d")], path="/var/run/cdi/three.json")
    assert list(found(machine)) == ["a"]
    # Runtimes drop a name that two files of a directory have.
    write(machine, [device("a", "/dev/x")], path="/etc/cdi/other.json")
    assert list(found(machine)) == ["b"]


def test_specs_of_our_own_are_no_source(machine: Machine) -> None:
    write(machine, [device("a", "/dev/a")], path="/etc/cdi/node-device-plugin_nvidia.com_gpu.json")
    assert found(machine) == {}


def test_a_device_node_goes_to_one_resource_by_cdi_or_by_path(machine: Machine) -> None:
    machine.file("/dev/nvidia0")
    write(machine, [device(GPU0, "/dev/nvidia0")])
    by_path = {"name": "example.com/node", "discover": {"paths": ["/dev/nvidia?"]}}
    by_cdi = {"name": "example.com/gpu", "discover": ALL}
    gpus = discovered(machine, by_cdi, by_path)
    assert [len(gpus[name].devices) for name in ("example.com/gpu", "example.com/node")] == [1, 0]
    ((_device, reason),) = gpus["example.com/node"].left_out
    assert reason == f"/dev/nvidia0 is already a node of example.com/gpu={GPU0}"


def test_a_device_that_is_declared_by_any_of_its_names_is_not_discovered_as_well(machine: Machine) -> None:
    write(machine, two_gpus())
    declared = {"name": "example.com/pair", "devices": [{"id": "pair0", "cdi_devices": ["nvidia.com/gpu=0"]}]}
    gpus = discovered(machine, {"name": "example.com/gpu", "discover": ALL}, declared)["example.com/gpu"]
    assert [device.id for device in gpus.devices] == [GPU1]
    assert [(device.id, why) for device, why in gpus.left_out] == [
        (GPU0, f"nvidia.com/gpu={GPU0} is already a device of example.com/pair=pair0")
    ]


def test_a_name_that_runtimes_read_differently_is_left_out_with_its_reason(machine: Machine) -> None:
    devices = "- {name: 0000:03:00.0, containerEdits: {env: [A=a]}}\n- {name: 010, containerEdits: {env: [A=b]}}\n"
    machine.file("/etc/cdi/npu.yaml", f"cdiVersion: 0.6.0\nkind: acme.example/npu\ndevices:\n{devices}")
    result = discovered(machine, {"name": "example.com/npu", "discover": {"cdi": {"kind": "acme.example/npu"}}})
    found = result["example.com/npu"]
    assert [device.cdi_devices for device in found.devices] == [("acme.example/npu=0000:03:00.0",)]
    assert [device.properties["name"] for device, _reason in found.left_out] == ["8", "010"]
    assert all(": quote the name: " in reason for _device, reason in found.left_out)


def test_names_of_a_refused_file_are_left_out_with_their_reason(machine: Machine) -> None:
    write(machine, [device("0", "/dev/a"), device("../x", "/dev/b")], colour="red")
    left_out = discovered(machine, {"name": "example.com/gpu", "discover": ALL})["example.com/gpu"].left_out
    ((only, why),) = left_out
    assert only.properties["name"] == "0"
    assert "colour: is not a field of CDI" in why
