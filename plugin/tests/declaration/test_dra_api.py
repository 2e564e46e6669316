"""The declaration of DRA: which API serves a resource, attributes, the driver, and what DRA cannot say."""

from __future__ import annotations

from typing import Any

import pytest

from node_device_plugin.declaration import DeclarationError, dra_api, parse_configuration, parse_resources
from node_device_plugin.declaration.model import DEVICE_PLUGIN, DRA, Attributes, DraDriver, Resource, Version
from node_device_plugin.declaration.serialise import configuration_to_data, resources_to_data
from node_device_plugin.kubelet.dra import slices

NAME = "example.com/dev"
WHERE = f"resources[0] ({NAME})"


def resource(**keys: Any) -> dict[str, Any]:
    return {"name": NAME, "devices": ["/dev/a"], **keys}


def problems(*resources: dict[str, Any], **settings: Any) -> list[str]:
    try:
        parse_configuration({"resources": list(resources), **settings})
    except DeclarationError as error:
        return [str(problem) for problem in error.problems]
    return []


def parsed(attributes: Any, **keys: Any) -> Resource:
    (found,) = parse_resources([resource(attributes=attributes, **keys)])
    return found


def test_a_resource_has_its_own_api_or_that_of_the_configuration() -> None:
    none, own = resource(), {**resource(api="device_plugin"), "name": "example.com/own", "devices": []}
    by_default = parse_configuration({"resources": [none, own], "api": "dra"})
    assert [each.api for each in by_default.resources] == [DRA, DEVICE_PLUGIN]
    without = parse_configuration({"resources": [none, {**own, "api": "dra"}]})
    assert [each.api for each in without.resources] == [DEVICE_PLUGIN, DRA]
    assert parse_resources([none])[0].api == DEVICE_PLUGIN
    for configuration in (by_default, without):
        data = configuration_to_data(configuration)
        assert "api" not in data
        assert parse_configuration(data) == configuration


def test_every_value_of_an_attribute_survives_a_round_trip() -> None:
    attributes = {
        "isCold": False,
        "example.com/lanes": -(2**63),
        "colour": "é" * 32,
        "firmware": {"version": "1.2.3-rc.1+b-7"},
        "_": "",
    }
    found = parsed(attributes, devices=[{"id": "a", "nodes": ["/dev/a"], "attributes": {"slot": 3, "colour": "red"}}])
    assert found.dra_attributes == {**attributes, "firmware": Version("1.2.3-rc.1+b-7")}
    assert found.dra_attributes["isCold"] is False
    (device,) = found.devices
    assert device.dra_attributes == {"slot": 3, "colour": "red"}
    (data,) = resources_to_data([found])
    assert (data["attributes"], data["devices"][0]["attributes"]) == (attributes, {"slot": 3, "colour": "red"})
    assert parse_resources([data]) == (found,)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a-b", "'a-b' is not an attribute's name: use NAME or DOMAIN/NAME, with a NAME of at most 32 letters"),
        ("1a", "'1a' is not an attribute's name"),
        ("", "'' is not an attribute's name"),
        ("a" * 33, f"'{'a' * 33}' is not an attribute's name"),
        ("a/b/c", "the domain 'a/b' is not a lower-case DNS name of at most 63 characters"),
        ("Example.com/a", "the domain 'Example.com' is not"),
        (f"{'a' * 64}/b", f"the domain '{'a' * 64}' is not"),
        ("/a", "the domain '' is not"),
        ("resource", "is set by the driver, and DeviceClasses select by it: choose another name"),
        ("id", "is set by the driver, and DeviceClasses select by it: choose another name"),
        ("nodedevices.kubernetes/a", "has the driver's own domain: write a, which means the same"),
    ],
)
def test_a_wrong_name_of_an_attribute(name: str, says: str) -> None:
    of_resource, of_device = (
        problems(resource(attributes={name: 1})),
        problems(resource(devices=[{"id": "a", "nodes": ["/dev/a"], "attributes": {name: 1}}])),
    )
    assert [each.startswith(f"{WHERE}.attributes.{name}: {says}") for each in of_resource] == [True]
    assert [each.startswith(f"{WHERE}.devices[0] (a).attributes.{name}: {says}") for each in of_device] == [True]


def test_the_names_of_the_driver_may_have_another_domain() -> None:
    assert problems(resource(attributes={"example.com/id": 1, f"{'a' * 63}/{'b' * 32}": 2})) == []
    assert problems(resource(attributes={"nodedevices.kubernetes/a": 1}), dra={"driver": "example.com"}) == []


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (2**63, f": must fit into 64 bits, not {2**63}"),
        ("é" * 33, ": must have at most 64 bytes, not 66"),
        (
            1.5,
            ': must be true or false, a whole number, text, or {version: "1.2.3"}, not a decimal number',
        ),
        ([], ': must be true or false, a whole number, text, or {version: "1.2.3"}, not a list'),
        ({}, ".version: is missing"),
        ({"version": "1.2.3", "x": 1}, ".x: is not a known key; known keys: version"),
        ({"version": 1}, ".version: must be text, not a number (write it in quotes, so that YAML reads text)"),
        ({"version": "1.2"}, ".version: must be a version of Semantic Versioning 2.0.0, such as 1.2.3, not '1.2'"),
        ({"version": "1.2.03"}, ".version: must be a version of"),
        ({"version": "1.2.3-01"}, ".version: must be a version of"),
        ({"version": "1.2.3+"}, ".version: must be a version of"),
        ({"version": "1.2.3-" + "a" * 59}, ".version: must have at most 64 bytes, not 65"),
    ],
)
def test_a_wrong_value_of_an_attribute(value: Any, says: str) -> None:
    (found,) = problems(resource(attributes={"a": value}))
    assert found.startswith(f"{WHERE}.attributes.a{says}")


