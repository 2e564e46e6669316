"""Variables that are held to several roles' argument specs at once, before the first of them does anything."""

from __future__ import annotations

import pathlib

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration, role_arguments

ROOT = pathlib.Path(__file__).resolve().parents[3]
OURS = "nodedevices.kubernetes."


def problems(*roles, **variables):
    return role_arguments.checked(roles, variables, lambda value: value, declaration.failed_expression)[0]


def test_what_is_right():
    given = {"cdi_runtime_max_parallel_restarts": 2, "verification_devices": "all"}
    assert problems("cdi_runtime", "verification", **given) == []
    assert problems("cdi_runtime") == []


def test_each_of_several_roles_is_held_to_its_spec():
    lines = problems(
        "cdi_runtime", "verification", cdi_runtime_max_parallel_restarts="many", verification_devices="some", other=1
    )
    assert len(lines) == 2
    assert any("cdi_runtime_max_parallel_restarts" in line and "many" in line for line in lines)
    assert any("verification_devices" in line and "some" in line for line in lines)


def test_of_a_role_that_is_not_asked_for_nothing_is_said():
    assert problems("verification", cdi_runtime_max_parallel_restarts="many") == []


def test_the_declaration_is_left_to_its_own_schema():
    assert problems("cdi_specs", node_devices_resources="many", node_devices_settings=1) == []


@pytest.mark.parametrize("role", ["cdi_specs", "device_plugin", "verification"])
def test_a_role_alone_accepts_short_forms(role):
    """Ansible refuses text where a spec has elements: dict."""
    spec = yaml.safe_load((ROOT / f"roles/{role}/meta/argument_specs.yml").read_text())
    option = spec["argument_specs"]["main"]["options"]["node_devices_resources"]
    given = {"declared": [{"name": "example.com/dev", "devices": ["/dev/a", {"id": "b", "nodes": ["/dev/b"]}]}]}
    result = ArgumentSpecValidator({"declared": option}).validate(given, validate_role_argument_spec=True)
    assert (result.error_messages, result.validated_parameters) == ([], given)


def test_no_such_role():
    with pytest.raises(AnsibleError, match="somewhere is not a role of this collection with argument specs"):
        problems("somewhere")


def tasks_of(content):
    for task in content:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part, []))


def test_site_holds_its_variables_to_every_role_that_does_not_do_so_itself():
    first, play, *_others = yaml.safe_load((ROOT / "playbooks/site.yml").read_text())
    (checked,) = [task[f"{OURS}declaration"] for task in first["tasks"] if f"{OURS}declaration" in task]
    imported = [
        task["ansible.builtin.import_role"] for task in tasks_of(play["tasks"]) if "ansible.builtin.import_role" in task
    ]
    entered = {
        each["name"].removeprefix(OURS)
        for each in imported
        if "tasks_from" in each or not each.get("rolespec_validate", True)
    }
    assert entered == set(checked["roles"])
    assert len(entered) == 7


def test_a_second_host_is_held_to_the_same():
    """Ansible's validator fills in defaults where they stand."""
    for _host in range(2):
        assert problems("device_plugin", device_plugin_deployment={"name": "a"}) == []
        assert problems("device_plugin") == []
