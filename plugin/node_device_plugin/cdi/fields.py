"""The fields of a CDI spec. Runtimes read them strictly: an unknown field fails the whole file.

The source is the specification's SPEC.md (1.1.0) and its Go library (pkg/cdi, Validate of a spec and its edits).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..declaration import Problem
from .scalars import Plain, as_text


class Crash(Problem):
    """A problem for which containerd and its CDI library crash, instead of leaving the file out."""

    __slots__ = ()


class Field(NamedTuple):
    """One field. type: str, int (not negative), bool, map (of text), or dict (with the keys in ``fields``)."""

    type: str
    required: bool = False
    is_list: bool = False
    fields: Mapping[str, Field] | None = None
    choices: tuple[str, ...] = ()
    #: The largest number that the library's type holds.
    maximum: int = 2**63 - 1


#: The smallest number that no library before 1.1.1 reads as a key.
_TOO_LARGE = 2**63
_UINT32 = Field("int", maximum=2**32 - 1)


_INTEL_RDT = {
    "closID": Field("str"),
    "l3CacheSchema": Field("str"),
    "memBwSchema": Field("str"),
    "schemata": Field("str", is_list=True),
    "enableCMT": Field("bool"),
    "enableMBM": Field("bool"),
    "enableMonitoring": Field("bool"),
}
_DEVICE_NODE = {
    "path": Field("str", required=True),
    "hostPath": Field("str"),
    "type": Field("str", choices=("b", "c", "u", "p")),
    "major": Field("int"),
    "minor": Field("int"),
    "fileMode": _UINT32,
    "permissions": Field("str"),
    "uid": _UINT32,
    "gid": _UINT32,
}
_HOOK = {
    "hookName": Field(
        "str",
        required=True,
        choices=("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"),
    ),
    "path": Field("str", required=True),
    "args": Field("str", is_list=True),
    "env": Field("str", is_list=True),
    "timeout": Field("int"),
}
_MOUNT = {
    "hostPath": Field("str", required=True),
    "containerPath": Field("str", required=True),
    "options": Field("str", is_list=True),
    "type": Field("str"),
}
_NET_DEVICE = {"hostInterfaceName": Field("str", required=True), "name": Field("str", required=True)}
EDITS: dict[str, Field] = {
    "env": Field("str", is_list=True),
    "deviceNodes": Field("dict", is_list=True, fields=_DEVICE_NODE),
    "netDevices": Field("dict", is_list=True, fields=_NET_DEVICE),
    "hooks": Field("dict", is_list=True, fields=_HOOK),
    "mounts": Field("dict", is_list=True, fields=_MOUNT),
    "intelRdt": Field("dict", fields=_INTEL_RDT),
    "additionalGids": _UINT32._replace(is_list=True),
}
_DEVICE = {
    "name": Field("str", required=True),
    "annotations": Field("map"),
    "containerEdits": Field("dict", required=True, fields=EDITS),
}
SPEC: dict[str, Field] = {
    "cdiVersion": Field("str", required=True),
    "kind": Field("str", required=True),
    "annotations": Field("map"),
    "devices": Field("dict", required=True, is_list=True, fields=_DEVICE),
    "containerEdits": Field("dict", fields=EDITS),
}


def as_read(data: Any, fields: Mapping[str, Field], former: bool = False) -> Any:
    """``data`` as the library reads it: numbers and booleans as text in a text field (``name: 0``).

    former: as the library up to 1.1.0 reads it, and not as 1.1.1 does.
    """
    if not isinstance(data, dict):
        return _value(data)
    return {
        _text(key, former): _as_read(value, fields[key], former) if key in fields else value
        for key, value in data.items()
    }


def _as_read(value: Any, field: Field, former: bool) -> Any:
    if isinstance(value, list):
        return [_as_read(item, field, former) for item in value]
    if field.fields is not None:
        return as_read(value, field.fields, former)
    if field.type == "map" and isinstance(value, dict):
        texts = {_text(key, former): "" if item is None else _text(item, former) for key, item in value.items()}
        # Keys without quotes, such as 010 and 8, may become one key, or be too large. They stay, and are refused.
        is_large = any(isinstance(key, Plain) and key.value >= _TOO_LARGE for key in value)
        return texts if len(texts) == len(value) and not is_large else value
    return _text(value, former) if field.type == "str" else _value(value)


def _text(value: Any, former: bool) -> Any:
    if isinstance(value, Plain):
        return value.former if former else value.text
    return as_text(value)


def _value(value: Any) -> Any:
    return value.number if isinstance(value, Plain) else value


_TYPES: dict[str, Any] = {"str": str, "int": int, "bool": bool, "dict": dict, "map": dict}
_NAMES = {"str": "text", "int": "a number, 0 or more", "bool": "true or false", "dict": "a mapping", "map": "a mapping"}


def shape_problems(data: Any, fields: Mapping[str, Field], where: str) -> Iterator[Problem]:
    """Unknown and missing fields, and values of another type, below ``where`` (empty for the whole spec)."""
    if not isinstance(data, dict):
        yield Problem(where or "the file", "must be a mapping")
        return
    prefix = where + "." if where else ""
    for key in data:
        if key not in fields:
            yield Problem(
                prefix + _shown(key), "is not a field of CDI; known fields: {}".format(", ".join(sorted(fields)))
            )
    for key, field in fields.items():
        value = data.get(key)
        if value is None:
            if field.required:
                yield Problem(prefix + key, "is missing")
        elif field.type == "str" and type(value) is str and value and not field.choices and not field.is_list:
            # Most fields end here, which saves building a place name for each field of thousands of devices.
            continue
        elif not field.is_list:
            yield from _value_problems(value, field, prefix + key)
        elif not isinstance(value, list):
            yield Problem(prefix + key, "must be a list")
        else:
            for position, item in enumerate(value):
                place = "%s%s[%d]" % (prefix, key, position)
                if item is None and fields is EDITS and field.fields is not None:
                    yield Crash(place, "is null, which crashes containerd: remove the entry")
                    continue
                yield from _value_problems(item, field, place)


def _shown(key: Any) -> str:
    """The key if it looks like a field's name, or else its length, because the file may be a link to a secret."""
    text = str(key)
    return text if re.fullmatch(r"[\w.-]{1,64}", text) else "a key of %d characters" % len(text)


def _value_problems(value: Any, field: Field, where: str) -> Iterator[Problem]:
    is_bool = isinstance(value, bool) and field.type != "bool"
    if not isinstance(value, _TYPES[field.type]) or is_bool or (field.type == "int" and value < 0):
        # A list or mapping in the wrong place may have a secret, such as a variable.
        is_plain = field.type not in ("dict", "map") and not isinstance(value, (dict, list))
        yield Problem(where, f"must be {_NAMES[field.type]}" + (f", not {value!r}" if is_plain else ""))
    elif field.type == "int" and value > field.maximum:
        yield Problem(where, "must be at most %d, not %d" % (field.maximum, value))
    elif field.choices and value and value not in field.choices:
        yield Problem(where, "must be one of {}, not {!r}".format(", ".join(field.choices), value))
    elif field.required and value == "":
        yield Problem(where, "is empty")
    elif field.type == "map" and not all(isinstance(text, str) for pair in value.items() for text in pair):
        yield Problem(where, "must contain only text: write each key and value in quotes")
    elif field.fields is not None:
        yield from shape_problems(value, field.fields, where)
