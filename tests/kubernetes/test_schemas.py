"""What we apply, held to the API server's own schemas, where there is no API server too."""

from __future__ import annotations

import json
import os

import pytest
import schemas
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import parse_configuration

EVERYTHING = {
    "image": "example.com/plugin:1",
    "image_pull_secrets": ["a"],
    "selinux_type": "container_device_plugin_t",
    "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"}],
    "max_unavailable": 2,
}
CONFIGURATION = {
    "resources": [{"name": "devices.example.com/serial", "discover": {"paths": ["/dev/serial/by-id/*"]}}],
    "registration": "plugins_registry",
}


def rendered(**deployment):
    nodes = {name: parse_configuration(CONFIGURATION) for name in ("a", "b")}
    found = manifests.render(manifests.parse_deployment({**EVERYTHING, **deployment}), nodes)
    return {manifest.content["kind"]: manifest.content for manifest in found}


@pytest.mark.parametrize("node_selector", [{}, {"pool": "gpu"}])
@pytest.mark.parametrize("kind", schemas.KINDS)
def test_valid(kind, node_selector):
    assert schemas.problems(rendered(node_selector=node_selector)[kind]) == []


def test_what_is_not_valid_is_found():
    content = json.loads(json.dumps(rendered()["DaemonSet"]))
    pod = content["spec"]["template"]["spec"]
    pod["hostNetworks"] = True
    pod["containers"][0]["livenessProbe"]["periodSeconds"] = "10"
    pod["containers"][0]["securityContext"]["seLinuxOptions"]["types"] = "spc_t"
    del content["spec"]["selector"]
    assert sorted(problem.split(":")[0] for problem in schemas.problems(content)) == [
        "$.spec",
        "$.spec.template.spec",
        "$.spec.template.spec.containers[0].livenessProbe.periodSeconds",
        "$.spec.template.spec.containers[0].securityContext.seLinuxOptions",
    ]


@pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)
def test_they_are_the_servers(cluster):
    if cluster.ask("GET", "/version")["gitVersion"] != schemas.VERSION:
        pytest.skip(f"not {schemas.VERSION}")
    found = schemas.extract(lambda path: cluster.ask("GET", path))
    if os.environ.get("WRITE_SCHEMAS"):
        schemas.write(found)
    assert json.loads(schemas.FILE.read_text()) == found
