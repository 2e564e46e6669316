"""The chart renders the objects of `node-device-plugin manifests`: for all examples, and for declarations by chance."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest
import yaml
from chart_objects import CHART, ROOT, by_chart, by_command, comparable, ground_of
from hypothesis import given, seed, settings

from node_device_plugin.declaration import DeclarationError

sys.path.insert(0, str(ROOT / "plugin"))
from tests.faults.strategies import BY_CHANCE, PLAUSIBLE_CONFIGURATIONS

NAMED = "devices.example.com/" + "Long_Name." * 6
CLAIMED = {
    "api": "dra",
    "resources": [
        {"name": name, "discover": {"paths": [f"/dev/{path}*"]}}
        for name, path in (("devices.example.com/camera", "video"), (f"{NAMED}x", "ttyS"), (f"{NAMED}y", "ttyUSB"))
    ],
}
SERIAL = {"resources": [{"name": "devices.example.com/serial", "discover": {"paths": ["/dev/serial/by-id/*"]}}]}
PLAIN = {"image": "registry.example.com/node-device-plugin:0.1.0"}
#: Declarations by chance. Each release of the chart has some of them, because a call of Helm takes a second.
BY_CHANCE_COUNT, OF_A_RELEASE = 200, 25
DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "of a node pool": {"node_selector": {"pool": "gpu"}},
    "by a label": {"name": "serial", "node_selector": {}},
    "an old image": {"overlap": "never", "max_unavailable": 3},
    "overlapping": {"overlap": "always", "node_selector": {"pool": "gpu"}},
    "monitored": {"pod_monitor": True, "alert_rules": True, "monitoring_labels": {"release": "prometheus"}},
    "of a private registry": {"image_pull_secrets": ["a", "b"], "image_pull_policy": "Always", "namespace": "devices"},
    "without a priority": {"priority_class": "", "selinux_type": "container_device_plugin_t"},
    "with tolerations": {"tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"}]},
    "without tolerations": {"tolerations": []},
    "with a startup taint": {"startup_taint": "example.com/not-ready:NoExecute", "tolerations": []},
    "with a condition": {"node_condition": True, "overlap": "always"},
    "with both": {"startup_taint": "nodedevices.kubernetes/not-ready:NoSchedule", "node_condition": True},
    "with resources": {"resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "1Gi"}}},
}


def declared() -> dict[str, Any]:
    """The configuration of every example, by its name."""
    found = {}
    for path in sorted((ROOT / "examples/cookbook").glob("*/declaration.yml")):
        content = yaml.safe_load(path.read_text())
        resources = [
            each for name, value in content.items() if name.startswith("node_devices_resources") for each in value
        ]
        found[path.parent.name] = {"resources": resources, **content.get("node_devices_settings", {})}
    samples = ROOT / "tests/unit/project/samples/nodes"
    for path in (*samples.glob("*.yaml"), ROOT / "packaging/kubectl/nodes/_default.yaml"):
        found[path.stem.strip("_").replace("default", "kubectl")] = yaml.safe_load(path.read_text())
    return found


def for_pods(configuration: Any) -> bool:
    """Whether a pod of the chart can serve it, with a driver that profiles of one release can share."""
    try:
        return ground_of(configuration).drivers in ((), ("nodedevices.kubernetes",))
    except DeclarationError:
        return False


def test_every_example(helm):
    examples = {name: each for name, each in declared().items() if for_pods(each)}
    assert len(examples) >= 25
    assert by_chart(helm, PLAIN, examples) == by_command(PLAIN, examples)


@pytest.mark.parametrize("given", DEPLOYMENTS.values(), ids=list(DEPLOYMENTS))
def test_every_setting_of_a_deployment(helm, given):
    deployment = {**PLAIN, **given}
    for each in (SERIAL, CLAIMED):
        assert by_chart(helm, deployment, {"default": each}) == by_command(deployment, {"default": each})


@pytest.mark.parametrize(
    "more",
    [
        {
            "kubelet_root_dir": "/var/lib/k0s/kubelet",
            "kubelet_device_plugin_dir": "/var/lib/k0s/kubelet/device-plugins",
        },
        {"registration": "plugins_registry"},
        {"cdi_spec_dirs": ["/srv/cdi", "/etc/cdi", "/opt/cdi"], "dynamic_cdi_dir": "/opt/cdi"},
        {"cdi_spec_dirs": []},
        # Two reasons for one directory.
        {
            "resources": [
                {"name": "devices.example.com/odd", "discover": {"paths": ["/etc/cdi/*", "/sys/kernel/odd/*"]}}
            ]
        },
        {**CLAIMED, "dra": {"driver": "d.example.com", "kubeconfig": "/k"}, "kubelet_root_dir": "/srv/kubelet"},
        # Both APIs in one pod.
        {"resources": [*SERIAL["resources"], {**CLAIMED["resources"][0], "api": "dra"}]},
        {"cdi_owner": "role", "http_address": "127.0.0.1:9999", "recovery_delay": 0},
    ],
)
def test_settings(helm, more):
    configuration = {**SERIAL, **more}
    for overlap in ("never", "always"):
        deployment = {**PLAIN, "overlap": overlap}
        assert by_chart(helm, deployment, {"default": configuration}) == by_command(
            deployment, {"default": configuration}
        )


def test_declarations_by_chance(helm):
    found: list[Any] = []

    @settings(BY_CHANCE, max_examples=300)
    @given(PLAUSIBLE_CONFIGURATIONS)
    def collect(raw: Any) -> None:
        # Few have a resource with api: dra by chance.
        found.extend(each for each in (raw, {**raw, "api": "dra"}) if for_pods(each) and each not in found)

    for number in range(40):
        if len(found) < BY_CHANCE_COUNT:
            seed(number)(collect)()
    assert len(found) >= BY_CHANCE_COUNT
    assert sum(bool(ground_of(each).drivers) for each in found) >= BY_CHANCE_COUNT // 4
    kinds = list(DEPLOYMENTS.values())
    for start in range(0, BY_CHANCE_COUNT, OF_A_RELEASE):
        some = {f"p{start + position}": each for position, each in enumerate(found[start : start + OF_A_RELEASE])}
        # A rule for alerts is one for the release, and not one for each profile.
        deployment = {**PLAIN, **kinds[start // OF_A_RELEASE % len(kinds)], "alert_rules": False}
        assert by_chart(helm, deployment, some) == by_command(deployment, some)


def test_the_file_for_kubectl_is_the_chart_without_values(helm):
    code, text = helm("template", "node-device-plugin", str(CHART), "--namespace", "node-devices")
    assert code == 0, text
    file = pathlib.Path(ROOT / "packaging/kubectl/node-device-plugin.yaml").read_text()
    documents = [each for each in yaml.safe_load_all(file) if each["kind"] != "Namespace"]
    assert comparable(yaml.safe_load_all(text)) == comparable(documents)
