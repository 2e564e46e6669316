"""What the metrics count of claims and slices."""

from __future__ import annotations

from node_device_plugin.telemetry import metrics

from .fake_api import FakeApi
from .node import CAMERA, Kubelet, Node, asked, claim, resource, result, until


def counted() -> dict[str, int]:
    claims = {name: metrics.CLAIM_PREPARATIONS.value(name) for name in ("prepared", "failed")}
    return {
        **claims,
        **{"slices " + name: metrics.SLICE_WRITES.value(name) for name in ("written", "deleted", "failed")},
    }


async def test_claims_and_slices_are_counted(node: Node, cluster: FakeApi) -> None:
    before = counted()

    def since() -> dict[str, int]:
        return {name: count - before[name] for name, count in counted().items() if count != before[name]}

    for uid in ("u1", "u2"):
        cluster.claims[f"default/claim-{uid}"] = claim(uid, result("null"))
    refusals = [403]
    cluster.refuse = lambda method, _path: refusals.pop() if method == "POST" and refusals else None
    async with node.running(resource("null"), resource("zero", name="example.com/zero")) as plugin:

        def prepared() -> tuple[int | None, int | None]:
            return plugin.frontend.status(CAMERA).prepared, plugin.frontend.status("example.com/zero").prepared

        async with Kubelet(node.socket) as kubelet:
            await kubelet.register()
            await until(lambda: since() == {"slices written": 2, "slices failed": 1})
            await kubelet.prepared("u1")
            assert prepared() == (1, 0)
            assert "still prepared for claim default/claim-u1" in await kubelet.refused("u2")
            assert prepared() == (1, 0)
            await kubelet.unprepare(asked("u1"))
            assert prepared() == (0, 0)
            await plugin.apply(resource("null"))
            await until(lambda: "slices deleted" in since())
    assert since() == {"prepared": 1, "failed": 1, "slices written": 2, "slices failed": 1, "slices deleted": 1}


async def test_a_driver_that_starts_again_knows_what_is_prepared(node: Node, cluster: FakeApi) -> None:
    cluster.claims["default/claim-u1"] = claim("u1", result("null"))
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        await kubelet.prepared("u1")
    async with node.running(resource("null")) as plugin:
        assert plugin.frontend.status(CAMERA).prepared == 1
