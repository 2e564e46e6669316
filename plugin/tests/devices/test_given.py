"""When two meanings of an id are one device."""

from node_device_plugin.devices.given import Now, Offer
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
