"""The policies behind GetPreferredAllocation, as tables."""

import random
from typing import Any, Optional

import pytest

from node_device_plugin.declaration import Resource, parse_resources
from node_device_plugin.declaration.device_plugin_api import kubelet_ids
from node_device_plugin.kubelet.device_plugin.preference import preferred


def resource(preference: str, replicas: int = 1, **numa_nodes: Optional[int]) -> Resource:
    devices: list[dict[str, Any]] = [{"id": name, "numa_node": node} for name, node in numa_nodes.items()]
    keys = {"replicas": replicas, "preference": preference, "env": {"DEV_{index}": "{id}"}}
    (made,) = parse_resources([{"name": "example.com/dev", "devices": devices, **keys}])
    return made


SHARED = {"a": None, "b": None, "c": None}
#: Free shares: all of a and c, one of b.
PARTLY = ["a::0", "a::1", "a::2", "b::2", "c::0", "c::1", "c::2"]


@pytest.mark.parametrize(
    ("preference", "must", "size", "expected"),
    [
        ("packed", [], 1, ["b::2"]),
        ("packed", [], 3, ["a::0", "a::1", "b::2"]),
        ("packed", ["c::1"], 2, ["c::0", "c::1"]),
        ("distributed", [], 1, ["a::0"]),
        ("distributed", [], 2, ["a::0", "c::0"]),
        ("distributed", [], 3, ["a::0", "b::2", "c::0"]),
        ("distributed", [], 5, ["a::0", "a::1", "b::2", "c::0", "c::1"]),
        ("distributed", ["a::2"], 2, ["a::2", "c::0"]),
        ("packed", ["a::0", "c::0"], 2, ["a::0", "c::0"]),
        ("packed", [], 99, PARTLY),
    ],
)
def test_shares(preference: str, must: list[str], size: int, expected: list[str]) -> None:
    asked = resource(preference, replicas=3, **SHARED)
    for seed in range(5):
        available = random.Random(seed).sample(PARTLY, len(PARTLY))
        assert preferred(asked, available, must, size) == expected


NODES = {"a": 0, "b": 1, "c": 0, "d": 1, "e": 1, "f": None}


@pytest.mark.parametrize(
    ("available", "must", "size", "expected"),
    [
        # One NUMA node has enough; the tightest one is taken.
        ("abcdef", "", 2, "ac"),
        ("abcdef", "", 3, "bde"),
        # None has enough: the one with the most first, then as few others as possible.
        ("abcdef", "", 4, "abde"),
        ("abcdef", "", 6, "abcdef"),
        # What must be included decides.
        ("abcdef", "d", 2, "bd"),
        ("abcdef", "a", 3, "abc"),
        # A device of an unknown place only where nothing else is left.
        ("af", "", 1, "a"),
        ("f", "", 1, "f"),
        ("", "", 1, ""),
    ],
)
def test_numa(available: str, must: str, size: int, expected: str) -> None:
    assert preferred(resource("numa", **NODES), available, must, size) == list(expected)


def test_ids_of_others_are_passed_over() -> None:
    assert preferred(resource("packed", **SHARED), ["x", "b"], [], 2) == ["b"]


@pytest.mark.parametrize("preference", ["packed", "distributed", "numa"])
def test_whatever_is_asked_for_it_is_as_much_as_there_is_and_what_must_be(preference: str) -> None:
    asked = resource(preference, replicas=3, **NODES)
    every = [kubelet_id for device in asked.devices for kubelet_id in kubelet_ids(asked, device)]
    chance = random.Random(preference)
    for _ in range(300):
        available = chance.sample(every, chance.randrange(len(every) + 1))
        must = chance.sample(available, chance.randrange(len(available) + 1))
        size = chance.randrange(-2, len(every) + 3)
        given = preferred(asked, available, must, size)
        assert set(must) <= set(given) <= set(available)
        assert len(given) == len(set(given)) == max(len(must), min(size, len(available)))
        assert given == sorted(given, key=every.index)
