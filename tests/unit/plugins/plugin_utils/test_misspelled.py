"""Names that are nearly ours: a run with such a name took a resource from two nodes, and ended well."""

from __future__ import annotations

import pathlib
import re

import pytest
import yaml
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import misspelled

CHECKOUT = pathlib.Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("device_plugin_mod", "device_plugin_mode"),
        ("host_device_nodes", "host_devices_nodes"),
        ("host_devices_node", "host_devices_nodes"),
        ("node_device_resources_cam", "node_devices_resources_cam"),
        ("node_devices_resource", "node_devices_resources"),
        ("node_devices_ressources_cam", "node_devices_resources_cam"),
        ("nodes_devices_resources", "node_devices_resources"),
        ("node_devcies_resources_a_b", "node_devices_resources_a_b"),
        ("node_devices_host", "node_devices_hosts"),
        ("node_devices_gather_fact", "node_devices_gather_facts"),
        ("node_devices_drian", "node_devices_drain"),
        ("node_devices_kube_config", "node_devices_kubeconfig"),
        ("verification_proof", "verification_proofs"),
        ("cdi_runtime_max_parallel_restart", "cdi_runtime_max_parallel_restarts"),
    ],
)
def test_a_name_that_is_nearly_ours_is_an_error_with_the_name_that_was_meant(name, meant):
    (line,) = misspelled.found({name: 1, "inventory_hostname": "a"}).errors
    assert line == (
        f"{name}: no role and no playbook reads this variable, and its name is nearly {meant}: correct the name, or "
        "add your own variable's name to node_devices_own_variables"
    )


@pytest.mark.parametrize(
    "name",
    [
        # Ours: options, playbooks' variables, registered results, and each part of the declaration.
        "device_plugin_mode",
        "node_devices_serial",
        "node_devices_scan_domain",
        "node_devices_declaration",
        "verification_report",
        "extended_resources_result",
        "node_devices_resources",
        "node_devices_resourcescam",
        # Of others.
        "node_device_foo_custom",
        "node_exporter_version",
        "device_plugins",
        "x_device_plugin_modes",
        "resources",
        "ansible_host",
        "ansible_python_interpreter",
    ],
)
def test_names_that_are_no_misspelling(name):
    assert misspelled.found({name: 1}) == ([], [])


@pytest.mark.parametrize(
    ("name", "hint"),
    [("node_devices_site_note", ""), ("device_plugin_timeout_minutes", " (similar: device_plugin_timeout)")],
)
def test_another_name_with_our_prefix_is_a_warning(name, hint):
    line = f"{name}: no role and no playbook of this collection reads this variable{hint}"
    assert misspelled.found({name: 1}) == ([], [line])


@pytest.mark.parametrize("name", ["node_device_resources_cam", "node_devices_site_note"])
def test_a_variable_that_another_variable_uses_is_the_users_own(name):
    used = {"node_devices_resources": [{"name": "{{ %s.name }}" % name}]}
    assert misspelled.found({name: {"name": "a.b/c"}, **used}) == ([], [])
    assert any(misspelled.found({name: "{{ %s }}" % name, "vars": used}))


@pytest.mark.parametrize("name", ["node_device_resources_cam", "node_devices_site_note", "device_plugin_mod"])
def test_a_variable_in_the_list_of_own_variables_is_the_users_own(name):
    assert misspelled.found({name: 1, "node_devices_own_variables": [name]}) == ([], [])
    assert any(misspelled.found({name: 1, "node_devices_own_variables": ["other"]}))
    assert any(misspelled.found({name: 1, "node_devices_own_variables": name}))


def documented():
    """Each variable of ours in the documentation, except results that plays register."""
    text = "".join(path.read_text() for path in [*CHECKOUT.glob("docs/*.md"), *CHECKOUT.glob("roles/*/README.md")])
    text = re.sub(r"## Misspelled variables\n.*?\n## ", "", text, flags=re.DOTALL)
    return sorted(set(re.findall(r"`((?:node_devices|device_plugin|node_tools|host_devices)_\w+)`", text)))


def test_every_documented_variable_is_known():
    names = documented()
    assert len(names) > 30
    assert misspelled.found(dict.fromkeys(names, 1)) == ([], [])


def test_the_variables_of_our_own_inventories_are_known():
    paths = [*CHECKOUT.glob("inventories/**/*.yml"), *CHECKOUT.glob("molecule/*/inventory/**/*.yml")]
    names = {name for path in paths for name in (yaml.safe_load(path.read_text()) or {})}
    assert len(names) > 30
    assert misspelled.found(dict.fromkeys(names, 1)) == ([], [])


def test_the_variables_of_the_playbooks_are_those_of_their_page():
    page = (CHECKOUT / "docs" / "playbooks.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(node_devices_\w+)` \|", page, re.MULTILINE))
    batches = {"node_devices_serial", "node_devices_max_fail_percentage", "node_devices_hosts"}
    assert all(f"`{name}`" in page for name in batches)
    assert set(misspelled._OF_PLAYBOOKS.split()) == listed | batches
