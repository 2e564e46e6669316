"""The roles' options: described, with the defaults that the roles have, and the declaration's from its schema."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
ROLES = {path.name: path for roles in ("roles", "lab/roles") for path in (CHECKOUT / roles).iterdir() if path.is_dir()}


@pytest.mark.parametrize("name", sorted(ROLES))
def test_options_and_defaults_agree(name):
    defaults = yaml.safe_load((ROLES[name] / "defaults" / "main.yml").read_text())
    specs = yaml.safe_load((ROLES[name] / "meta" / "argument_specs.yml").read_text())["argument_specs"]
    options = {option: spec for entry in specs.values() for option, spec in entry["options"].items()}
    own = {option: spec.get("default") for option, spec in options.items() if option.startswith(name + "_")}
    assert own == defaults


@pytest.mark.parametrize("name", sorted(name for name in ROLES if not name.startswith("lab_")))
def test_every_variable_of_a_host_that_a_role_reads_is_an_option_of_it(name):
    (spec,) = yaml.safe_load((ROLES[name] / "meta" / "argument_specs.yml").read_text())["argument_specs"].values()
    parts = [path for part in ("tasks", "vars", "defaults", "templates") for path in ROLES[name].glob(f"{part}/*")]
    read = {found for path in parts for found in re.findall(r"\bnode_devices_\w+", path.read_text())}
    # The first is a play's registered look at the node, and vars/main.yml of node_tools sets the second for all roles.
    assert read - {"node_devices_node", "node_devices_converge"} <= set(spec["options"])


@pytest.mark.parametrize("name", sorted(ROLES))
def test_described(name):
    assert (ROLES[name] / "README.md").read_text().startswith(f"# {name}\n")


def test_the_declarations_options_are_the_schemas():
    command = [sys.executable, str(CHECKOUT / "tools" / "generate_argument_specs"), "--check"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""


def _tasks(tasks):
    for task in tasks or ():
        yield task
        for part in ("block", "rescue", "always"):
            yield from _tasks(task.get(part))


def _of_roles():
    paths = sorted(
        path for name in ROLES if ROLES[name].parent.parent == CHECKOUT for path in ROLES[name].glob("tasks/*")
    )
    return [(path, task) for path in paths for task in _tasks(yaml.safe_load(path.read_text()))]


@pytest.mark.parametrize("module", ["command", "shell"])
def test_no_command_that_check_mode_skips_is_a_change(module):
    """A check would not foretell it; a module of ours beside it says what changes."""
    tasks = [(path, task) for path, task in _of_roles() if f"ansible.builtin.{module}" in task]
    told = [
        task["name"]
        for _path, task in tasks
        if task["changed_when"] is not False and task.get("check_mode") is not False
    ]
    assert told == []


def test_what_a_switch_of_the_mode_needs_for_a_moment_is_no_change():
    """The check has not the file that the run takes away."""
    files = [
        task
        for path, task in _of_roles()
        if path.name == "from_daemonset.yml" and "block" not in task and "/run/node-device-plugin.env" in str(task)
    ]
    assert [task["changed_when"] for task in files] == [False] * 2


def test_no_module_of_ansible_runs_on_a_node():
    """Ansible makes variables of what such a module answers. Our actions do not."""
    on_controller = {"debug", "fail", "import_playbook", "import_role", "import_tasks", "include_role"}
    on_controller |= {"include_tasks", "meta", "set_fact"}
    used = set()
    for path in (*CHECKOUT.glob("roles/*/*/*.yml"), *CHECKOUT.glob("playbooks/**/*.yml")):
        used.update(re.findall(r"ansible\.(?:builtin|legacy)\.([a-z_]+):", path.read_text()))
        # A module without its collection's name.
        assert not re.search(
            r"^\s+(command|copy|file|find|setup|shell|stat|systemd\w*):$", path.read_text(), re.MULTILINE
        )
    assert used == on_controller


def test_no_task_takes_the_check_mode_of_the_whole_run_for_its_own():
    """A play may set `check_mode: true` for a role alone. Its tasks then deleted files."""
    for path in [*CHECKOUT.glob("roles/*/tasks/*.yml"), *CHECKOUT.glob("playbooks/**/*.yml")]:
        if path.parent.name == "vars":
            continue
        if not path.parts[-3].startswith("lab_"):
            assert "ansible_check_mode" not in path.read_text(), path
        for task in _tasks(yaml.safe_load(path.read_text())):
            # Such a task runs in check mode, so its command must not change anything.
            assert task.get("check_mode") is not False or "--dry-run" in str(task), task["name"]
