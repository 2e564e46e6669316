"""tests/run: the steps of a test command, the programs that judged, what was left out, and what the machine lost."""

from __future__ import annotations

import os
import re
import subprocess

import pytest
import yaml
from documented_blocks import ROOT

LEFT_OUT = ROOT / "molecule/shared/tasks/left_out.yml"
#: As Ansible shows the task's message.
MARK = "    msg: '%s'" % yaml.safe_load(LEFT_OUT.read_text())[0]["ansible.builtin.debug"]["msg"]
MAKE = (
    """#!/bin/sh
case $2 in
  programs) exit ${BUILD:-0} ;;
  check) echo "judged by: kube-apiserver v1.37.2" ;;
  newcomer) echo "judged by: containerd 1.7.24 (1), stand-in kubelet (2)" ;;
  scenario-default) echo "    msg: 'node1 runs $KUBELET over containerd 2.4.2 (Debian forky)'" ;;
  scenario-devices) echo "WARNING  devices ➜ verify: Executed: Missing playbook (Remove from test_sequence ...)" ;;
  scenario-drift) cat <<'END'
diff skipped: source file appears to be binary
skipping: [drift-node1]
node1 : ok=9 changed=0 unreachable=0 failed=0 skipped=5 rescued=0 ignored=0
    msg: 'skipped: a part'
INFO     drift ➜ verify: Executed: Successful
drift : actions=12  successful=12  disabled=0  skipped=0  missing=0  failed=0
END
    ;;
  scenario-*) echo "MARK" ;;
  broken) echo "fatal: [node1]: FAILED! =>"; echo "    msg: no address"; exit 3 ;;
  long) cat <<'END'; exit 3 ;;
[ERROR]: Task failed
fatal: [node1]: FAILED! =>
    cmd: |-
        set -eu

        rm a
    delta: '0:00:01'
    stderr: |-
        rm: a: No such file
    stderr_lines: <omitted>
END
  stray) mkdir -p $MACHINE/var/run/cdi; touch $MACHINE/var/run/cdi/a.json ;;
  packages) touch $MACHINE/etc/compiler; exit ${BUILD:-0} ;;
esac
"""
).replace("MARK", MARK.replace("{{ left_out }}", "CRI-O"))


@pytest.fixture
def run(tmp_path):
    make, machine = tmp_path / "make", tmp_path / "machine"
    make.write_text(MAKE)
    make.chmod(0o755)
    (machine / "etc").mkdir(parents=True)

    def run_steps(*steps, beside=(), needs=(), **environment):
        given = {"KUBELET": "kubelet v1.37.2", "MACHINE": str(machine), **environment}
        command = [ROOT / "tests" / "run", "make it", make, "--machine", machine, *steps, "--beside", *beside]
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


def test_the_end_shows_the_error_of_a_command_that_is_long(run):
    _code, lines = run("check", beside=["long"])
    at = lines.index("=== make it: failures in long")
    assert lines[at + 2 : at + 6] == [
        "fatal: [node1]: FAILED! =>",
        "    delta: '0:00:01'",
        "    stderr: |-",
        "        rm: a: No such file",
    ]


def test_steps_run_at_a_time_and_each_is_shown_whole(run, tmp_path):
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
    code, lines = run("check", beside=["broken", "broken", "broken", "scenario-default"])
    assert code == 1
    assert "failed: broken" in lines[-1]
    assert "not run: scenario-default;" in lines[-1]


def test_one_step_can_be_made_alone_after_the_programs(run):
    code, lines = run("--only", "scenario-default", "programs", "check", beside=["scenario-default", "broken"])
    assert (code, lines[-1][:24]) == (0, "judged by: containerd 2.")
    assert [line.split()[-1] for line in lines[-3:-1]] == ["programs", "scenario-default"]
    assert run("--only", "scenario-defalt", "programs", "check")[0] == 2


def test_what_comes_before_the_programs_is_made_alone_without_them(run):
    code, lines = run("--only", "newcomer", "newcomer", "packages", "programs", beside=["scenario-default"])
    assert code == 0
    assert [line.split()[-1] for line in lines if line.startswith("=== ")] == ["newcomer", "minutes"]


def test_a_step_without_nodes_runs_beside_all_others(run, tmp_path):
    """It waits for the last of the others."""
    wait = f"until [ -e {tmp_path}/last ]; do sleep 0.01; done; echo at last"
    (tmp_path / "make").write_text(
        f"#!/bin/sh\ncase $2 in slow) {wait} ;; last) touch {tmp_path}/last; exit 3 ;; esac\n"
    )
    code, lines = run("programs", "--without-nodes", "slow", beside=["first", "last"])
    assert code == 1
    at = lines.index("=== make it: slow")
    assert lines[at + 1] == "at last"
    assert lines[-1].startswith("failed: last; not run: nothing;")
    assert run("--only", "slow", "programs", "--without-nodes", "slow", beside=["last"])[0] == 0


