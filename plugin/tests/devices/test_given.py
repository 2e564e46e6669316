"""When two meanings of an id are one device, and whether an allocation of a moment ago is a share."""

from collections.abc import Mapping

import pytest

from node_device_plugin.declaration import Device, Resource, parse_resources
from node_device_plugin.declaration.model import ContainerEdits
from node_device_plugin.devices.given import ADMITTED, IN_DOUBT, Given, Judgement, Now, Offer, SpecNames
from node_device_plugin.devices.identity import Identity
from node_device_plugin.kubelet.device_plugin.ids import ListedId


def is_same(given: Identity, *now: Identity) -> bool:
    return Now({each.path: each for each in now}).are_same(Offer("", (given,)), Offer("", now[:1]))


def test_a_name_that_sysfs_did_not_have_yet_makes_no_other_device() -> None:
    """The kernel makes the node of a mapped disk before its dm/uuid (drivers/md/dm.c, dm_setup_md_queue)."""
    early = Identity("/dev/dm-3", "block/253:3")
    named = early._replace(serial="disk LVM-abc")
    assert is_same(early, named)
    assert not is_same(named, named._replace(serial="disk LVM-def"))
    assert not is_same(early, named._replace(number="block/253:4"))
    # By its number, a device without hardware may have another path.
    assert is_same(early, early._replace(path="/dev/dm-name"))


@pytest.mark.parametrize(("before", "after", "is_held"), [(2, 2, False), (2, 1, True), (1, 2, True), (1, 1, True)])
def test_a_device_that_was_allocated_a_moment_ago_stays_shared_if_it_was(
    before: int, after: int, is_held: bool
) -> None:
    given = Given()

    def judge(name: str, replicas: int) -> tuple[Resource, Mapping[str, str]]:
        device = Device("a", (), ContainerEdits(), {}, required=True, identity="the device")
        resource = Resource(name, name, (device,), {}, ContainerEdits(), replicas)
        return resource, given.judge([resource], {(name, "a")}, Now({})).reasons[name]

    old, reasons = judge("example.com/old", before)
    assert reasons == {}
    given.allocated(old, [ListedId("a::0")])
    _new, reasons = judge("example.com/new", after)
    assert reasons == ({"a": f"held by {ADMITTED} as example.com/old"} if is_held else {})


def test_the_spec_of_a_held_device_follows_although_its_own_id_is_in_doubt() -> None:
    """No container gets the device by this id, so its spec may already say what the id means now."""
    given, new, old = Given(), "example.com/new", "example.com/old"
    at = {f"/dev/{name}": Identity(f"/dev/{name}", f"char/1:{number}") for number, name in enumerate("xyz")}

    def judge(*devices: tuple[str, str, str]) -> Judgement:
        declared = [{"name": name, "devices": [{"id": key, "nodes": [{"path": path}]}]} for name, key, path in devices]
        return given.judge(parse_resources(declared), {(name, key) for name, key, _path in devices}, Now(at))

    b = (old, "b", "/dev/y")
    (former,) = parse_resources([{"name": old, "devices": [{"id": "b", "nodes": [{"path": "/dev/y"}]}]}])
    assert judge((new, "a", "/dev/x"), b) == Judgement({new: {}, old: {}}, SpecNames())
    assert judge((new, "a", "/dev/z"), b) == Judgement(
        {new: {"a": IN_DOUBT}, old: {}}, SpecNames(frozenset([f"{new}=a"]))
    )
    given.allocated(former, [ListedId("b")])
    held = judge((new, "a", "/dev/y"))
    assert held == Judgement({new: {"a": f"held by {ADMITTED} as {old}"}}, SpecNames(frozenset([f"{old}=b"])))
