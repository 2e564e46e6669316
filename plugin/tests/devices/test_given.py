"""When two meanings of an id are one device, and whether an allocation of a moment ago is a share."""

import pytest

from node_device_plugin.declaration import Device, Resource
from node_device_plugin.declaration.model import ContainerEdits, Share
from node_device_plugin.devices.given import ADMITTED, Given, Now, Offer, State, Verdict
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

    def judge(name: str, replicas: int) -> tuple[Resource, dict[tuple[str, str], Verdict]]:
        device = Device("a", (), ContainerEdits(), {}, required=True)
        resource = Resource(name, name, (device,), {}, ContainerEdits(), replicas)
        offers = {(name, "a"): Offer("the device", (), is_share=replicas > 1)}
        return resource, given.judge([resource], offers, offers, Now({}))

    old, verdicts = judge("example.com/old", before)
    assert verdicts == {}
    given.allocated(old, [(Share("a", 0),)])
    _new, verdicts = judge("example.com/new", after)
    held = Verdict(State.HELD, f"held by {ADMITTED} as example.com/old")
    assert verdicts == ({("example.com/new", "a"): held} if is_held else {})
