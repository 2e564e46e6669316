"""Which resource gets a found device, and why another one does not."""

from typing import Any

import pytest

from node_device_plugin.cdi.directories import of_spec
from node_device_plugin.cdi.resolution import NO_SPECS, Resolution
from node_device_plugin.declaration import Device, Resource
from node_device_plugin.declaration.model import ContainerEdits, DeviceNode
from node_device_plugin.devices.discovery.assignment import Candidate, Claims, assigned
from node_device_plugin.devices.discovery.method import Found, Node

A, B = "example.com/a", "example.com/b"


def specs(**nodes: list[str]) -> Resolution:
    """The specs of a kind v.com/x, with the device nodes of each device."""
    devices = [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": path} for path in paths]}}
        for name, paths in nodes.items()
    ]
    return Resolution([of_spec("/etc/cdi/x.json", {"cdiVersion": "0.6.0", "kind": "v.com/x", "devices": devices})])


def device(device_id: str, *paths: str) -> Device:
    nodes = tuple(DeviceNode(path, path, "rw", None, None, None) for path in paths)
    return Device(device_id, nodes, ContainerEdits(), {}, required=False)


def resource(name: str, *devices: Device) -> Resource:
    return Resource(name, name, devices, {}, ContainerEdits(), 1)


def candidate(device_id: str, *own: str, method: str = "paths", problem: str = "", **found: Any) -> Candidate:
    finding = Found(device_id, (), False, {}, (f"found {device_id}",), **found)
    return Candidate(method, finding, (), device(device_id), [device_id], own, problem or None)


def claims(*resources: Resource, specs: Resolution = NO_SPECS, **taken: str) -> Claims:
    links = {"/dev/link": "/dev/real"}
    return Claims(resources, lambda path: links.get(path, path), taken, specs)


def is_used(path: str, owner: str) -> str:
    return f"{path} is already a node of {owner}"


def test_an_id_belongs_to_one_resource() -> None:
    known = claims(resource(A, device("x")), gone=A)
    advice = "already has a device with this id: if the devices differ, set discover.id_prefix, e.g. b-, or exclude one"
    assert known.refusal(candidate("x"), B) == f"{A} {advice}"
    assert known.refusal(candidate("gone"), B) == f"{A} {advice}"
    assert known.refusal(candidate("gone"), A) is None
    assert known.refusal(candidate("y"), B) is None
    # A declared device comes before a found one of its own resource.
    assert known.refusal(candidate("x"), A) is not None
    known.add(candidate("y"), A)
    assert known.refusal(candidate("y"), B) == f"{A} {advice}"


def test_a_node_belongs_to_one_device() -> None:
    by_cdi = [device(each)._replace(cdi_devices=(f"v.com/x={each}",)) for each in ("g", "h")]
    given = specs(g=["/dev/cdi", "/dev/both"], h=["/dev/both"])
    known = claims(resource(A, device("x", "/dev/link"), *by_cdi), specs=given)
    assert known.refusal(candidate("y", "/dev/both"), B) is None
    assert known.refusal(candidate("y", "/dev/real"), B) == is_used("/dev/real", f"{A}=x")
    assert known.refusal(candidate("y", "/dev/cdi"), B) == is_used("/dev/cdi", f"{A}=g")
    assert known.refusal(candidate("y", "/dev/free", "/dev/cdi"), B) == is_used("/dev/cdi", f"{A}=g")
    assert known.refusal(candidate("y", "/dev/free"), B) is None
    known.add(candidate("y", "/dev/free"), B)
    assert known.refusal(candidate("z", "/dev/free"), B) == is_used("/dev/free", f"{B}=y")
    known.add(candidate("v", "/dev/vfio/1", method="pci"), B)
    hint = ": use discover.vfio, which makes one device of an IOMMU group"
    assert known.refusal(candidate("w", "/dev/vfio/1", method="pci"), B) == is_used("/dev/vfio/1", f"{B}=v") + hint
    assert known.refusal(candidate("w", "/dev/vfio/1", method="paths"), B) == is_used("/dev/vfio/1", f"{B}=v")


def test_a_cdi_name_belongs_to_one_device() -> None:
    declared = device("d")._replace(cdi_devices=("v.com/x=x",))
    known = claims(resource(A, declared), specs=specs(x=["/dev/x"], also_x=["/dev/x"], y=["/dev/y"]))
    found = candidate("x", cdi_name="v.com/x=x")._replace(found=Found("x", (), True, {}, ("x",), cdi_name="v.com/x=x"))
    assert known.refusal(found, B) == f"v.com/x=x is already a device of {A}=d"
    also = found._replace(found=found.found._replace(known_as=("also_x",), cdi_name="v.com/x=also_x"))
    assert known.refusal(also, B) == f"v.com/x=also_x is already a device of {A}=d"
    other = found._replace(found=found.found._replace(known_as=("y",), cdi_name="v.com/x=y"))
    assert known.refusal(other, B) is None
    known.add(other, A)
    assert known.refusal(other._replace(device=device("z")), B) == f"v.com/x=y is already a device of {A}=x"


