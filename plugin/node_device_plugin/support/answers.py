"""Checks the answer of a node before the controller uses it, and the answer of the plugin before a command uses it.

A node is trusted for what it reports about itself. Its answer is plain data of a known shape: never a variable, a
template, a control key of Ansible, or an object of Ansible's own types. A pod that mounts the device plugin directory
may answer in the plugin's place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

#: Largest answer of a module or of the plugin's command, in characters. The status of 50,000 devices has 25 million.
LONGEST = 64 << 20
#: Limits for texts that people read: the text of an error or a problem, and the number of warnings.
LONGEST_TEXT = 8000
LONGEST_PRINTED = 1 << 20
MOST_WARNINGS = 100
# More levels than any answer has. Ansible copies results recursively in its main process.
_DEEPEST = 40
# Numbers outside of this range overflow in conversions.
_LARGEST = 1 << 63
# Control characters, except tab and line breaks, and characters that change the direction of text.
_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL = re.compile(f"[{_CONTROLS}]")
# A carriage return overwrites the line on a terminal.
_UNREADABLE = re.compile(f"[\r{_CONTROLS}]")
_SURROGATE = re.compile("[\ud800-\udfff]")

#: Any plain data.
ANY = object()


class AnswerError(ValueError):
    """An answer does not have its shape. The message has the path of the key, the found and the expected type."""


class Null(NamedTuple):
    """The shape of a value that may be null."""

    shape: Any


class Matching(NamedTuple):
    """The shape of a text that matches a pattern. what: names the text in an error."""

    pattern: str
    what: str


class Within(NamedTuple):
    """The shape of a number in a range. kind: ``int`` or ``float``, as a shape."""

    least: int
    most: int
    kind: type = int


def shaped(shape: Any, value: Any, where: str = "") -> Any:
    """Return an answer as plain data of the shape. Raises AnswerError. where: path of the value in messages.

    A shape is a type (``str``, ``bool``, ``int``; ``float`` also accepts whole numbers), one of the classes above, ANY,
    a list or a dict. A list has the shape of the elements, and perhaps their largest number. A dict's key that ends in
    ``?`` may be missing. Keys that the dict does not name are removed, except with the key ``...``, whose shape they
    then have.
    """
    if shape is ANY:
        return plain(value, where)
    if isinstance(shape, Null):
        return None if value is None else shaped(shape.shape, value, where)
    if isinstance(shape, dict):
        return _mapping(shape, value, where)
    if isinstance(shape, list):
        _require(isinstance(value, (list, tuple)), value, "a list", where)
        if len(value) > (shape[1] if len(shape) > 1 else math.inf):
            raise AnswerError(f"{where} has {len(value)} elements, at most {shape[1]} are possible")
        return [shaped(shape[0], each, f"{where}[{position}]") for position, each in enumerate(value)]
    if isinstance(shape, Matching):
        text = shaped(str, value, where)
        if not re.fullmatch(shape.pattern, text):
            raise AnswerError(f"{where} is {text[:60]!r}, expected {shape.what}")
        return text
    if isinstance(shape, Within):
        number = shaped(shape.kind, value, where)
        if not shape.least <= number <= shape.most:
            raise AnswerError(f"{where} is {number}, expected a number from {shape.least} to {shape.most}")
        return number
    names = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}
    is_right = isinstance(value, (int, float) if shape is float else shape)
    # Python's true is a whole number, too.
    _require(is_right and (shape is bool or not isinstance(value, bool)), value, names[shape], where)
    return plain(value, where)


def _mapping(shape: Mapping[Any, Any], value: Any, where: str) -> dict[str, Any]:
    _require(isinstance(value, Mapping), value, "a mapping", where)
    found = {}
    for name, of_key in shape.items():
        if name is ...:
            continue
        key = name.removesuffix("?")
        path = f"{where}.{key}" if where else key
        if key in value:
            found[key] = shaped(of_key, value[key], path)
        elif key == name:
            raise AnswerError(f"{path} is missing")
    if ... in shape:
        others = {key: each for key, each in value.items() if key not in found and f"{key}?" not in shape}
        found.update({_key(key, where): shaped(shape[...], each, f"{where}.{key}") for key, each in others.items()})
    return found


def plain(value: Any, where: str = "", levels: int = _DEEPEST) -> Any:
    """Return data as plain types of JSON, without tags of Ansible. Raises AnswerError for any other type."""
    if not levels:
        raise AnswerError(f"{where} has more than {_DEEPEST} levels")
    if isinstance(value, Mapping):
        return {_key(key, where): plain(each, where, levels - 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each, where, levels - 1) for each in value]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        # A lone surrogate cannot be written to a file or a terminal.
        return _SURROGATE.sub("\ufffd", str.__str__(value))
    if isinstance(value, int):
        if abs(value) < _LARGEST:
            return int(value)
    elif isinstance(value, float):
        if math.isfinite(value):
            return float(value)
    else:
        raise AnswerError(f"{where} is {type(value).__name__}, expected plain data")
    raise AnswerError(f"{where} is a number out of range")


def readable(text: str, most: int = LONGEST_TEXT) -> str:
    """Return a text for people, without control characters for their terminal, and not longer than ``most``."""
    text = text if len(text) <= most else f"{text[:most]} … ({len(text) - most} more characters)"
    return _UNREADABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text.replace("\r\n", "\n"))


def legible(data: Any, most: int = LONGEST_PRINTED) -> Any:
    """Return plain data whose texts are `readable`."""
    if isinstance(data, Mapping):
        return {key: legible(each, most) for key, each in data.items()}
    if isinstance(data, list):
        return [legible(each, most) for each in data]
    return readable(data, most) if isinstance(data, str) else data


def without_controls(text: str) -> str:
    """Return the output of a module without control characters, which its JSON has only escaped."""
    return _CONTROL.sub("\ufffd", text)


def _require(is_right: bool, value: Any, expected: str, where: str) -> None:
    if not is_right:
        names = {dict: "a mapping", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
        named = [name for kind, name in names.items() if isinstance(value, kind)]
        found = named[0] if named else "a number" if isinstance(value, (int, float)) else type(value).__name__
        raise AnswerError(f"{where or 'it'} is {found}, expected {expected}")


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise AnswerError(f"{where} has the key {key!r}, expected texts as keys")
    return _SURROGATE.sub("\ufffd", str.__str__(key))