def test_after_the_last_step_without_nodes_three_others_run_at_a_time(run, tmp_path):
    """Each of the three waits for the two others."""
    wait = f"touch {tmp_path}/$2; until [ -e {tmp_path}/a -a -e {tmp_path}/b -a -e {tmp_path}/c ]; do sleep 0.01; done"
    (tmp_path / "make").write_text(f"#!/bin/sh\ncase $2 in a|b|c) {wait} ;; esac\n")
    code, lines = run("programs", "--without-nodes", "first", beside=["a", "b", "c"])
    assert code == 0
    assert sorted(line.split()[-1] for line in lines[-6:-1]) == ["a", "b", "c", "first", "programs"]


def test_steps_without_nodes_run_one_after_the_other(run, tmp_path):
    first, second = (f"touch {tmp_path}/1; sleep 0.3; rm {tmp_path}/1", f"[ ! -e {tmp_path}/1 ]")
    (tmp_path / "make").write_text(f"#!/bin/sh\ncase $2 in first) {first} ;; second) {second} ;; esac\n")
    code, lines = run("programs", "--without-nodes", "first", "second")
    assert code == 0
    assert sorted(line.split()[-1] for line in lines[-4:-1]) == ["first", "programs", "second"]


def test_a_step_without_nodes_that_needs_the_programs_waits_for_them(run, tmp_path):
    """It runs once, beside a step with nodes, and not at all without the programs."""
    wait = f"until [ -e {tmp_path}/judge ]; do sleep 0.01; done"
    script = f"""#!/bin/sh
case $2 in
  programs) [ ! -e {tmp_path}/judge ]; exit ${{BUILD:-0}} ;;
  judge) touch {tmp_path}/judge ;;
  node) {wait} ;;
esac
"""
    (tmp_path / "make").write_text(script)
    code, lines = run("programs", "--without-nodes", "judge", beside=["node"], needs=["judge"])
    assert code == 0
    assert sorted(line.split()[-1] for line in lines[-4:-1]) == ["judge", "node", "programs"]
    code, lines = run("programs", "--without-nodes", "judge", needs=["judge"], BUILD="2", ALLOW_STAND_IN="1")
    assert (code, lines[-1].endswith("these steps did not run: judge")) == (0, True)


def test_programs_that_cannot_be_built_fail_the_run(run):
    code, lines = run("programs", "check", needs=["scenario-default"], BUILD="2")
    assert code == 1
    assert lines[-1].startswith("failed: programs; not run: check, scenario-default;")


def test_the_stand_in_is_allowed_by_name_only(run):
    code, lines = run("packages", "programs", "check", needs=["scenario-default"], BUILD="2", ALLOW_STAND_IN="1")
    assert code == 0
    assert lines[-1].endswith("these steps did not run: scenario-default")


def test_a_part_that_is_left_out_needs_an_entry(run):
    code, lines = run("scenario-airgap")
    assert (code, lines[-1]) == (1, "failed: skipped without an entry in tests/skips.yml: airgap: CRI-O")
    code, lines = run("check", beside=["scenario-airgap"])
    assert (code, lines[-1]) == (1, "failed: skipped without an entry in tests/skips.yml: airgap: CRI-O")
    code, lines = run("scenario-devices")
    assert (code, lines[-1]) == (1, "failed: skipped without an entry in tests/skips.yml: devices: Missing playbook")
    code, lines = run("scenario-runtimes")
    assert (code, lines[-1]) == (0, "not run: CRI-O in scenario runtimes (reason: tests/skips.yml)")


def test_other_programs_words_about_what_they_skip_are_no_mark(run):
    """A newcomer's `make test` failed for Ansible's "diff skipped"."""
    code, lines = run("scenario-drift")
    assert (code, lines[-1]) == (0, "judged by: no Kubernetes program")


def test_each_part_that_a_scenario_leaves_out_is_listed_and_no_other():
    left_out = set()
    for path in (ROOT / "molecule").glob("*/**/*.yml"):
        parts = re.findall(r"left_out\.yml\n +vars: \{left_out: (.+)\}", path.read_text())
        left_out |= {(path.relative_to(ROOT / "molecule").parts[0], part) for part in parts}
    listed = yaml.safe_load((ROOT / "tests/skips.yml").read_text())
    assert left_out == {(entry["scenario"], entry["says"]) for entry in listed if "scenario" in entry}


def test_a_run_inside_of_another_run_is_no_suite_s_program(run):
    code, lines = run("newcomer", "check")
    assert (code, lines[-1]) == (0, "judged by: kube-apiserver v1.37.2 (1)")


def test_a_step_that_changes_the_machine_fails_the_run_with_the_path(run):
    code, lines = run("check", "stray", "scenario-default")
    assert code == 1
    assert "new: /var/run/cdi/a.json (seen after stray)" in lines[-1]
    code, lines = run("check", "stray")
    assert code == 1
    assert "changed: /var/run/cdi/a.json (seen after stray)" in lines[-1]


def test_a_change_is_named_when_a_step_fails_too(run):
    code, lines = run("stray", "broken")
    assert code == 1
    assert "new: /var/run/cdi/a.json (seen after stray)" in lines[-2]


def test_the_step_that_installs_packages_may_change_the_machine(run):
    assert run("check", "packages", "check")[0] == 0
    code, lines = run("stray", "packages", "check")
    assert code == 1
    assert "new: /var/run/cdi/a.json" in lines[-1]
    assert "compiler" not in lines[-1]
