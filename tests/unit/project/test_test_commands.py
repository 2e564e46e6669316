"""tests/run: the steps of a test command, the programs that judged, and what was left out."""

from __future__ import annotations

import os
import subprocess

import pytest
from documented_blocks import ROOT

MAKE = """#!/bin/sh
case $2 in
  programs) exit ${BUILD:-0} ;;
  check) echo "judged by: kube-apiserver v1.37.2" ;;
  scenario-default) echo "    msg: 'node1 runs $KUBELET over containerd 2.4.2 (Debian forky)'" ;;
  scenario-devices) echo "devices ➜ side_effect: Executed: Missing playbook (Remove from test_sequence to suppress)" ;;
  scenario-*) echo "    msg: 'skipped: CRI-O'" ;;
  broken) echo "fatal: [node1]: FAILED! =>"; echo "    msg: no address"; exit 3 ;;
esac
"""


@pytest.fixture
def run(tmp_path):
    make = tmp_path / "make"
    make.write_text(MAKE)
    make.chmod(0o755)

    def run_steps(*steps, beside=(), needs=(), **environment):
        given = {"KUBELET": "kubelet v1.37.2", **environment}
        command = [ROOT / "tests" / "run", "make it", make, *steps, "--two-at-a-time", *beside]
        command += ["--needs-programs", *needs]
        done = subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()

    return run_steps


def test_the_last_lines_say_which_programs_judged(run):
    code, lines = run("check", "scenario-default")
    assert code == 0
    assert lines[-1] == "judged by: containerd 2.4.2 (1), kube-apiserver v1.37.2 (1), kubelet v1.37.2 (1)"
    assert [line.split()[-1] for line in lines[-3:-1]] == ["check", "scenario-default"]


def test_the_stand_in_is_said_loudly(run):
    _code, lines = run("scenario-default", KUBELET="stand-in kubelet")
    assert lines[-1] == "The tests used the stand-in kubelet. To test with the real kubelet, first run: make kubernetes"


def test_a_step_that_fails_ends_the_run(run):
    code, lines = run("check", "broken", "scenario-default")
    assert code == 1
    assert lines[-1].startswith("failed: broken; not run: scenario-default;")


def test_the_end_says_again_what_failed(run):
    """Another step may have printed for minutes since."""
    _code, lines = run("check", beside=["broken", "scenario-default"])
    at = lines.index("=== make it: failures in broken")
    assert lines[at + 1 : at + 3] == ["fatal: [node1]: FAILED! =>", "    msg: no address"]


def test_two_steps_run_at_a_time_and_each_is_shown_whole(run, tmp_path):
    """Each waits for the other, and says so in the end."""
    words = [f"touch {tmp_path}/{me}; until [ -e {tmp_path}/{you} ]; do sleep 0.01; done" for me, you in ("ab", "ba")]
    (tmp_path / "make").write_text(
        f"#!/bin/sh\necho $2 begins\ncase $2 in a) {words[0]} ;; b) {words[1]} ;; esac\necho $2 ends\n"
    )
    code, lines = run("check", beside=["a", "b"])
    assert code == 0
    for step in ("a", "b"):
        at = lines.index(f"=== make it: {step}")
        assert lines[at + 1 : at + 3] == [f"{step} begins", f"{step} ends"]


def test_what_judged_and_what_failed_is_read_of_steps_at_a_time_too(run):
    code, lines = run("check", beside=["scenario-default"])
    assert (code, lines[-1][:24]) == (0, "judged by: containerd 2.")
    code, lines = run("check", beside=["broken", "broken", "scenario-default"])
    assert code == 1
    assert "failed: broken" in lines[-1]
    assert "not run: scenario-default;" in lines[-1]


def test_one_step_can_be_made_alone_after_the_programs(run):
    code, lines = run("--only", "scenario-default", "programs", "check", beside=["scenario-default", "broken"])
    assert (code, lines[-1][:24]) == (0, "judged by: containerd 2.")
    assert [line.split()[-1] for line in lines[-3:-1]] == ["programs", "scenario-default"]
    assert run("--only", "scenario-defalt", "programs", "check")[0] == 2


def test_programs_that_cannot_be_built_fail_the_run(run):
    code, lines = run("programs", "check", needs=["scenario-default"], BUILD="2")
    assert code == 1
    assert lines[-1].startswith("failed: programs; not run: check, scenario-default;")


def test_the_stand_in_is_allowed_by_name_only(run):
    code, lines = run("programs", "check", needs=["scenario-default"], BUILD="2", ALLOW_STAND_IN="1")
    assert code == 0
    assert lines[-1].endswith("these steps did not run: scenario-default")


def test_a_part_that_is_left_out_needs_an_entry(run):
    code, lines = run("scenario-airgap")
    assert (code, lines[-1]) == (1, "failed: skipped without an entry in tests/skips.yml: airgap: CRI-O")
    code, lines = run("scenario-devices")
    assert (code, lines[-1]) == (1, "failed: skipped without an entry in tests/skips.yml: devices: Missing playbook")
    code, lines = run("scenario-runtimes")
    assert (code, lines[-1]) == (0, "not run: CRI-O in scenario runtimes (reason: tests/skips.yml)")