def test_attributes_fit_beside_those_of_the_driver() -> None:
    found = Attributes(*Attributes._fields)
    (device,) = parsed({}, devices=[{"id": "a", "nodes": ["/dev/a"], "numa_node": 0}]).devices
    pool = slices.pool_of(DraDriver(node="n"), parsed({}), [(device._replace(attributes=found), None)])
    assert len(pool.devices[0].attributes) == dra_api.OUR_MOST
    most = dra_api.MAX_ATTRIBUTES - dra_api.OUR_MOST
    attributes = {f"a{number}": number for number in range(most)}
    devices = [
        {"id": "same", "nodes": ["/dev/a"], "attributes": {"a0": 5}},
        {"id": "more", "nodes": ["/dev/b"], "attributes": {"b": 5}},
    ]
    says = "a device may have 32 attributes, of which the driver needs 12: declare at most 20, not 21"
    assert problems(resource(attributes=attributes, devices=devices)) == [
        f"{WHERE}.devices[1] (more).attributes: {says}"
    ]
    assert problems(resource(attributes={**attributes, "b": 1})) == [f"{WHERE}.attributes: {says}"]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (
            {"annotations": {"a": "{id}"}, "container_edits": {"env": ["A=b"]}},
            "annotations: has no effect with api: dra, because a DRA driver gives a container only CDI names, no "
            "annotations: remove it, and use env or container_edits",
        ),
        (
            {"injection": "device_nodes"},
            "injection: has no effect with api: dra, because a DRA driver gives devices only by CDI names: remove it",
        ),
        (
            {"preference": "packed"},
            "preference: has no effect with api: dra, because the scheduler chooses a claim's devices: remove it, and "
            "use selectors or constraints in the ResourceClaim",
        ),
        (
            {"container_limit": 1},
            "container_limit: has no effect with api: dra, because a claim, not a container, requests devices: remove "
            "it, and set count in the ResourceClaim",
        ),
        (
            {"replicas": 129},
            "replicas: must be at most 128 with api: dra, because each share is a device in ResourceSlices",
        ),
    ],
)
def test_what_dra_cannot_say_is_refused_with_the_way_to_say_it(keys: dict[str, Any], says: str) -> None:
    # One device, because several would need {index} in the names of annotations.
    assert problems(resource(**keys)) == []
    assert problems(resource(**keys, api="dra")) == [f"{WHERE}.{says}"]
    assert problems(resource(**keys), api="dra") == [f"{WHERE}.{says}"]


def test_advice_does_not_name_keys_that_dra_refuses() -> None:
    two = [{"id": each, "nodes": [{"path": "/dev/x", "host_path": f"/dev/{each}"}]} for each in "ab"]
    path, variable = sorted(problems(resource(api="dra", devices=two, env={"A": "{id}"})))
    assert path.endswith("would get only one of them: choose another path")
    assert variable.endswith("add {index} to the name, or move the variable to joined_env")
    (found,) = problems(resource(api="dra", devices=[], discover={"paths": ["/dev/x*"], "container_path": "/dev/x"}))
    assert found.endswith("add a placeholder such as {name}")


def test_the_limit_of_the_device_plugins_list_does_not_count() -> None:
    many = [{"id": "%060d" % number, "nodes": ["/dev/null"]} for number in range(60_000)]
    assert problems(resource(devices=many))
    assert problems(resource(devices=many, api="dra")) == []


def test_a_registration_that_no_resource_uses_is_refused() -> None:
    other = {**resource(), "name": "example.com/other", "devices": []}
    registry = {"registration": "plugins_registry"}
    assert problems(resource(), api="dra", **registry) == [
        "registration: applies only to device plugins, and every resource has api: dra, which the kubelet always finds "
        "in plugins_registry: remove it"
    ]
    assert problems(resource(api="dra"), other, **registry) == []
    assert problems(**registry, api="dra") == []


def test_the_driver() -> None:
    given = {"driver": "devices.example.com", "node": "node-1.example.com", "kubeconfig": "/etc/kube/config"}
    configuration = parse_configuration({"resources": [], "dra": given})
    assert configuration.dra == DraDriver(*given.values())
    assert configuration_to_data(configuration)["dra"] == given
    default = parse_configuration({"resources": []})
    assert default.dra == DraDriver()
    assert "dra" not in configuration_to_data(default)


@pytest.mark.parametrize(
    ("dra", "says"),
    [
        ({"driver": "Example.com"}, "dra.driver: 'Example.com' is not a driver's name: use a lower-case DNS name"),
        ({"driver": "a" * 64}, "dra.driver: 'aaaa"),
        ({"node": "a_b"}, "dra.node: 'a_b' is not a node name"),
        ({"kubeconfig": "config"}, "dra.kubeconfig: must be an absolute path"),
        ({"kubeconfig": "/a b"}, "dra.kubeconfig: must not contain ' '"),
        ({"name": "a"}, "dra.name: is not a known key"),
    ],
)
def test_a_wrong_driver(dra: dict[str, str], says: str) -> None:
    (found,) = problems(dra=dra)
    assert found.startswith(says)
