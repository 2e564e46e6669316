"""What a proof asks for."""

from typing import Optional

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.node_state import Listing
from node_device_plugin.verification.verify import Scope, _judge

IDS = ("d0::0", "d0::1", "d0::2", "d0::3")


@pytest.mark.parametrize(
    ("limit", "devices", "shares"), [(None, "all", 4), (None, "one", 1), (2, "all", 2), (2, "one", 1), (9, "all", 4)]
)
def test_a_proof_asks_for_no_more_than_a_container_may_have(limit: Optional[int], devices: str, shares: int) -> None:
    (resource,) = parse_resources(
        [{"name": "example.com/dev", "devices": [{"id": "d0"}], "replicas": 4, "container_limit": limit}]
    )
    listing = Listing(frozenset({"example.com/dev"}), {"example.com/dev": IDS}, [])
    row, wanted = _judge(resource, list(IDS), listing, Scope(devices, False, None, 1.0))
    assert wanted == shares
    assert row.capacity == 4
