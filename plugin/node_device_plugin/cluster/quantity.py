"""Compares Kubernetes quantities by value, because the API server writes 1000 as 1k."""

from __future__ import annotations

import re
from decimal import Decimal

_FORM = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]?))")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
# The API server's largest quantity has 19 digits.
_MOST_DIGITS = 40
_BINARY = {f"{letter}i": 2 ** (10 * (power + 1)) for power, letter in enumerate("KMGTPE")}


def number(text: object) -> Decimal | None:
    """The value of a quantity (format: apimachinery's resource.Quantity); None if the text is no quantity."""
    found = _FORM.fullmatch(str(text))
    if not found:
        return None
    digits, exponent, suffix = found.groups()
    try:
        value = Decimal(digits + (exponent or ""))
        value = value * _BINARY[suffix] if suffix in _BINARY else value.scaleb(_DECIMAL[suffix or ""])
    except ArithmeticError:
        return None
    # A kubelet writes quantities, too. 1e999999999 as an integer would need 400 MiB.
    return value if value.adjusted() < _MOST_DIGITS else None


def whole(text: object) -> int | None:
    """The value of a quantity as an integer; None if the text is no quantity."""
    value = number(text)
    return None if value is None else int(value)


def same(one: object, other: object) -> bool:
    """Whether two quantities are equal (None: the key is missing)."""
    if one is None or other is None:
        return one is other
    return number(one) == number(other)
