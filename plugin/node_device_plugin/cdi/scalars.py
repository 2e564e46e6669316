"""Reads a scalar without quotes as the runtimes' CDI library does, of which there are two generations.

Up to 1.1.0 (containerd 1.7 to 2.3), the library resolves the scalar by YAML 1.1, and writes a number or boolean again
for a text field: ``010`` becomes 8. From 1.1.1 on (containerd 2.4), a text field gets the scalar as written. Both read
the same whole numbers for number fields. Source: resolve.go of go-yaml 2 and 3, and yaml.go of sigs.k8s.io/yaml.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Any, NamedTuple, Union

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_WORDS: dict[str, bool | float] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
#: A number that every library writes as it stands.
_SAME = re.compile(r"0|-?[1-9][0-9]{0,17}")
_WHOLE = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]{0,19}))")
_BASES = (16, 2, 8, 10)
#: Go-yaml reads a second sign, too.
_SIGNED_BINARY = re.compile(r"0b([-+][01]{1,63})")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
#: A number that begins with a point may have underscores only between digits.
_POINT = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?")
#: From here on, floats skip whole numbers.
_EXACT = 2**53


class Plain(NamedTuple):
    """A number or boolean without quotes. text: as written. value: by YAML 1.1."""

    text: str
    value: bool | int | float

    @property
    def former(self) -> str:
        """The text for a text field up to 1.1.0 of the library."""
        return _shortest(self.value) if isinstance(self.value, float) else str(as_text(self.value))

    @property
    def number(self) -> bool | int | float:
        """The value for a number field, where 1e3 is a whole number."""
        value = self.value
        # Up to 1.1.0, -0.0 is negative, and a fraction is an error; from 1.1.1 on, its whole part counts.
        is_whole = isinstance(value, float) and value.is_integer() and value < _EXACT and math.copysign(1, value) > 0
        return int(value) if is_whole else value


Scalar = Union[None, bool, int, str, Plain]


def as_text(value: Any) -> Any:
    """A whole number or boolean as libraries write it for a text field; another value as it is."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def resolve(text: str) -> Scalar:
    """The value of a scalar without quotes; no Plain if all libraries read and write it alike."""
    if _SAME.fullmatch(text):
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    if text in _NULLS:
        return None
    value = _WORDS[text] if text in _WORDS else _number(text)
    return text if value is None else Plain(text, value)


def _number(text: str) -> int | float | None:
    if text[0] == ".":
        return _finite(text.replace("_", "")) if _POINT.fullmatch(text) else None
    if text[0] not in "+-0123456789":
        return None
    text = text.replace("_", "")
    whole = _WHOLE.fullmatch(text)
    if whole:
        sign, *parts = whole.groups()
        number = next(int(sign + part, base) for base, part in zip(_BASES, parts) if part)
        if -(2**63) <= number < 2 ** (63 if sign else 64):
            return number
    signed = _SIGNED_BINARY.fullmatch(text)
    if signed:
        return int(signed[1], 2)
    return _finite(text) if _FLOAT.fullmatch(text) else None


def _finite(text: str) -> float | None:
    """The number; None if it is too large for a float, so that libraries read it as text."""
    value = float(text)
    return value if math.isfinite(value) else None


def _shortest(value: float) -> str:
    """The shortest text of the nearest 32-bit float: Go's FormatFloat(value, 'g', -1, 32)."""
    single = _single(value)
    if not math.isfinite(single):
        return "NaN" if math.isnan(single) else "+Inf" if single > 0 else "-Inf"
    digits = next(digits for digits in range(9) if _single(float("%.*e" % (digits, single))) == single)
    text = "%.*e" % (digits, single)
    exponent = int(text.partition("e")[2])
    return "%.*f" % (max(digits - exponent, 0), single) if -4 <= exponent < 6 else text


def _single(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)
