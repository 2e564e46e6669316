"""What the chart and the command `manifests` render for the same deployment and the same configurations."""

from __future__ import annotations

import json
import pathlib
import tempfile
from collections.abc import Mapping
from itertools import chain
from typing import Any, Protocol

import yaml

from node_device_plugin.cluster import manifests
from node_device_plugin.cluster.manifests import device_classes
from node_device_plugin.declaration import parse_configuration
from node_device_plugin.declaration.configuration_file import load

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "packaging" / "chart"
NAMESPACE = "node-devices"
NAME = "node-device-plugin"
Objects = dict[tuple[str, str], Any]


class Helm(Protocol):
    """Runs helm with these arguments; returns its exit code, and what it prints."""

    def __call__(self, *arguments: str, values: Any = None) -> tuple[int, str]: ...


def ground_of(configuration: Any) -> manifests.CommonGround:
    return manifests.common_ground({manifests.DEFAULT: parse_configuration(configuration)})


def by_chart(helm: Helm, deployment: Mapping[str, Any], configurations: Mapping[str, Any], *options: str) -> Objects:
    """configurations: by the name of a profile."""
    image, _, tag = deployment["image"].rpartition(":")
    monitors = deployment.get("monitoring_labels", {})
    values: dict[str, Any] = {
        "image": {
            "repository": image,
            "tag": tag,
            "pullPolicy": deployment.get("image_pull_policy"),
            "pullSecrets": deployment.get("image_pull_secrets"),
        },
        "fullnameOverride": deployment.get("name"),
        "priorityClassName": deployment.get("priority_class"),
        "selinuxType": deployment.get("selinux_type"),
        "resources": deployment.get("resources"),
        "maxUnavailable": deployment.get("max_unavailable"),
        "overlap": deployment.get("overlap"),
        "startupTaint": deployment.get("startup_taint"),
        "nodeCondition": deployment.get("node_condition"),
        "podMonitor": {"enabled": deployment.get("pod_monitor", False), "labels": monitors},
        "prometheusRule": {"enabled": deployment.get("alert_rules", False), "labels": monitors},
        "profiles": {
            "default": None,
            **{name: profile(name, deployment, each) for name, each in configurations.items()},
        },
    }
    values["image"] = {key: value for key, value in values["image"].items() if value is not None}
    values = {key: value for key, value in values.items() if value is not None}
    code, text = helm(
        "template", NAME, str(CHART), "--namespace", deployment.get("namespace", NAMESPACE), *options, values=values
    )
    assert code == 0, text
    return comparable(yaml.load_all(text, yaml.CSafeLoader))


def profile(name: str, deployment: Mapping[str, Any], configuration: Any) -> dict[str, Any]:
    # Helm merges a mapping with the chart's own; null removes a key.
    of_chart = {"kubernetes.io/os": None} if name == "default" else {}
    found = {
        "config": configuration,
        "deviceDirectories": list(ground_of(configuration).device_directories),
        "nodeSelector": {**of_chart, **deployment.get("node_selector", {})},
        "tolerations": deployment.get("tolerations"),
    }
    return {key: value for key, value in found.items() if value is not None}


def by_command(deployment: Mapping[str, Any], configurations: Mapping[str, Any]) -> Objects:
    """Each profile is a deployment of its own. Helm has no namespace among its objects, and one DeviceClass for all."""
    found: list[Any] = []
    name = deployment.get("name", NAME)
    classes: dict[str, Any] = {}
    for key, configuration in configurations.items():
        of_profile = {**deployment, "name": name if key == "default" else f"{name}-{key}"}
        read = {manifests.DEFAULT: parse_configuration({"cdi_owner": "plugin", **configuration})}
        rendered = manifests.render(manifests.parse_deployment(of_profile), read)
        contents = json.loads(json.dumps([manifest.content for manifest in rendered]))
        found += [each for each in contents if each["kind"] not in ("Namespace", "DeviceClass")]
        for each in (content for content in contents if content["kind"] == "DeviceClass"):
            same = classes.setdefault(each["metadata"]["name"], each)
            users = device_classes.nodes_of(same) | device_classes.nodes_of(each)
            same["metadata"]["annotations"] = device_classes.record(users)
    return comparable([*found, *classes.values()])


def comparable(documents: Any) -> Objects:
    """Objects by kind and name, with configurations that are parsed, and without the label that says who manages."""
    found: Objects = {}
    for document in chain.from_iterable(map(in_list, documents)):
        assert document["metadata"]["labels"].pop("app.kubernetes.io/managed-by") in ("Helm", "nodedevices")
        if document["kind"] == "ConfigMap":
            document["data"] = {key: configuration_in(text) for key, text in document["data"].items()}
        key = document["kind"], document["metadata"]["name"]
        assert key not in found
        found[key] = document
    return found


def in_list(document: Any) -> list[Any]:
    """A document's objects."""
    return document["items"] if document and document["kind"] == "List" else list(filter(None, [document]))


def configuration_in(text: str) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory) / "configuration.yaml"
        file.write_text(text, encoding="utf-8")
        return load(str(file)).configuration
