"""The lab raises the machine's limit of inotify instances before it makes nodes, or names the command that does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[3] / "lab/roles/lab_node/files/inotify_instances"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the program for a user who may write what the test writes."""
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$1" != -n ] || shift\nexec "$@"\n')
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return lambda *arguments: subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("before", "after"), [("128", "1024"), ("1024", "1024"), ("8192", "8192")])
def test_a_low_limit_is_raised_and_a_high_one_stays(run, tmp_path, before, after):
    limit = tmp_path / "limit"
    limit.write_text(f"{before}\n")
    done = run("3", limit)
    assert (done.returncode, done.stderr) == (0, "")
    assert limit.read_text() == f"{after}\n"
    raised = f"raised fs.inotify.max_user_instances of this machine from {before} to {after}, until its next boot\n"
    assert done.stdout == (raised if before != after else "")


def test_where_it_cannot_be_raised_the_command_is_named(run):
    """A limit of the kernel's that not even root may write: 40 or so."""
    limit = "/proc/sys/kernel/cap_last_cap"
    done = run("100", limit)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("100 more nodes need about 2000 inotify instances, but ")
    assert "run `sysctl --write fs.inotify.max_user_instances=1024` as root" in done.stderr
    assert done.stderr.count("\n") == 1
    # Nothing is in the way of no more nodes, as long as anything is free.
    assert run("-99", limit).returncode == 0
