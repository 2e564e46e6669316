"""Quantities as Kubernetes writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from node_device_plugin.cluster import quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4", 4),
        ("0", 0),
        ("23k", 23000),
        ("1500m", Decimal("1.5")),
        ("2M", 2000000),
        ("9223372036854775807", 2**63 - 1),
        ("1Ki", 1024),
        ("2Ei", 2 * 2**60),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        (7, 7),
        ("x", None),
        ("", None),
        ("1.2.3", None),
        # Valid for Decimal, but more than it calculates with.
        ("1e9999999", None),
    ],
)
def test_values(text, number):
    assert quantity.number(text) == number


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("1k", "1000", True), ("4", "5", False), (None, None, True), (None, "0", False), ("4", None, False)],
)
def test_the_same(one, other, same):
    assert quantity.same(one, other) is same