def test_parts_have_the_nodes_of_their_whole_in_common() -> None:
    known = claims()
    parts = [candidate(name, f"/dev/{name}", method="cdi", part_of=("/dev/whole",)) for name in ("p1", "p2")]
    for part in parts:
        assert known.refusal(part, A) is None
        known.add(part, A)
    whole = candidate("w", "/dev/whole", method="paths")
    assert known.refusal(whole, A) == is_used("/dev/whole", f"{A}=p2")
    assert known.refusal(whole._replace(method="cdi"), A) is None
    assert known.refusal(whole._replace(method="cdi"), B) == is_used("/dev/whole", f"{A}=p2")


def test_a_part_of_a_whole_device_that_is_given_is_refused() -> None:
    known = claims(resource(A, device("w", "/dev/whole")))
    assert known.refusal(candidate("p", "/dev/p", method="cdi", part_of=("/dev/whole",)), A) == is_used(
        "/dev/whole", f"{A}=w"
    )


def test_a_declared_part_stays_the_owner_of_its_whole() -> None:
    declared = device("declared")._replace(cdi_devices=("v.com/x=mig0:1",))
    known = claims(resource(A, declared), specs=specs(**{"mig0:1": ["/dev/nvidia0", "/dev/cap1"]}))
    part = candidate("p", "/dev/p", method="cdi", part_of=("/dev/nvidia0",))
    assert known.refusal(candidate("c", "/dev/cap1"), A) == is_used("/dev/cap1", f"{A}=declared")
    assert known.refusal(part, A) is None
    known.add(part, A)
    assert known.refusal(candidate("w", "/dev/nvidia0", method="cdi"), A) == is_used("/dev/nvidia0", f"{A}=declared")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_first_method_gets_what_two_methods_find(order: tuple[int, int]) -> None:
    found = [candidate("t0", "/dev/t"), candidate("usb-1", "/dev/t", method="usb")]
    result = assigned([resource(A)], {A: [found[each] for each in order]}, str, {}, NO_SPECS)
    assert [each.id for each in result[A].devices] == ["t0"]
    assert [(each.id, why) for each, why in result[A].left_out] == [("usb-1", is_used("/dev/t", f"{A}=t0"))]


def test_an_earlier_resource_comes_first_and_one_without_findings_is_missing() -> None:
    found = {B: [candidate("x", "/dev/x")], A: [candidate("b", "/dev/b"), candidate("a", "/dev/x")]}
    result = assigned([resource(A), resource("example.com/none"), resource(B)], found, str, {}, NO_SPECS)
    assert {name: [each.id for each in of_name.devices] for name, of_name in result.items()} == {A: ["a", "b"], B: []}


def test_devices_of_several_methods_are_in_natural_order() -> None:
    found = [candidate("b", "/dev/b"), candidate("a", "/dev/a", method="usb")]
    (result,) = assigned([resource(A)], {A: found}, str, {}, NO_SPECS).values()
    assert [each.id for each in result.devices] == ["a", "b"]


def test_an_id_goes_to_the_first_candidate_that_can_be_offered() -> None:
    found = [candidate("x", problem="is broken"), candidate("x", "/dev/1"), candidate("x", "/dev/2")]
    (result,) = assigned([resource(A)], {A: found}, str, {}, NO_SPECS).values()
    assert [each.id for each in result.devices] == ["x"]
    assert [why for _each, why in result.left_out] == ["found x already has this id", "is broken"]


@pytest.mark.parametrize(("limit", "offered"), [(None, ["a", "c"]), (2, ["a", "c"]), (1, ["a", "b", "c"])])
def test_two_devices_of_a_container_have_different_paths(limit: Any, offered: list[str]) -> None:
    """Such as two cameras whose path has only the serial number, which both lack."""

    def camera(device_id: str, inside: str) -> Candidate:
        host_path = f"/dev/{device_id}"
        nodes = (Node(inside, host_path, False), Node("/dev/control", "/dev/control", True))
        return candidate(device_id, host_path)._replace(nodes=nodes)

    found = {A: [camera("a", "/dev/camera"), camera("b", "/dev/camera"), camera("c", "/dev/c")]}
    (given,) = assigned([resource(A)._replace(container_limit=limit)], found, str, {}, NO_SPECS).values()
    assert [each.id for each in given.devices] == offered
    assert [why for _device, why in given.left_out] == [
        "found b matched, but a already has its path /dev/camera in a container: add another property to "
        "container_path, such as {name}, or set container_limit: 1"
    ] * (3 - len(offered))
