"""Scalars without quotes. tests/cdi_judge compares the same with two versions of the CDI library."""

from typing import Any

import pytest

from node_device_plugin.cdi.scalars import Plain, resolve


@pytest.mark.parametrize(
    "text", ["0000:03:00.0", "1:30", "2024-01-01", "d0", "=", "<<", "0o8", "0x", "1e400", "_1", "nan", "yEs"]
)
def test_text(text: str) -> None:
    assert resolve(text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-5", -5), ("432", 432), ("true", True), ("false", False), ("~", None), ("", None), ("Null", None)],
)
def test_what_all_libraries_write_alike(text: str, value: Any) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "former", "number"),
    [
        ("010", "8", 8),
        ("08", "8", 8),
        ("0660", "432", 432),
        ("0o17", "15", 15),
        ("0x1F", "31", 31),
        ("-0b11", "-3", -3),
        ("0b+1", "1", 1),
        ("1_0", "10", 10),
        ("-0", "0", 0),
        ("+1", "1", 1),
        ("1.10", "1.1", 1.1),
        ("1e3", "1000", 1000),
        (".5", "0.5", 0.5),
        ("1.", "1", 1),
        ("-0.0", "-0", -0.0),
        ("9223372036854775808", "9223372036854775808", 2**63),
        ("+9223372036854775808", "9.223372e+18", 9.223372036854775808e18),
        ("99999999999999999999", "1e+20", 1e20),
        ("0.00001", "1e-05", 1e-05),
        ("123456.7", "123456.7", 123456.7),
        ("1234567.8", "1.2345678e+06", 1234567.8),
        ("1e39", "+Inf", 1e39),
        ("-.inf", "-Inf", float("-inf")),
        ("on", "true", True),
        ("N", "false", False),
        ("True", "true", True),
    ],
)
def test_numbers_and_booleans(text: str, former: str, number: Any) -> None:
    found = resolve(text)
    assert isinstance(found, Plain)
    assert (found.text, found.former, repr(found.number)) == (text, former, repr(number))


def test_not_a_number() -> None:
    found = resolve(".nan")
    assert isinstance(found, Plain)
    assert found.former == "NaN"
