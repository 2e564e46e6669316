"""Which hosts the playbooks are for: those that are named, and never silently all of an inventory."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest
import yaml

PLAYBOOKS = pathlib.Path(__file__).resolve().parents[3] / "playbooks"
NAMES = ["migrate", "rollback", "scan", "site", "status", "uninstall", "upgrade", "validate", "verify"]
DATABASE = {"database": {"hosts": {"database1": {}}}}
WORKERS = {"workers": {"hosts": {"worker1": {}, "worker2": {}}}}
GROUP = {"node_devices": {"children": {"workers": {}}}}


def listed(tmp_path, name, groups, *arguments):
    """What ``ansible-playbook --list-hosts`` ends with and says, and the hosts of each play."""
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump({**DATABASE, **groups}))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    command = [program, "--inventory", inventory, PLAYBOOKS / f"{name}.yml", "--list-hosts", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"ANSIBLE_NOCOLOR": "1"})
    plays = re.findall(r"hosts \(\d+\):((?:\n +\S+)*)", done.stdout)
    return done.returncode, re.sub(r"\s+", " ", done.stderr), [sorted(hosts.split()) for hosts in plays]


@pytest.mark.parametrize("name", NAMES)
def test_without_a_word_of_the_nodes_nothing_begins(tmp_path, name):
    code, said, plays = listed(tmp_path, name, WORKERS)
    assert code != 0
    assert plays == []
    # Both fixes.
    assert "into this group, or set -e node_devices_hosts=PATTERN" in said


@pytest.mark.parametrize("name", NAMES)
def test_the_group_of_the_nodes_alone(tmp_path, name):
    code, said, plays = listed(tmp_path, name, {**WORKERS, **GROUP})
    assert (code, set(map(tuple, plays)) - {()}) == (0, {("worker1", "worker2")}), said


def test_a_pattern_goes_before_the_group(tmp_path):
    for groups in (WORKERS, {**WORKERS, **GROUP}):
        code, said, plays = listed(tmp_path, "site", groups, "-e", "node_devices_hosts=worker1:&workers")
        assert (code, set(map(tuple, plays)) - {()}) == (0, {("worker1",)}), said


@pytest.mark.parametrize("name", NAMES)
def test_a_pattern_that_matches_no_host_is_an_error(tmp_path, name):
    """The run did nothing, and ended well."""
    code, said, plays = listed(tmp_path, name, {**WORKERS, **GROUP}, "-e", "node_devices_hosts=wrokers")
    assert code != 0
    assert plays == []
    assert "node_devices_hosts is wrokers, which matches no host of the inventory: correct the pattern" in said


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("worker1:&database", False),
        ("worker[5:6]", False),
        ('["wroker1", "wroker2"]', False),
        ('["wroker1", "worker2"]', True),
        ("workers:!worker1", True),
        ("~work.*", True),
        ("empty", True),
    ],
)
def test_which_patterns_match_no_host(tmp_path, pattern, matches):
    chosen = pattern if pattern.startswith("[") else f'"{pattern}"'
    groups = {**WORKERS, **GROUP, "empty": {}}
    code, said, _plays = listed(tmp_path, "validate", groups, "-e", '{"node_devices_hosts": %s}' % chosen)
    assert (code == 0) is matches, said
    assert ("matches no host" in said) is not matches


@pytest.mark.parametrize("name", ["site", "uninstall"])
@pytest.mark.parametrize(("hosts", "plays_of"), [("worker1,worker2", ["worker1", "worker2"]), ("[]", [])])
def test_a_list_of_them_may_be_empty(tmp_path, name, hosts, plays_of):
    chosen = yaml.safe_dump({"node_devices_hosts": [] if hosts == "[]" else hosts.split(",")}, default_flow_style=True)
    code, said, plays = listed(tmp_path, name, {**WORKERS, **GROUP}, "-e", chosen)
    assert code == 0, said
    assert plays
    assert all(hosts == plays_of for hosts in plays)


def test_every_play_is_for_them():
    for path in PLAYBOOKS.glob("*.yml"):
        for play in yaml.safe_load(path.read_text()):
            if "ansible.builtin.import_playbook" not in play:
                assert play["hosts"] == "{{ node_devices_pattern }}", path
                assert play["vars_files"][0] == "vars/node_devices_hosts.yml", path


@pytest.mark.parametrize("directory", [PLAYBOOKS, PLAYBOOKS.parent / "lab" / "playbooks"], ids=["collection", "lab"])
def test_every_play_names_its_strategy(directory):
    """So a strategy in the user's ansible.cfg or ANSIBLE_STRATEGY does not count: all have tasks with run_once."""
    plays = [play for path in directory.glob("*.yml") for play in yaml.safe_load(path.read_text())]
    strategies = [play["strategy"] for play in plays if "ansible.builtin.import_playbook" not in play]
    assert set(strategies) == {"ansible.builtin.linear"}
