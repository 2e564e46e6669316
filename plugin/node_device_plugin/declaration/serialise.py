"""Turns a declaration into plain data: the canonical form for configurations and comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import schema
from .model import DEVICE_PLUGIN, AttributeValue, Configuration, Resource, Version


def resources_to_data(resources: Sequence[Resource]) -> list[dict[str, Any]]:
    """Resources in the declaration's keys, without defaults. Parsing them gives equal resources."""
    return [_plain(resource._asdict(), schema.RESOURCE, resource.name) for resource in resources]


def configuration_to_data(configuration: Configuration) -> dict[str, Any]:
    """The content of a configuration file, without defaults."""
    settings = {key: schema.CONFIGURATION[key] for key in configuration._fields if key != "resources"}
    resources = resources_to_data(configuration.resources)
    return {**_plain(configuration._asdict(), settings, ""), "resources": resources}


def _plain(item: Mapping[str, Any], fields: Mapping[str, schema.Field], resource_name: str) -> dict[str, Any]:
    result = {}
    for key, field in fields.items():
        value = item[field.attribute or key]
        # Each resource has its api, so that the configuration needs no default for it.
        if (key == "cdi_kind" and value == resource_name) or (key == "api" and value == DEVICE_PLUGIN):
            continue
        if key == "host_path" and "path" in fields and value == item["path"]:
            continue
        if key == "mode" and value is not None:
            value = f"{value:04o}"
        if field.fields is not None and field.type == "dict":
            # A selector without a kind is false: the declaration omits the key.
            value = value and _plain(value._asdict(), field.fields, resource_name)
            if not value:
                continue
        elif field.fields is not None:
            value = [_plain(element._asdict(), field.fields, resource_name) for element in value]
        elif field.type == "list":
            value = list(value)
        elif field.type == "dict":
            value = {name: _plain_value(each) for name, each in value.items()}
        # The key devices is always present, because an empty list means that the node has no devices.
        if value != field.default or (field.required or key == "devices"):
            result[key] = value
    return result


def _plain_value(value: AttributeValue) -> bool | int | str | dict[str, str]:
    return {"version": value.text} if isinstance(value, Version) else value
