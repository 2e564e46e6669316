"""The arguments with which a node executes a role's module, for the role's task as for the preflight."""

from __future__ import annotations

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import wheels
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.asked import completed

SETTINGS = {"kubelet_device_plugin_dir": "/k/dp", "dynamic_cdi_dir": "/run/own"}
TEMPLATE = {"kind": "a.io/b", "devices": []}
DECLARED = {
    "configuration": {"resources": [], "dynamic_cdi_dir": "/run/cdi"},
    "kubelet_device_plugin_dir": "/declared",
    "cdi_specs": {"node-device-plugin_a.json": {}, "node-devices_a.io_b.json": TEMPLATE},
}
PLACES = {"device_plugin_dir": "/k/dp", "cdi_dir": "/run/own"}
OF_DECLARED = {"device_plugin_dir": "/declared", "cdi_dir": "/run/cdi"}
NODES = [{"path": "/dev/a"}]


@pytest.mark.parametrize(
    ("module", "given", "expected"),
    [
        ("cdi_runtime", {"command": "/x"}, {"state": "present", "command": "/x", "cri_socket": "/run/x.sock"}),
        ("cdi_runtime", {"cri_socket": "/y"}, {"state": "present", "cri_socket": "/y"}),
        (
            "cdi_runtime",
            {"state": "absent", "specs": {}, "max_parallel_restarts": 3, "declaration": {"a": 1}},
            {"state": "absent", "cri_socket": "/run/x.sock", "device_plugin_dir": "/k/dp"},
        ),
        (
            "cdi_specs",
            {"command": "/x", "pruned": {"rc": 0}},
            {
                "state": "present",
                "command": "/x",
                **OF_DECLARED,
                "configuration": DECLARED["configuration"],
                "templates": {"node-devices_a.io_b.json": TEMPLATE},
            },
        ),
        (
            "cdi_specs",
            {"state": "absent", "cdi_dir": "/other"},
            {"state": "absent", **OF_DECLARED, "cdi_dir": "/other"},
        ),
        ("host_devices", {"nodes": NODES, "prune": False, "a": None}, {**PLACES, "nodes": NODES, "prune": False}),
        ("host_devices", {"state": "absent", "nodes": NODES, "modules": []}, {"state": "absent", **PLACES}),
        ("node_tools", {"command": ""}, {"command": "", "targets": {"cp39-x86_64": {}}}),
        # A module that gets the task's options as they are.
        ("managed_files", {"owner": "us", "files": None}, {"owner": "us", "files": None}),
    ],
)
def test_what_a_module_gets(monkeypatch, module, given, expected):
    monkeypatch.setattr(wheels, "targets", lambda: {"cp39-x86_64": {}})
    assert completed(module, given, DECLARED, SETTINGS, "/run/x.sock") == expected


def test_a_node_without_declaration_and_settings():
    assert completed("cdi_specs", {}) == {"state": "present"}
    assert completed("host_devices", {}) == {}
    assert completed("cdi_runtime", {"state": "absent"}) == {"state": "absent"}
