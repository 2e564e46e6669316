"""What a kubelet keeps of a resource whose plugin was taken off the node."""

from pathlib import Path

from kubelet_stand_in import StandInKubelet
from kubelet_stand_in.device_manager import GRACE_PERIOD

from .in_process import NAME, registration, resource


async def test_the_kubelet_forgets_a_resource_that_was_taken_off(short_path: Path) -> None:
    """Complaint 12: a zero-capacity resource stays on the node after an uninstall.

    By itself the kubelet forgets it after its grace period, also when it restarts meanwhile. What is left then is the
    Node object's, which only its API can fix: docs/troubleshooting.md.
    """
    directory, now = str(short_path / "dp"), [0.0]
    async with StandInKubelet(directory, clock=lambda: now[0]) as kubelet:
        async with registration(directory, resource()):
            await kubelet.registered(NAME)
            assert kubelet.capacity().capacity == {NAME: 2}
        await kubelet.disconnected(NAME)
        now[0] = GRACE_PERIOD
        # Nobody gets one at once; that there were some is known for as long as the plugin may come back.
        assert (kubelet.capacity().capacity, kubelet.capacity().allocatable) == ({NAME: 2}, {NAME: 0})
        await kubelet.restart()
        assert (kubelet.capacity().capacity, kubelet.capacity().allocatable) == ({NAME: 0}, {NAME: 0})
        now[0] += GRACE_PERIOD + 1
        # Said to the Node object once, as a zero.
        removed: list[list[str]] = [kubelet.capacity().removed for _ in range(2)]
        assert removed == [[NAME], []]
        await kubelet.restart()
        assert kubelet.capacity() == ({}, {}, [])
        assert kubelet.checkpoint().registered == {}
