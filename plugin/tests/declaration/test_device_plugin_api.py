"""The ids of the kubelet's device list, and what they may mean."""

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.declaration.device_plugin_api import devices_behind, kubelet_id, kubelet_ids, shares_behind
from node_device_plugin.declaration.model import Share


@pytest.mark.parametrize("replicas", [1, 2, 11])
def test_an_id_of_the_list_means_the_share_that_it_was_made_of(replicas: int) -> None:
    raw = {"name": "a.b/c", "devices": [{"id": "a"}, {"id": "b:c"}], "env": {"DEV_{index}": "x"}}
    (resource,) = parse_resources([{**raw, "replicas": replicas}])
    for device in resource.devices:
        shares = resource.shares(device)
        assert len(shares) == replicas
        for share, listed in zip(shares, kubelet_ids(resource, device)):
            assert shares_behind(listed)[-1] == share
            # Each meaning has the same id.
            assert {kubelet_id(each) for each in shares_behind(listed)} == {listed}
            assert device.id in devices_behind(listed)


@pytest.mark.parametrize(
    ("listed", "shares"),
    [
        ("a", [("a", None)]),
        ("a::0", [("a::0", None), ("a", 0)]),
        ("a::10", [("a::10", None), ("a", 10)]),
        ("a::b::7", [("a::b::7", None), ("a::b", 7)]),
        ("a\n::1", [("a\n::1", None), ("a\n", 1)]),
        # No share has such a number.
        ("a::00", [("a::00", None)]),
        ("a::-1", [("a::-1", None)]),
        ("a::\u0663", [("a::\u0663", None)]),
        ("a::" + "9" * 5000, [("a::" + "9" * 5000, None)]),
        ("a::", [("a::", None)]),
        ("a::1\n", [("a::1\n", None)]),
        ("", [("", None)]),
    ],
)
def test_what_an_id_may_mean(listed: str, shares: list[tuple[str, object]]) -> None:
    assert list(shares_behind(listed)) == shares
    assert devices_behind(listed) == {device for device, _number in shares}


def test_a_resource_is_the_device_plugins_unless_it_says_otherwise() -> None:
    (resource,) = parse_resources([{"name": "a.b/c", "devices": [{"id": "a"}], "env": {"DEV": "x"}}])
    assert resource.api == "device_plugin"
    assert resource.shares(resource.devices[0]) == [Share("a")]
