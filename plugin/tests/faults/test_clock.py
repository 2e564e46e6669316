"""A clock that jumps. (The wall clock decides nothing in the plugin; gRPC turns a deadline into monotonic time.)"""

from node_device_plugin.devices.table import DeviceTable

from .in_process import resource

YEAR = 365 * 86400.0


async def test_a_loss_shows_at_once_whatever_the_clock_says() -> None:
    """The table's own clock is monotonic; even one that is not delays no loss, and no recovery for ever."""
    now = [1000.0]
    table = DeviceTable(resource(), recovery_delay=10.0, clock=lambda: now[0])
    table.update({"d0": None, "d1": None})
    for jump in (YEAR, -YEAR, -YEAR):
        now[0] += jump
        table.update({"d0": "gone", "d1": None})
        assert table.reason(table.resource.devices[0]) == "gone"
        for _ in range(30):
            now[0] += 10
            table.update({"d0": None, "d1": None})
        assert table.reason(table.resource.devices[0]) is None
