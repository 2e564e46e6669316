"""The ids of the kubelet's device list, and what they may mean."""

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.declaration.device_plugin_api import devices_behind, kubelet_ids
from node_device_plugin.kubelet.device_plugin.ids import ListedId, listed_ids


@pytest.mark.parametrize("replicas", [1, 2, 11])
def test_an_id_of_the_list_means_the_share_that_it_was_made_of(replicas: int) -> None:
    raw = {"name": "a.b/c", "devices": [{"id": "a"}, {"id": "b:c"}], "env": {"DEV_{index}": "x"}}
    (resource,) = parse_resources([{**raw, "replicas": replicas}])
    for device in resource.devices:
        listed = listed_ids(resource, device)
        assert listed == kubelet_ids(resource, device)
        assert len(set(listed)) == replicas
        assert (listed == [device.id]) is (replicas == 1)
        for each in listed:
            assert each.device_ids[-1] == device.id
            assert each.is_of(resource, device)
            assert not each.is_of(resource._replace(replicas=replicas + 1), device) or replicas > 1
            others = [other for other in resource.devices if other != device]
            assert not any(each.is_of(resource, other) for other in others)
        # A container may hold a share that is in the list no longer, and then it holds no device of the list.
        assert not ListedId(f"{device.id}::{replicas}").is_of(resource, device)


@pytest.mark.parametrize(
    ("listed", "devices"),
    [
        ("a", ["a"]),
        ("a::0", ["a::0", "a"]),
        ("a::10", ["a::10", "a"]),
        ("a::b::7", ["a::b::7", "a::b"]),
        ("a\n::1", ["a\n::1", "a\n"]),
        # No share has such a number.
        ("a::00", ["a::00"]),
        ("a::-1", ["a::-1"]),
        ("a::\u0663", ["a::\u0663"]),
        ("a::" + "9" * 5000, ["a::" + "9" * 5000]),
        ("a::", ["a::"]),
        ("a::1\n", ["a::1\n"]),
        ("", [""]),
    ],
)
def test_what_an_id_may_mean(listed: str, devices: list[str]) -> None:
    assert list(devices_behind(listed)) == devices


def test_a_resource_is_the_device_plugins_unless_it_says_otherwise() -> None:
    (resource,) = parse_resources([{"name": "a.b/c", "devices": [{"id": "a"}], "env": {"DEV": "x"}}])
    assert resource.api == "device_plugin"
