"""The JSON Schema that editors use: it takes what the repository declares, and refuses a wrong key, type or choice."""

from __future__ import annotations

import json
import os
import re

import jsonschema
import pytest
import the_project as project
import yaml
from documented_blocks import PAGES, ROOT, blocks, text_of

from node_device_plugin.cli import main as command_line

EXAMPLE = """
node_devices_resources_serial:
  - name: devices.example.com/serial
    replicas: 2
    devices:
      - {id: ttyS0, nodes: [{path: /dev/ttyS0, type: c}], required: false}
    attributes: {cold: true, slot: 3, colour: red, firmware: {version: "1.2.3"}}
  - {name: devices.example.com/licence, capacity: 4}
node_devices_settings: {log_level: debug}
another_variable: 1
"""


@pytest.fixture
def validator(capsys):
    def of(what):
        assert command_line.main(["schema", "--of", what]) == 0
        schema = json.loads(capsys.readouterr().out)
        jsonschema.Draft202012Validator.check_schema(schema)
        return jsonschema.Draft202012Validator(schema)

    return of


def test_what_the_repository_declares_is_valid(validator):
    known, declared = validator("variables"), 0
    texts = {
        path: (ROOT / path).read_text() for path in project.tracked() if "_vars/" in path and path.endswith(".yml")
    }
    for page in PAGES:
        texts |= {f"{page}:{block.line}": block.text for block in blocks(text_of(page)) if block.language == "yaml"}
    for name, text in texts.items():
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict):
                declared += any(key.startswith("node_devices_resources") for key in document)
                assert list(known.iter_errors(document)) == [], name
    assert declared >= 30


def test_a_configuration_is_valid(validator):
    samples = list((ROOT / "tests/unit/project/samples/nodes").glob("*.yaml"))
    assert samples
    for path in samples:
        validator("configuration").validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("replicas: 2", "replica: 2", "'replica' was unexpected"),
        ("replicas: 2", "replicas: 0", "0 is less than the minimum of 1"),
        ("replicas: 2", "replicas: many", "does not match"),
        ("nodes: [{path: /dev/ttyS0, type: c}]", "nodes: {path: /dev/ttyS0}", "is not of type 'array'"),
        ("type: c", "type: d", "is not valid under any of the given schemas"),
        ("required: false", "required: 0", "is not of type 'boolean'"),
        ("name: devices.example.com/serial", "cdi_kind: example.com/x", "'name' is a required property"),
        ("cold: true", "cold: [true]", "is not of type"),
        ("{version:", "{major: 1, version:", "'major' was unexpected"),
        ("capacity: 4", "capacity: 4, replicas: 2", "'replicas' is not one of ['name', 'capacity']"),
        ("log_level: debug", "log_levle: debug", "'log_levle' was unexpected"),
        ("log_level: debug", "resources: []", "'resources' was unexpected"),
    ],
)
def test_what_is_wrong_is_found(validator, right, wrong, says):
    known = validator("variables")
    assert list(known.iter_errors(yaml.safe_load(EXAMPLE))) == []
    assert EXAMPLE.count(right) == 1
    (error,) = known.iter_errors(yaml.safe_load(EXAMPLE.replace(right, wrong)))
    assert says in error.message


def test_an_expression_stands_for_any_value_of_an_inventory_alone(validator):
    edits = (
        ("replicas: 2", 'replicas: "{{ n }}"'),
        ("type: c", 'type: "{% if a %}c{% endif %}"'),
        ("4}", '"{{ n }}"}'),
    )
    text = EXAMPLE
    for right, expression in edits:
        text = text.replace(right, expression)
    validator("variables").validate(yaml.safe_load(text))
    configuration = {"resources": [{"name": "example.com/dev", "replicas": "{{ n }}"}]}
    assert not validator("configuration").is_valid(configuration)


def test_an_editor_shows_descriptions_and_defaults(validator):
    settings = validator("variables").schema["properties"]["node_devices_settings"]["properties"]
    assert settings["log_level"]["default"] == "info"
    assert settings["log_level"]["description"] == "Lowest level of log messages."


def test_the_page_puts_the_schema_outside_of_the_inventory():
    """Ansible reads every file in an inventory's directory as a part of the inventory."""
    (found,) = re.findall(r"^# (\S+)\n# yaml-language-server: \$schema=(\S+)$", text_of("docs/declaration.md"), re.M)
    file, path = found
    assert os.path.normpath(os.path.join(os.path.dirname(file), path)) == "inventories/node-devices.schema.json"
