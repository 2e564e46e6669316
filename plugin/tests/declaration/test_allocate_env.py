"""The numbered variables, and what a container is expected to show."""

import pytest
import yaml

from node_device_plugin.declaration import DeclarationError, parse_resources
from node_device_plugin.declaration.device_plugin_api import devices_of, kubelet_ids
from node_device_plugin.declaration.env import allocate_env
from node_device_plugin.verification.container_view import expected_in_container

(MYDEVICE_3,) = parse_resources(
    yaml.safe_load(
        """
        - name: myplugin.io/mydevice-3
          devices:
            - {id: dev3-1, properties: {value: /node2/dev3/1}}
            - {id: dev3-2, properties: {value: /node2/dev3/2}}
            - {id: dev3-3, properties: {value: /node2/dev3/3}}
          env: {"DEV_3_ID_{index}": "{value}"}
        """
    )
)
(SHARED,) = parse_resources(
    yaml.safe_load(
        """
        - name: example.com/shared
          replicas: 2
          container_edits: {env: [KIND=shared], mounts: [{host_path: /a, container_path: /b}]}
          devices:
            - {id: z, nodes: [{path: /dev/z, host_path: /dev/hz}], container_edits: {env: [NAME=z]}}
            - {id: a, nodes: [{path: /dev/a}], container_edits: {env: [NAME=a]}}
          env: {"SHARED_{index}": "{id} {path} {host_path} {index} {literal braces} {}"}
        """
    )
)


def test_numbers_follow_the_declaration_whatever_the_kubelets_order() -> None:
    for ids in (["dev3-3", "dev3-2"], ["dev3-2", "dev3-3"]):
        assert allocate_env(MYDEVICE_3, devices_of(MYDEVICE_3, ids)) == {
            "DEV_3_ID_0": "/node2/dev3/2",
            "DEV_3_ID_1": "/node2/dev3/3",
        }


def test_shares_have_ids_of_their_own_and_two_of_one_device_count_once() -> None:
    assert [i for d in SHARED.devices for i in kubelet_ids(SHARED, d)] == ["z::0", "z::1", "a::0", "a::1"]
    devices = devices_of(SHARED, ["a::1", "z::1", "z::0"])
    assert [device.id for device in devices] == ["z", "a"]
    assert allocate_env(SHARED, devices) == {
        "SHARED_0": "z /dev/z /dev/hz 0 {literal braces} {}",
        "SHARED_1": "a /dev/a /dev/a 1 {literal braces} {}",
    }


def test_an_id_of_nobody_is_refused() -> None:
    with pytest.raises(KeyError, match="z::2"):
        devices_of(SHARED, ["z::0", "z::2"])


def test_what_a_container_is_expected_to_show() -> None:
    expectation = expected_in_container(SHARED, list(SHARED.devices))
    assert expectation.env["KIND"] == ("shared",)
    assert expectation.env["NAME"] == ("z", "a")
    assert expectation.env["SHARED_1"][0].startswith("a /dev/a")
    assert [node.path for node in expectation.nodes] == ["/dev/z", "/dev/a"]
    assert [mount.container_path for mount in expectation.mounts] == ["/b"]


def test_a_joined_variable_has_the_values_of_all_devices() -> None:
    text = """
    - name: example.com/gpu
      devices:
        - {id: b, nodes: [{path: /dev/b}], properties: {address: "0000:02:00.0"}}
        - {id: a, nodes: [{path: /dev/a}], properties: {address: "0000:01:00.0"}}
        - {id: c, nodes: [{path: /dev/c}], properties: {address: ""}}
      joined_env: {PCI_RESOURCE_EXAMPLE_COM_GPU: "{address}"}
    """
    (resource,) = parse_resources(yaml.safe_load(text))
    # In the declaration's order, whatever the kubelet's order; a device without a value adds nothing.
    assert allocate_env(resource, devices_of(resource, ["a", "c", "b"])) == {
        "PCI_RESOURCE_EXAMPLE_COM_GPU": "0000:02:00.0,0000:01:00.0"
    }
    assert expected_in_container(resource, resource.devices[:1]).env == {
        "PCI_RESOURCE_EXAMPLE_COM_GPU": ("0000:02:00.0",)
    }


def test_a_container_that_may_have_one_device_needs_no_number() -> None:
    text = """
    - name: example.com/found
      container_limit: 1
      discover: {paths: [/dev/x*]}
      env: {PORT: "{path}"}
      annotations: {example.com/port: "{path}"}
    - name: example.com/declared
      container_limit: 1
      replicas: 2
      devices: [{id: a, nodes: [{path: /dev/a}]}, {id: b, nodes: [{path: /dev/b}]}]
      env: {SHARED: "{path}"}
    """
    _, declared = parse_resources(yaml.safe_load(text))
    assert allocate_env(declared, devices_of(declared, ["b::1"])) == {"SHARED": "/dev/b"}
    for number in ("", "2"):
        with pytest.raises(DeclarationError) as caught:
            parse_resources(yaml.safe_load(text.replace("container_limit: 1", "container_limit: %s" % number)))
        assert [problem.where.rpartition(" ")[2] for problem in caught.value.problems] == [
            "(example.com/found).env.PORT",
            "(example.com/found).annotations.example.com/port",
            "(example.com/declared).env.SHARED",
        ]
