"""Several files of one kind, such as an old CDI spec beside the refreshed one."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.discovery import Discoverer
from node_device_plugin.devices.health import cdi_names
from node_device_plugin.devices.table import DeviceTable

from .conftest import LinksInside, Machine
from .test_cdi import ALL, GPU0, GPU1, MIG0, MIG1, device, discovered, found, hook, write

OLD_ID, NEW_ID = "GPU-1111aaaa-0000-4000-8000-00000000000a", "GPU-9999bbbb-0000-4000-8000-00000000000a"
OLD, NEW = "/etc/cdi/nv_old.yaml", "/etc/cdi/nv_new.yaml"
OLD_LIBRARY, LIBRARY = "/usr/lib/libcuda.so.550.1", "/usr/lib/libcuda.so.580.2"
RESOURCE = "example.com/gpu"


@pytest.fixture(autouse=True)
def _no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root of the tests is in a directory that the service's sandbox hides."""
    monkeypatch.setattr(cdi_names, "_HIDDEN", ())


def spec(machine: Machine, path: str, devices: Sequence[dict[str, Any]], library: str = LIBRARY) -> None:
    mount = {"hostPath": library, "containerPath": library, "options": ["ro", "bind"]}
    write(machine, devices, path=path, containerEdits={"deviceNodes": [{"path": "/dev/nvidiactl"}], "mounts": [mount]})


def gpu(uuid: str, *nodes: str, **more: Any) -> list[dict[str, Any]]:
    """One GPU as nvidia-ctk lists it: by its index and its UUID, and as all GPUs."""
    return [device(name, *(nodes or ["/dev/nvidia0"]), **more) for name in ("0", uuid, "all")]


@pytest.fixture
def card(machine: Machine) -> Machine:
    """A machine with one GPU, whose driver was upgraded."""
    for path in ("/dev/nvidia0", "/dev/nvidiactl", LIBRARY):
        machine.file(path)
    return machine


def left_out(machine: Machine, discover: Any = ALL) -> dict[str, str]:
    listed = discovered(machine, {"name": RESOURCE, "discover": discover})[RESOURCE]
    return {each.id: why.replace(str(machine.path), "") for each, why in listed.left_out}


def age(machine: Machine, path: str, seconds: int) -> None:
    file = machine.path / path[1:]
    os.utime(file, (file.stat().st_mtime - seconds,) * 2)


SAME = f"nvidia.com/gpu={NEW_ID} of {NEW} is the same device"
CHECK = "node-device-plugin cdi check says what to correct"
TWICE = f"{OLD} and another file in its directory both define this name: {CHECK}"


@pytest.mark.parametrize("edits", [{}, {"hooks": hook("../card1::/dev/dri/by-path/pci-0000:01:00.0-card")}])
def test_beside_an_old_file_the_gpu_is_offered_by_the_name_whose_paths_exist(
    card: Machine, edits: dict[str, Any]
) -> None:
    """The old file has the first name in order; a newer toolkit may also write other edits for the same node."""
    if edits:
        card.file("/usr/bin/nvidia-cdi-hook")
    spec(card, NEW, gpu(NEW_ID, **edits))
    spec(card, OLD, gpu(OLD_ID), OLD_LIBRARY)
    (only,) = found(card).values()
    assert (only.id, only.cdi_devices) == (NEW_ID, (f"nvidia.com/gpu={NEW_ID}",))
    assert left_out(card) == {
        OLD_ID: f"{SAME}, and {OLD_LIBRARY} of {OLD} does not exist: remove {OLD}, or generate it again",
        "nvidia.com-gpu-0": TWICE,
    }
    # The library of the old driver is back, and that of the new one gone: the paths are looked at in each scan.
    card.file(OLD_LIBRARY)
    card.remove(LIBRARY)
    assert list(found(card)) == [OLD_ID]
    assert list(left_out(card)) == [NEW_ID, "nvidia.com-gpu-0"]


