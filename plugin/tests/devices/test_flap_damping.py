"""A loss shows at once; only the recovery of a device that flaps is delayed."""

from typing import Optional

from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.flap_damping import UNSTEADY
from node_device_plugin.devices.table import DeviceTable

(RESOURCE,) = parse_resources([{"name": "example.com/dev", "devices": [{"id": "d0"}], "env": {"DEV": "x"}}])
LOST = "/dev/d0: gone"


class Clock:
    """Seconds that pass when the test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def shown(table: DeviceTable, reason: Optional[str]) -> Optional[str]:
    checked: dict[str, Optional[str]] = {"d0": reason}
    table.update(checked)
    return table.reason(RESOURCE.devices[0])


async def test_the_first_recovery_counts_at_once_and_the_next_ones_when_it_is_steady() -> None:
    clock = Clock()
    table = DeviceTable(RESOURCE, recovery_delay=10, clock=clock)
    assert shown(table, None) is None
    assert shown(table, LOST) == LOST
    assert shown(table, None) is None
    clock.now += 9
    assert shown(table, LOST) == LOST
    assert shown(table, None) == UNSTEADY
    clock.now += 9
    assert shown(table, None) == UNSTEADY
    # Lost meanwhile: it has to be fine for the whole time.
    assert shown(table, LOST) == LOST
    assert shown(table, None) == UNSTEADY
    clock.now += 10
    assert shown(table, None) is None


async def test_a_device_that_is_lost_rarely_does_not_flap() -> None:
    clock = Clock()
    table = DeviceTable(RESOURCE, recovery_delay=10, clock=clock)
    for _ in range(5):
        assert shown(table, None) is None
        clock.now += 11
        assert shown(table, LOST) == LOST


async def test_without_a_delay_every_recovery_counts_at_once() -> None:
    table = DeviceTable(RESOURCE, clock=Clock())
    for _ in range(5):
        assert shown(table, LOST) == LOST
        assert shown(table, None) is None


async def test_waiting_is_news_once() -> None:
    clock = Clock()
    table = DeviceTable(RESOURCE, recovery_delay=10, clock=clock)
    for reason in (None, LOST, None, LOST):
        shown(table, reason)
    assert [reason for _, reason in table.update({"d0": None})] == [UNSTEADY]
    clock.now += 5
    assert table.update({"d0": None}) == []
