"""The API server's own schemas of the kinds that we apply, reduced to what validation needs.

`schemas.json` beside this file has them: what /openapi/v3 of kube-apiserver 1.36.2 said, without descriptions, and with
objects closed, as strict field validation closes them. A test holds the file to a real API server of that version; to
write it again, where KUBERNETES_BIN_DIR has one: WRITE_SCHEMAS=1 pytest tests/kubernetes/test_schemas.py
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import jsonschema

FILE = pathlib.Path(__file__).with_name("schemas.json")
VERSION = "v1.37.2"
#: Kind to where the server describes it.
KINDS = {"Namespace": "api/v1", "ConfigMap": "api/v1", "DaemonSet": "apis/apps/v1"}
_KEPT = ("type", "required", "enum", "format", "items", "additionalProperties", "x-kubernetes-int-or-string", "oneOf")


def extract(ask: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """The schemas, out of an API server. ask: gives what it answers to a path."""
    wanted: dict[str, Any] = {}
    for kind, group in KINDS.items():
        schemas = ask(f"/openapi/v3/{group}")["components"]["schemas"]
        version = group.rpartition("/")[2]
        (name,) = (
            name
            for name, schema in schemas.items()
            if {"group": "apps" if "apps" in group else "", "kind": kind, "version": version}
            in schema.get("x-kubernetes-group-version-kind", ())
        )
        wanted[kind] = {"$ref": f"#/definitions/{name}"}
        _gather(name, schemas, wanted.setdefault("definitions", {}))
    return wanted


def _gather(name: str, schemas: dict[str, Any], into: dict[str, Any]) -> None:
    """A schema and all that it names. What only a server writes is left out."""
    if name in into:
        return
    schema = schemas[name]
    into[name] = {}
    into[name] = _reduced(schema, schemas, into)


def _reduced(schema: dict[str, Any], schemas: dict[str, Any], into: dict[str, Any]) -> dict[str, Any]:
    if "allOf" in schema:
        (schema,) = schema["allOf"]
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        _gather(name, schemas, into)
        return {"$ref": f"#/definitions/{name}"}
    result = {key: schema[key] for key in _KEPT if key in schema}
    for key in ("items", "additionalProperties"):
        if isinstance(result.get(key), dict):
            result[key] = _reduced(result[key], schemas, into)
    if "oneOf" in result:
        result["oneOf"] = [_reduced(each, schemas, into) for each in result["oneOf"]]
    if "properties" in schema:
        result["properties"] = {
            key: _reduced(value, schemas, into)
            for key, value in sorted(schema["properties"].items())
            if key not in ("status", "managedFields")
        }
        result["additionalProperties"] = False
    return result


def write(schemas: dict[str, Any]) -> None:
    """The file, a line for each schema."""
    lines = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in sorted(schemas["definitions"].items())]
    kinds = "".join(f"{json.dumps(kind)}: {json.dumps(schemas[kind])},\n" for kind in KINDS)
    FILE.write_text("{\n" + kinds + '"definitions": {\n' + ",\n".join(lines) + "\n}\n}\n")


def problems(content: dict[str, Any]) -> list[str]:
    """What the schema of its kind finds wrong with an object, each with its place."""
    schemas = json.loads(FILE.read_text())
    validator = jsonschema.Draft202012Validator({**schemas[content["kind"]], "definitions": schemas["definitions"]})
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(content)]