@pytest.mark.parametrize("what", ["hook", "node", "number"])
def test_every_path_counts(card: Machine, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    edits: dict[str, Any] = {}
    if what == "hook":
        edits = {"hooks": hook("a::b")}
    elif what == "node":
        edits = {"deviceNodes": [{"path": "/dev/nvidia0"}, {"path": "/dev/x", "hostPath": "/dev/gone"}]}
    spec(card, NEW, gpu(NEW_ID))
    # A device that differs in nodes is another one, so the kind's nodes differ.
    common = {"deviceNodes": [{"path": "/dev/nvidiactl"}, *edits.pop("deviceNodes", [])], **edits}
    if what == "number":
        numbers = {"/dev/nvidiactl": "char/195:255", "/dev/nvidia0": "char/195:0"}
        monkeypatch.setattr("node_device_plugin.devices.discovery.root.Root.device_number", lambda _root, p: numbers[p])
        common = {"deviceNodes": [{"path": "/dev/nvidiactl", "major": 194, "minor": 255}]}
    write(card, gpu(OLD_ID), path=OLD, containerEdits=common)
    assert list(found(card)) == [NEW_ID]


def test_a_number_that_is_right_and_a_node_without_a_path_lack_nothing(
    card: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {"/dev/nvidiactl": "char/195:255", "/dev/nvidia0": "char/195:0"}
    monkeypatch.setattr("node_device_plugin.devices.discovery.root.Root.device_number", lambda _root, p: numbers[p])
    nodes = [
        {"path": "/dev/nvidiactl", "major": 195, "minor": 255},
        {"path": "/dev/made", "type": "c", "major": 195, "minor": 254},
    ]
    write(card, gpu(NEW_ID), path=NEW, containerEdits={"deviceNodes": nodes})
    spec(card, OLD, gpu(OLD_ID), OLD_LIBRARY)
    assert list(found(card)) == [NEW_ID]


def test_of_two_complete_files_the_newer_one_counts(card: Machine) -> None:
    """In a pod, the plugin sees no libraries, so both files look complete."""
    spec(card, NEW, gpu(NEW_ID))
    spec(card, OLD, gpu(OLD_ID), OLD_LIBRARY)
    card.file(OLD_LIBRARY)
    age(card, OLD, 60)
    assert list(found(card)) == [NEW_ID]
    assert left_out(card)[OLD_ID] == f"{SAME}: remove the file that is out of date, for example {OLD}"
    age(card, NEW, 120)
    assert list(found(card)) == [OLD_ID]


def test_a_pod_does_not_judge_what_it_cannot_see(card: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    spec(card, NEW, gpu(NEW_ID), "/usr/lib/only-on-the-host")
    spec(card, OLD, gpu(OLD_ID))
    age(card, OLD, 60)
    assert list(found(card)) == [NEW_ID]


def test_files_that_give_the_same_are_one_device_of_both_names(card: Machine) -> None:
    for path, name in ((NEW, NEW_ID), (OLD, "other")):
        spec(card, path, [device(name, "/dev/nvidia0")])
    (only,) = found(card).values()
    assert only.id == NEW_ID
    assert left_out(card) == {}
    assert found(card, {"cdi": {"kind": "nvidia.com/gpu", "match": ["other"]}})[NEW_ID] == only


@pytest.mark.parametrize(
    ("selector", "ids", "reasons"),
    [
        # Who leaves out the old name wants the GPU; who leaves out the GPU does not want it by the old name.
        ({"exclude": ["GPU-1111*"]}, [NEW_ID], ["nvidia.com-gpu-0"]),
        ({"exclude": ["GPU-9999*"]}, [], [OLD_ID, "nvidia.com-gpu-0"]),
        ({"match": ["GPU-1111*"]}, [], [OLD_ID]),
        ({"match": ["GPU-9999*"]}, [NEW_ID], []),
    ],
)
def test_selectors_beside_an_old_file(card: Machine, selector: Any, ids: list[str], reasons: list[str]) -> None:
    spec(card, NEW, gpu(NEW_ID))
    spec(card, OLD, gpu(OLD_ID), OLD_LIBRARY)
    discover = {"cdi": {"kind": "nvidia.com/gpu", **selector}}
    assert list(found(card, discover)) == ids
    assert list(left_out(card, discover)) == reasons


@pytest.mark.parametrize("name", [OLD_ID, NEW_ID])
@pytest.mark.parametrize("edits", [{}, {"hooks": hook("a::b")}])
def test_a_declared_name_reserves_the_device_in_both_files(card: Machine, name: str, edits: dict[str, Any]) -> None:
    spec(card, NEW, gpu(NEW_ID, **edits))
    spec(card, OLD, gpu(OLD_ID), OLD_LIBRARY)
    declared = {"name": "example.com/one", "devices": [{"id": "one", "cdi_devices": [f"nvidia.com/gpu={name}"]}]}
    assert discovered(card, declared, {"name": RESOURCE, "discover": ALL})[RESOURCE].devices == ()


def test_a_declared_way_of_a_device_leaves_another_way_of_its_file(machine: Machine) -> None:
    write(machine, [device("slow", "/dev/a", env=["MODE=slow"]), device("fast", "/dev/a", env=["MODE=fast"])])
    declared = {"name": "example.com/one", "devices": [{"id": "one", "cdi_devices": ["nvidia.com/gpu=slow"]}]}
    listed = discovered(machine, declared, {"name": RESOURCE, "discover": ALL})[RESOURCE]
    assert [each.id for each in listed.devices] == ["fast"]


def test_both_ways_of_a_file_stay_beside_an_old_file(machine: Machine) -> None:
    machine.file("/dev/a")
    write(machine, [device("slow", "/dev/a", env=["MODE=slow"]), device("fast", "/dev/a", env=["MODE=fast"])], path=NEW)
    spec(machine, OLD, [device("a", "/dev/a")], OLD_LIBRARY)
    assert list(found(machine)) == ["fast", "slow"]
    assert list(left_out(machine)) == ["a"]


def test_only_one_of_two_names_takes_the_node(card: Machine) -> None:
    """A resource that discovers paths must not get the node beside the GPU."""
    spec(card, NEW, gpu(NEW_ID))
    spec(card, OLD, gpu(OLD_ID), OLD_LIBRARY)
    by_path = {"name": "example.com/node", "discover": {"paths": ["/dev/nvidia?"]}}
    listed = discovered(card, {"name": RESOURCE, "discover": ALL}, by_path)
    assert [len(each.devices) for each in listed.values()] == [1, 0]


def test_an_interface_in_two_files_is_one_device(machine: Machine) -> None:
    nic = {"name": "ens1f0v0", "containerEdits": {"netDevices": [{"hostInterfaceName": "ens1f0v0", "name": "net1"}]}}
    machine.file(LIBRARY)
    for path, name, library in ((NEW, "b", LIBRARY), (OLD, "a", OLD_LIBRARY)):
        common = {"mounts": [{"hostPath": library, "containerPath": "/lib"}]}
        content = {"cdiVersion": "1.1.0", "kind": "nvidia.com/gpu", "devices": [{**nic, "name": name}]}
        machine.file(path, json.dumps({**content, "containerEdits": common}))
    assert list(found(machine)) == ["b"]


def parts(*names: str) -> list[dict[str, Any]]:
    caps = "/dev/nvidia-caps/nvidia-cap"
    return [device(name, "/dev/nvidia0", f"{caps}{number}") for number, name in enumerate(names)]


def test_parts_of_an_old_file_do_not_hide_the_whole_gpu(card: Machine) -> None:
    """MIG was turned off since: the nodes of the parts are gone."""
    spec(card, NEW, gpu(NEW_ID))
    spec(card, OLD, parts(MIG0, MIG1), OLD_LIBRARY)
    assert list(found(card)) == [NEW_ID]
    cap = "/dev/nvidia-caps/nvidia-cap"
    whole = f"nvidia.com/gpu={NEW_ID} of {NEW} is the whole device"
    assert left_out(card) == {
        name: f"{whole}, and {cap}{number} of {OLD} does not exist: remove {OLD}, or generate it again"
        for number, name in enumerate((MIG0, MIG1))
    }


def test_a_whole_gpu_of_an_old_file_is_not_offered_beside_its_parts(card: Machine) -> None:
    spec(card, OLD, gpu(OLD_ID), OLD_LIBRARY)
    spec(card, NEW, parts(MIG0, MIG1))
    for number in (0, 1):
        card.file(f"/dev/nvidia-caps/nvidia-cap{number}")
    assert list(found(card)) == [MIG1, MIG0]
    instead = f"its parts are offered instead, such as nvidia.com/gpu={MIG1} of {NEW}"
    assert left_out(card) == {OLD_ID: instead}


def test_a_part_has_one_name_of_two_files(card: Machine) -> None:
    spec(card, NEW, parts(MIG0))
    spec(card, OLD, parts(MIG1), OLD_LIBRARY)
    card.file("/dev/nvidia-caps/nvidia-cap0")
    assert list(found(card)) == [MIG0]
    assert list(left_out(card)) == [MIG1]


def test_nodes_of_an_old_file_hide_no_device_that_has_them_all(card: Machine) -> None:
    spec(card, NEW, [device(NEW_ID, "/dev/nvidia0", "/dev/nvidia-uvm")])
    spec(card, OLD, [device("0", "/dev/nvidia0"), device("uvm", "/dev/nvidia-uvm")], OLD_LIBRARY)
    assert NEW_ID in found(card)
    # If the other devices work, this one consists of them.
    card.file("/dev/nvidia-uvm")
    card.file(OLD_LIBRARY)
    assert list(found(card)) == ["nvidia.com-gpu-0", "uvm"]


def test_names_of_two_files_are_left_out_because_of_the_conflict(card: Machine) -> None:
    spec(card, NEW, gpu(GPU0))
    spec(card, OLD, [*gpu(GPU0), device(GPU1, "/dev/nvidia1")])
    assert list(found(card)) == [GPU1]
    assert left_out(card) == {GPU0: TWICE, "nvidia.com-gpu-0": TWICE}
    assert left_out(card, {"cdi": {"kind": "nvidia.com/gpu", "match": ["GPU-4*"]}}) == {GPU0: TWICE}
    assert left_out(card, {"cdi": {"kind": "nvidia.com/other"}}) == {}


def test_all_alone_in_two_files_has_its_reason(card: Machine) -> None:
    for path in (NEW, OLD):
        spec(card, path, [device("all", "/dev/dxg")])
    assert left_out(card) == {"nvidia.com-gpu-all": TWICE}


def test_a_device_of_a_file_that_runtimes_refuse_has_its_reason(card: Machine) -> None:
    write(card, [device(GPU0, "/dev/nvidia0"), device("odd name", "/dev/nvidia1")], path=NEW, colour="red")
    ((name, why),) = left_out(card).items()
    assert (name, why.partition(";")[0]) == (GPU0, f"{NEW}: colour: is not a field of CDI")


async def test_a_device_that_was_offered_is_gone_because_of_the_conflict(machine: Machine) -> None:
    """Also with the id of its PCI address, which a dropped name does not tell. Plain files have the number 0:0."""
    pci = "pci0000:00/0000:03:00.0"
    machine.link("/sys/dev/char/0:0", f"../../devices/{pci}/drm/card0")
    machine.file(f"/sys/devices/{pci}/drm/card0/dev", "226:0\n")
    machine.file("/dev/dri/card0")
    kind = {"cdi": {"kind": "amd.com/gpu"}}
    (resource,) = parse_resources([{"name": RESOURCE, "discover": kind}])
    table = DeviceTable(resource)
    discoverer = Discoverer(LinksInside(str(machine.path)), str(machine.path))

    async def scan() -> dict[str, str | None]:
        listed = (await discoverer.discover([resource], dict, spec_dirs=["/etc/cdi"]))[RESOURCE]
        table.set_devices(*listed)
        table.update({each.id: None for each in listed.devices})
        return {each.id: table.reason(each) for each in table.resource.devices}

    write(machine, [device("0", "/dev/dri/card0")], kind="amd.com/gpu", path=NEW)
    assert await scan() == {"pci-0000:03:00.0": None}
    write(machine, [device("0", "/dev/dri/card0")], kind="amd.com/gpu", path=OLD)
    for _again in range(2):
        assert await scan() == {"pci-0000:03:00.0": f"gone: {machine.path}{TWICE}"}
    machine.remove(OLD)
    assert await scan() == {"pci-0000:03:00.0": None}
