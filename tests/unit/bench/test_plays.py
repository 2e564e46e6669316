"""A measured play: its tasks' times, executions and memory; and one that changes, fails, or reaches nobody."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from bench import plays

PING, CHANGE = {"ansible.builtin.ping": {}}, {"ansible.builtin.command": "true"}


@pytest.fixture
def run(tmp_path):
    """Runs tasks on two hosts, which are this machine."""

    def run_tasks(*tasks, settings=None, may_change=False, **more):
        inventory = tmp_path / "inventory"
        inventory.mkdir()
        host = {"ansible_connection": "local", "ansible_pipelining": True, **more}
        host["ansible_python_interpreter"] = sys.executable
        hosts = {name: {**host, "ansible_host": name} for name in ("one", "other")}
        (inventory / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
        playbook = tmp_path / "book.yml"
        named = [{"name": f"Task {number}", **task} for number, task in enumerate(tasks)]
        playbook.write_text(json.dumps([{"name": "Play", "hosts": "all", "gather_facts": False, "tasks": named}]))
        return plays.play(playbook, inventory, settings, may_change)

    return run_tasks


def test_tasks_executions_and_memory(run):
    result = run(PING, PING)
    assert [task["task"] for task in result.tasks] == ["Task 0", "Task 1"]
    assert result.seconds == pytest.approx(sum(task["seconds"] for task in result.tasks))
    assert sorted(result.executions) == [f"Task {number}: ansible.builtin.ping" for number in (0, 0, 1, 1)]
    # ansible-playbook alone has more.
    assert result.pss > 20e6
    assert 0.3 < result.cpu < 60


def test_a_play_that_changes_something_is_no_measurement(run):
    with pytest.raises(RuntimeError, match=r"book\.yml failed or changed something:(.|\n)*changed=1"):
        run(CHANGE)


def test_a_change_may_be_allowed_and_settings_are_ansibles(run):
    code = "import time\nwhile time.process_time() < 2: pass"
    burn = {"ansible.builtin.command": {"argv": [sys.executable, "-c", code]}}
    result = run(burn, may_change=True, settings={"ANSIBLE_FORKS": "1"})
    # The processes of tasks, and theirs, count too: two seconds a host.
    assert result.cpu > 4
    assert result.seconds > 4


def test_a_play_that_fails_is_none_either(run):
    with pytest.raises(RuntimeError, match=r"book\.yml failed or changed something:(.|\n)*failed=1"):
        run({"ansible.builtin.fail": {"msg": "so"}})


def test_nobody_is_reached(run, tmp_path):
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexit 255\n")
    ssh.chmod(0o755)
    with pytest.raises(plays.Unreachable):
        run(PING, ansible_connection="ssh", ansible_ssh_executable=str(ssh))


@pytest.mark.parametrize(
    ("name", "least", "most_of_all"), [("ansible", 120e6, 400e6), ("ssh", 60e6, 110e6)], ids=["all", "not-the-labs-way"]
)
def test_the_memory_of_descendants_is_counted(tmp_path, name, least, most_of_all):
    code = "import subprocess, sys; b = bytearray(60_000_000); print('there', flush=True); "
    inner = code + "sys.stdin.read()"
    outer = code + f"subprocess.run([sys.executable, '-c', {inner!r}])"
    program = tmp_path / name
    program.symlink_to(sys.executable)
    process = subprocess.Popen([program, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with plays.watched(process.pid) as most:
        process.stdout.readline()
        process.stdout.readline()
        deadline = time.monotonic() + 20
        while most[0] < least and time.monotonic() < deadline:
            time.sleep(0.05)
        # One look more, at both of them.
        time.sleep(1.2)
        process.stdin.close()
        process.wait()
        process.stdout.close()
    assert least < most[0] < most_of_all
