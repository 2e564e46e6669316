"""Variables that are held to several roles' argument specs at once, before the first of them does anything."""

from __future__ import annotations

import pathlib
import types

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import role_arguments

ROOT = pathlib.Path(__file__).resolve().parents[3]
OURS = "nodedevices.kubernetes."


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_action(*roles, **variables):
        action = object.__new__(role_arguments.ActionModule)
        action._task = types.SimpleNamespace(args={"roles": list(roles)})
        action._templar = types.SimpleNamespace(template=lambda value: value)
        return action.run(None, {"inventory_hostname": "node1", **variables})

    return run_action


def test_what_is_right(run):
    assert run("cdi_runtime", "verification", cdi_runtime_at_once=2, verification_devices="all") == {"changed": False}
    assert run("cdi_runtime") == {"changed": False}


def test_each_of_several_roles_is_held_to_its_spec(run):
    result = run("cdi_runtime", "verification", cdi_runtime_at_once="many", verification_devices="some", other=1)
    assert result["failed"] is True
    lines = result["msg"].splitlines()
    assert len(lines) == 2
    assert all(line.startswith("node1: ") for line in lines)
    assert any("cdi_runtime_at_once" in line and "many" in line for line in lines)
    assert any("verification_devices" in line and "some" in line for line in lines)


def test_of_a_role_that_is_not_asked_for_nothing_is_said(run):
    assert run("verification", cdi_runtime_at_once="many") == {"changed": False}


def test_no_such_role(run):
    with pytest.raises(AnsibleError, match="there is no role somewhere with argument specs"):
        run("somewhere")


def tasks_of(content):
    for task in content:
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part, []))


def test_site_holds_its_variables_to_every_role_that_does_not_do_so_itself():
    (play,) = [each for each in yaml.safe_load((ROOT / "playbooks/site.yml").read_text()) if "pre_tasks" in each]
    (checked,) = [task[f"{OURS}role_arguments"] for task in play["pre_tasks"] if f"{OURS}role_arguments" in task]
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
