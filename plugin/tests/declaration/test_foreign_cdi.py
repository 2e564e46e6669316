"""Devices of other programs' CDI specs: what a declaration may say of them, and what a container is given."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from node_device_plugin.declaration import DeclarationError, cdi, foreign_cdi, parse_configuration, parse_resources
from node_device_plugin.declaration.serialise import resources_to_data
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.kubelet.device_plugin.allocation import allocate
from node_device_plugin.kubelet.device_plugin.device_list import DeviceList

NAMED = """
- name: example.com/accelerator
  cdi_kind: example.com/own
  devices:
    - id: pair0
      cdi_devices: [nvidia.com/gpu=0, vendor.example/nic=ens1f0]
      nodes: [{path: /dev/fpga0}]
    - id: gpu1
      cdi_devices: [nvidia.com/gpu=1]
"""


def problems(text: str, **settings: Any) -> list[str]:
    with pytest.raises(DeclarationError) as caught:
        parse_configuration({"resources": yaml.safe_load(text), **settings})
    return [str(problem).replace(" (example.com/dev)", "") for problem in caught.value.problems]


async def test_a_container_gets_the_named_devices_and_then_our_own_edits() -> None:
    (resource,) = parse_resources(yaml.safe_load(NAMED))
    table = DeviceTable(resource)
    table.update({device.id: None for device in resource.devices})
    answer = allocate(DeviceList(table), ["gpu1", "pair0"])
    assert [device.name for device in answer.cdi_devices] == [
        "nvidia.com/gpu=0",
        "vendor.example/nic=ens1f0",
        "nvidia.com/gpu=1",
        # Our variables come last, so that they replace those of all other specs.
        "example.com/own=pair0",
    ]
    ((spec,),) = [[each] for each in cdi.render_specs([resource]).values()]
    assert [device["name"] for device in spec["devices"]] == ["pair0"]


async def test_a_device_that_several_devices_need_is_given_once() -> None:
    devices = [{"id": f"d{n}", "cdi_devices": [f"nvidia.com/gpu={n}", "vendor.example/fabric=ctl"]} for n in range(2)]
    (resource,) = parse_resources([{"name": "example.com/dev", "devices": devices}])
    table = DeviceTable(resource)
    table.update({"d0": None, "d1": None})
    answer = allocate(DeviceList(table), ["d0", "d1"])
    names = [device.name for device in answer.cdi_devices]
    assert names == ["nvidia.com/gpu=0", "vendor.example/fabric=ctl", "nvidia.com/gpu=1"]


@pytest.mark.parametrize(
    "discover", [{"cdi": {"kind": "nvidia.com/gpu"}}, {"cdi": {"kind": "a.b/cc", "match": ["x*"], "exclude": ["xy"]}}]
)
def test_a_declaration_survives_a_round_trip(discover: dict[str, Any]) -> None:
    declared = [*yaml.safe_load(NAMED), {"name": "nvidia.com/gpu", "discover": discover}]
    resources = parse_resources(declared)
    assert parse_resources(resources_to_data(resources)) == resources
    others = parse_resources([{"name": "example.com/tty", "discover": {"paths": ["/dev/tty*"]}}])
    assert resources_to_data(others)[0]["discover"] == {"paths": ["/dev/tty*"]}


def test_a_resource_of_foreign_devices_alone_has_no_spec_and_no_kind_of_its_own() -> None:
    """So its name may be the vendor's kind, or no kind at all."""
    declared = [
        {"name": "nvidia.com/gpu", "discover": {"cdi": {"kind": "nvidia.com/gpu"}}},
        {"name": "example.com/1", "devices": [{"id": "nic", "cdi_devices": ["vendor.example/nic=ens1f0"]}]},
    ]
    resources = parse_resources(declared)
    assert [resource.has_spec for resource in resources] == [False, False]
    assert all(resource.uses_cdi for resource in resources)
    assert cdi.render_specs(resources) == {}


