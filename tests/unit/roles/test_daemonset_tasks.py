"""The tasks that one DaemonSet needs once, whatever the number of hosts."""

import pathlib

import pytest
import yaml

TASKS = pathlib.Path(__file__).resolve().parents[3] / "roles" / "device_plugin" / "tasks"
SHARED = ("deployed", "left", "absent")


def _steps():
    found = []
    for path in sorted(TASKS.glob("*.yml")):
        tasks = yaml.safe_load(path.read_text())
        for position, task in enumerate(tasks):
            state = task.get("nodedevices.kubernetes.daemonset", {}).get("state")
            if state in SHARED:
                found.append(pytest.param(task, tasks[position + 1], id=f"{path.name}-{state}"))
    return found


def test_each_shared_step_stands_once():
    assert sorted(step.id.rpartition("-")[2] for step in _steps()) == sorted(SHARED)


@pytest.mark.parametrize(("step", "after"), _steps())
def test_a_shared_step_runs_once_and_fails_each_host(step, after):
    """A failed run_once task would end the other hosts without rescue and always."""
    assert step["run_once"] is True
    assert step["ignore_errors"] is True
    assert "ansible.builtin.fail" in after
    assert after["when"] == f"{step['register']} is failed"
