"""The folders of the node that the DaemonSet's pod mounts, and that the kubelet would make, are the ledger's."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.manifests import nodes, pod
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import parse_configuration
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration

ROLE = pathlib.Path(__file__).resolve().parents[3] / "roles/device_plugin"


@pytest.mark.parametrize(
    ("settings", "directories"),
    [
        ({}, ["/etc/cdi"]),
        (
            {"cdi_spec_dirs": ["/etc/cdi", "/srv/cdi", "/run/own"], "dynamic_cdi_dir": "/run/own"},
            ["/etc/cdi", "/srv/cdi"],
        ),
        ({"dynamic_cdi_dir": "/run/own"}, ["/etc/cdi", "/var/run/cdi"]),
        ({"cdi_spec_dirs": []}, []),
    ],
)
def test_they_are_what_the_pod_mounts(settings, directories):
    resource = {"name": "example.com/dev", "discover": {"paths": ["/dev/x*"]}}
    read = declaration.read(
        {"node_devices_resources": [resource]}, lambda value: value, {"http_address": ":9100", **settings}
    ).as_data()
    tasks = yaml.safe_load((ROLE / "tasks" / "daemonset.yml").read_text())
    task = next(each for each in tasks if "nodedevices.kubernetes.managed_files" in each)
    of_role = DataLoader().load_from_file(str(ROLE / "vars" / "main.yml"), trusted_as_template=True)
    variables = {**of_role, "device_plugin_declaration": read}
    files = Templar(DataLoader(), variables=variables).template(
        trust_as_template(task["nodedevices.kubernetes.managed_files"]["files"])
    )
    sockets = "/var/lib/kubelet/device-plugins/node-device-plugin"
    # The directory of the sockets is the instances' lock, which no other user may open.
    assert files == [
        {"path": sockets, "type": "directory", "private": True},
        *({"path": path, "type": "directory"} for path in directories),
    ]
    ground = nodes.common_ground({"node1": parse_configuration(read["configuration"])})
    volumes = [volume.path for volume in pod._volumes(ground) if volume.name.startswith("cdi-static")]
    assert volumes == directories
