"""Configurations by chance: never a traceback, and what is accepted makes sense."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from kubelet_stand_in.names import is_extended_resource
from node_device_plugin.cli.main import main
from node_device_plugin.declaration import (
    Configuration,
    DeclarationError,
    Problem,
    cdi,
    json_schema,
    parse_configuration,
    schema,
)
from node_device_plugin.declaration.configuration_file import load
from node_device_plugin.declaration.device_plugin_api import kubelet_ids
from node_device_plugin.declaration.model import Discovery
from node_device_plugin.declaration.names import cdi_device_problem, cdi_kind_problem
from node_device_plugin.declaration.serialise import configuration_to_data, resources_to_data

from ..devices.discovery.conftest import discover
from .strategies import BY_CHANCE, JUNK, PLAUSIBLE_CONFIGURATIONS, PLAUSIBLE_DISCOVERIES, WILD_CONFIGURATIONS

FUZZ = settings(BY_CHANCE, max_examples=200)


@FUZZ
@given(WILD_CONFIGURATIONS)
def test_anything_is_read_or_refused_with_the_place(raw: Any) -> None:
    try:
        make_sense(parse_configuration(raw))
    except DeclarationError as refused:
        problems = refused.problems
    else:
        return
    assert problems
    assert all(problem.where and problem.message for problem in problems)


def test_what_is_accepted_makes_sense() -> None:
    accepted: list[Configuration] = []

    @settings(FUZZ, max_examples=300)
    @given(PLAUSIBLE_CONFIGURATIONS)
    def read(raw: Any) -> None:
        try:
            configuration = parse_configuration(raw)
        except DeclarationError:
            return
        accepted.append(configuration)
        make_sense(configuration)

    wanted = {*schema.RESOURCE, "a method", "open", "command"}
    # A round may lack a key by chance; each has a seed of its own, and is the same each time.
    for number in range(12):
        if not wanted <= tried(accepted):
            seed(number)(read)()
    # Else the strategies have fallen behind the schema, and nothing was tested.
    assert wanted <= tried(accepted)
    specs = [cdi.render_specs(configuration.resources) for configuration in accepted]
    assert sum(map(bool, specs)) >= 20


def tried(accepted: list[Configuration]) -> set[str]:
    """What resources of configurations have that were accepted."""
    resources = [resource for configuration in accepted for resource in configuration.resources]
    keys = {key for data in resources_to_data(resources) for key in data}
    keys.update("a method" for resource in resources if resource.discover.methods)
    keys.update("open" for resource in resources if resource.health.open)
    keys.update("command" for resource in resources if resource.health.command)
    return keys


def test_what_may_be_looked_for_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("ttyA", "a", "b"):
        (tmp_path / "dev" / name).touch()
    accepted: list[Discovery] = []
    found: list[str] = []

    # The chance depends on the modules that other tests loaded.
    @settings(FUZZ, max_examples=400)
    @given(PLAUSIBLE_DISCOVERIES)
    def look(raw: Any) -> None:
        try:
            configuration = parse_configuration({"resources": [{"name": "example.com/dev", "discover": raw}]})
        except DeclarationError:
            return
        make_sense(configuration)
        (resource,) = configuration.resources
        accepted.append(resource.discover)
        discovered = discover([resource], str(tmp_path)).get(resource.name)
        devices = discovered.devices if discovered else ()
        assert not any(cdi_device_problem(device.id) for device in devices)
        found.extend(device.id for device in devices)

    look()
    assert {method for discover in accepted for method in discover.methods} == {
        *("paths", "usb", "pci", "vfio", "udev", "cdi")
    }
    assert any(discover.nodes for discover in accepted)
    assert "ttyA" in found


def make_sense(configuration: Configuration) -> None:
    """It survives being written and read, the kubelet would take its names, and its specs are CDI."""
    data = configuration_to_data(configuration)
    assert parse_configuration(data) == configuration
    assert parse_configuration(yaml.safe_load(yaml.safe_dump(data))) == configuration
    ids = [
        kubelet_id
        for resource in configuration.resources
        for device in resource.devices
        for kubelet_id in kubelet_ids(resource, device)
    ]
    assert len(set(ids)) == len(ids)
    assert all(is_extended_resource(resource.name) for resource in configuration.resources)
    for name, spec in cdi.render_specs(configuration.resources).items():
        assert "/" not in name
        assert name.endswith(".json")
        assert json.loads(cdi.serialise(spec)) == spec
        assert cdi_kind_problem(spec["kind"]) is None
        names = [device["name"] for device in spec["devices"]]
        assert names
        assert len(set(names)) == len(names)
        assert not any(cdi_device_problem(device) for device in names)
        # CDI refuses a device without edits.
        assert all(device["containerEdits"] for device in spec["devices"])
        assert cdi.refused_features(spec, spec["cdiVersion"]) == []


#: What a JSON Schema can say, too: keys, types, choices and limits.
IN_THE_SCHEMA = re.compile(
    "is not a known key|belongs to the role|is missing|is empty, but|must be (one of|(at least|at most) -?[0-9]+, not)"
    "|must be (text|a whole number|a number or a name|true or false|a list|a mapping), not"
)


@FUZZ
@given(PLAUSIBLE_CONFIGURATIONS | WILD_CONFIGURATIONS)
def test_an_editor_refuses_what_the_plugin_does(raw: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    problems: list[Problem] = []
    schema.normalise(raw, schema.Field("dict", "", fields=schema.CONFIGURATION), "", problems)
    refused = any(IN_THE_SCHEMA.match(problem.message) for problem in problems)
    assert refused != jsonschema.Draft202012Validator(json_schema.configuration()).is_valid(raw)
    if not refused:
        of_inventory = {"node_devices_resources_some": raw["resources"]}
        assert jsonschema.Draft202012Validator(json_schema.variables()).is_valid(of_inventory)


@FUZZ
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.yaml"
    path.write_bytes(content)
    with pytest.raises(DeclarationError):
        load(str(path))


@settings(FUZZ, max_examples=100)
@given(JUNK)
def test_the_command_says_what_is_wrong_and_never_how_it_failed(
    tmp_path_factory: pytest.TempPathFactory, raw: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.yaml"
    try:
        path.write_text(yaml.safe_dump({"resources": raw}))
    except UnicodeEncodeError:
        return
    assert main(["validate", "--config", str(path)]) in (0, 1)


def test_what_is_written_is_what_is_run(tmp_path: Path) -> None:
    """One device of everything, from the file to the file."""
    path = tmp_path / "config.yaml"
    raw = {"resources": [{"name": "example.com/dev", "devices": [{"id": "a", "nodes": [{"path": "/dev/null"}]}]}]}
    path.write_text(yaml.safe_dump(raw))
    assert configuration_to_data(load(str(path)).configuration) == raw
