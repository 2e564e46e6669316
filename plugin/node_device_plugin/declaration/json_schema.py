"""The schema as JSON Schema (draft 2020-12), with which editors check and complete a file.

A JSON Schema knows types, keys, choices and limits. Rules that need code stay with the command ``validate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import schema
from .variables import EXPRESSIONS, PREFIX, SETTINGS

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {
    "str": ["string"],
    "int": ["integer"],
    "raw": ["integer", "string"],
    "bool": ["boolean"],
    "list": ["array"],
    "dict": ["object"],
    "attribute": ["boolean", "integer", "string", "object"],
}
#: Text that Ansible evaluates; it may stand for a value of any type.
_EXPRESSION = "|".join(begin.replace("{", r"\{") for begin in EXPRESSIONS)


def configuration() -> dict[str, Any]:
    """The schema of the plugin's configuration file."""
    return {"$schema": _DRAFT, "title": "Configuration of node-device-plugin", **mapping(schema.CONFIGURATION)}


def mapping(fields: Mapping[str, schema.Field]) -> dict[str, Any]:
    """The schema of a mapping with these keys."""
    return _value(schema.Field("dict", "", fields=fields, required=True), expressions=False)


def variables() -> dict[str, Any]:
    """The schema of a file with an inventory's variables; it knows nothing of the variables of others."""
    resources = schema.CONFIGURATION["resources"]
    declared = resources._replace(fields=schema.DECLARED_RESOURCE)
    of_declared = _value(declared, expressions=True)
    # Another key beside a capacity is an error.
    of_declared["items"] |= {
        "if": {"required": ["capacity"]},
        "then": {"propertyNames": {"enum": list(schema.STATIC_RESOURCE)}},
    }
    return {
        "$schema": _DRAFT,
        "title": "Variables of an inventory for node-devices",
        "type": "object",
        "patternProperties": {f"^{PREFIX}": {"description": declared.description, **of_declared}},
        "properties": {
            SETTINGS: {
                "description": "The plugin's settings, without its resources.",
                **_value(schema.Field("dict", "", fields=schema.SETTINGS), expressions=True),
            }
        },
    }


def _value(field: schema.Field, expressions: bool) -> dict[str, Any]:
    """The schema of a value. expressions: whether Ansible evaluates the file before the plugin reads it."""
    types = [*_TYPES[field.type]]
    known: dict[str, Any] = {}
    if not field.required:
        # The plugin takes nothing as a missing key.
        types.append("null")
    if field.type == "list":
        element = field._replace(type=field.elements or "str", required=True)
        known["items"] = _value(element, expressions)
    elif field.type == "dict" and field.fields is not None:
        known |= _keys(field.fields, expressions)
        if field.shorthand is not None:
            types.append("string")
    elif field.type == "dict":
        known["additionalProperties"] = _value(schema.Field(field.elements or "str", "", required=True), expressions)
    elif field.type == "attribute":
        known |= _keys(schema.VERSION, expressions)
    else:
        known |= _limits(field, expressions)
    if expressions and "string" not in types:
        types.append("string")
        known["pattern"] = _EXPRESSION
    return {"type": types[0] if len(types) == 1 else types, **known}


def _keys(fields: Mapping[str, schema.Field], expressions: bool) -> dict[str, Any]:
    properties = {}
    for name, field in fields.items():
        properties[name] = {"description": field.description, **_value(field, expressions)}
        if field.default not in (None, [], {}):
            properties[name]["default"] = field.default
    required = [name for name, field in fields.items() if field.required]
    return {"properties": properties, **({"required": required} if required else {}), "additionalProperties": False}


def _limits(field: schema.Field, expressions: bool) -> dict[str, Any]:
    limits = {"minimum": field.minimum, "maximum": field.maximum}
    known: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    if field.choices is not None:
        choices = {"enum": [*field.choices, *([] if field.required else [None])]}
        known |= {"anyOf": [choices, {"type": "string", "pattern": _EXPRESSION}]} if expressions else choices
    return known
