"""When two meanings of an id are one device, and whether an allocation of a moment ago is a share."""

from collections.abc import Mapping

import pytest

from node_device_plugin.declaration import Device, Resource
from node_device_plugin.declaration.model import ContainerEdits, Share
from node_device_plugin.devices.given import ADMITTED, Given, Now, Offer
from node_device_plugin.devices.identity import Identity


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
    given.allocated(old, [(Share("a", 0),)])
    _new, reasons = judge("example.com/new", after)
    assert reasons == ({"a": f"held by {ADMITTED} as example.com/old"} if is_held else {})