@pytest.mark.parametrize(
    ("more", "writes"),
    [
        ({}, False),
        ({"discover": {"nodes": ["/dev/ctl"]}}, True),
        ({"container_edits": {"env": ["A=b"]}}, True),
        ({"discover": {"paths": ["/dev/x*"]}}, True),
    ],
)
def test_the_plugin_writes_a_spec_only_if_ours_adds_something(more: dict[str, Any], writes: bool) -> None:
    """The other program's spec has the rest."""
    discover = {"cdi": {"kind": "nvidia.com/gpu"}, **more.get("discover", {})}
    (resource,) = parse_resources([{"name": "example.com/dev", **more, "discover": discover}])
    assert (resource.dynamic_cdi, resource.uses_cdi) == (writes, True)


GPU = "name: example.com/dev, discover: {cdi: {kind: nvidia.com/gpu}}"
ONLY = "works only with CDI: remove it, or set injection: cdi instead of device_nodes"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[{name: example.com/dev, devices: [{id: d0}]}]",
            "resources[0].devices[0] (d0): gives a container nothing: it has no nodes, edits, cdi_devices or env; did "
            "you mean cdi_devices?",
        ),
        (
            "[{name: example.com/dev, devices: [{id: d0, cdi_devices: [nvidia.com/gpu]}]}]",
            "resources[0].devices[0] (d0).cdi_devices[0]: 'nvidia.com/gpu' is not a fully qualified CDI name",
        ),
        (
            "[{name: example.com/dev, devices: [{id: d0, cdi_devices: ['gpu=0']}]}]",
            "resources[0].devices[0] (d0).cdi_devices[0]: 'gpu' is not a CDI kind",
        ),
        (
            "[{name: example.com/dev, devices: [{id: d0, cdi_devices: ['nvidia.com/gpu=']}]}]",
            "resources[0].devices[0] (d0).cdi_devices[0]: '' is not a valid CDI device name",
        ),
        (
            "[{name: example.com/dev, devices: [{id: d0, cdi_devices: ['nvidia.com/gpu=0', 'nvidia.com/gpu=0']}]}]",
            "resources[0].devices[0] (d0).cdi_devices: nvidia.com/gpu=0 is given twice",
        ),
        (
            "[{name: example.com/dev, devices: [{id: a, cdi_devices: [nvidia.com/gpu=0]}, "
            "{id: b, cdi_devices: [nvidia.com/gpu=0]}]}]",
            "resources[0].devices[1] (b).cdi_devices: nvidia.com/gpu=0 is offered already, as "
            "resources[0].devices[0] (a)",
        ),
        (
            "[{name: example.com/dev, devices: [{id: a, nodes: [{path: /dev/a}]}]}, "
            "{name: example.com/two, devices: [{id: b, cdi_devices: [example.com/dev=a]}]}]",
            "resources[1] (example.com/two).devices[0] (b).cdi_devices: example.com/dev=a is a device of "
            "example.com/dev, which alone can offer it",
        ),
        ("[{name: example.com/dev, discover: {cdi: {}}}]", "resources[0].discover.cdi.kind: is missing"),
        ("[{name: example.com/dev, discover: {cdi: {kind: gpu}}}]", "resources[0].discover.cdi.kind: 'gpu' is not a"),
        (
            "[{name: example.com/dev, discover: {cdi: {kind: k8s.device-plugin.nvidia.com/gpu}}}]",
            "resources[0].discover.cdi.kind: 'k8s.device-plugin.nvidia.com/gpu' belongs to another allocator",
        ),
        (
            "[{name: example.com/dev, discover: {cdi: {kind: management.nvidia.com/gpu}}}]",
            "resources[0].discover.cdi.kind: 'management.nvidia.com/gpu' belongs to another allocator",
        ),
        (f"[{{{GPU}, injection: device_nodes}}]", f"resources[0].discover.cdi: {ONLY}"),
        (
            "[{name: example.com/dev, injection: device_nodes, devices: [{id: d0, cdi_devices: [nvidia.com/gpu=0]}]}]",
            f"resources[0].devices[0] (d0).cdi_devices: {ONLY}",
        ),
        (
            "[{name: nvidia.com/gpu, discover: {cdi: {kind: nvidia.com/gpu}}, container_edits: {env: [A=b]}}]",
            "resources[0] (nvidia.com/gpu).cdi_kind: nvidia.com/gpu is the kind of another program's specs, which the "
            "resource's own edits would replace: set another cdi_kind",
        ),
        (
            f"[{{{GPU}, container_limit: 1, env: {{NVIDIA_VISIBLE_DEVICES: '{{id}}'}}}}]",
            "resources[0].env.NVIDIA_VISIBLE_DEVICES: has no effect: the CDI spec of nvidia.com sets it to void",
        ),
        (
            f"[{{{GPU}, container_edits: {{env: [NVIDIA_VISIBLE_DEVICES=all]}}}}]",
            "resources[0].container_edits.env[0]: would replace void, by which the CDI spec of nvidia.com keeps the",
        ),
        (
            "[{name: example.com/dev, devices: [{id: d, cdi_devices: [nvidia.com/gpu=0], "
            "container_edits: {env: [A=b, NVIDIA_VISIBLE_DEVICES=0]}}]}]",
            "resources[0].devices[0] (d).container_edits.env[1]: would replace void",
        ),
        (
            f"[{{{GPU}}}, {{name: nvidia.com/gpu, devices: [{{id: d, nodes: [{{path: /dev/x}}]}}]}}]",
            "resources[1] (nvidia.com/gpu).cdi_kind: nvidia.com/gpu is the kind of another program's specs, where "
            "example.com/dev finds devices: set another cdi_kind",
        ),
        (f"[{{{GPU}, health: {{open: true}}}}]", "resources[0].health.open: devices of CDI specs have no nodes"),
        (
            "[{name: example.com/dev, discover: {cdi: {kind: nvidia.com/gpu}, gid: 44}}]",
            "resources[0].discover.gid: has no effect: the CDI spec of the other program sets it",
        ),
        (
            "[{name: example.com/dev, discover: {cdi: {kind: nvidia.com/gpu}, permissions: r}}]",
            "resources[0].discover.permissions: has no effect: the CDI spec of the other program sets it",
        ),
        (
            f"[{{{GPU}, env: {{'GPU_{{index}}': '{{path}}'}}}}]",
            "resources[0].env.GPU_{index}: {path} is ambiguous, because a discovered device may have several nodes",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_its_field(text: str, says: str) -> None:
    assert [problem for problem in problems(text) if problem.startswith(says)], problems(text)


def test_a_verification_warns_of_the_legacy_hook() -> None:
    text = "[{name: nvidia.com/gpu, devices: [{id: '0'}], joined_env: {NVIDIA_VISIBLE_DEVICES: '{id}'}}]"
    (resource,) = parse_resources(yaml.safe_load(text))
    (warning,) = foreign_cdi.warnings(resource)
    assert warning.startswith("a container whose image sets NVIDIA_VISIBLE_DEVICES gets GPUs")
    (resource,) = parse_resources(yaml.safe_load("[{name: a.b/c, devices: [{id: '0'}], env: {ID: '{id}'}}]"))
    assert list(foreign_cdi.warnings(resource)) == []


@pytest.mark.parametrize("kind", ["vendor.example/gpu", "nvidia.community/gpu"])
def test_a_variable_of_the_legacy_hook_is_free_beside_devices_of_another_vendor(kind: str) -> None:
    edits = {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}
    assert parse_resources([{"name": "example.com/dev", "discover": {"cdi": {"kind": kind}}, "container_edits": edits}])


def test_discovery_in_specs_needs_their_directories() -> None:
    assert problems(f"[{{{GPU}}}]", cdi_spec_dirs=[]) == [
        "resources[0].discover.cdi: looks in cdi_spec_dirs, which is empty: list the directories there"
    ]


@pytest.mark.parametrize("device", ["{id: d0, nodes: 5}", "{id: d0, node: [{path: /dev/x}]}", "{id: d0, env: {A: b}}"])
def test_a_device_with_a_mistake_is_not_said_to_give_nothing_as_well(device: str) -> None:
    (problem,) = problems(f"[{{name: example.com/dev, devices: [{device}]}}]")
    assert "nothing: it has" not in problem
