"""What uninstall.yml says at its end: that another run is needed, when, and why."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
AGAIN = "worker1: the uninstall is not complete."
FIVE = "Run uninstall.yml again in 5 minutes: the kubelet then no longer lists a.io/x, a.io/y"
POD = "pod default/app (container main) holds vendor.com/gpu=0"
UNKNOWN = "nobody knows which containers hold a CDI device: the command is of another release: run upgrade.yml"
ENDED = f"Run uninstall.yml again after these pods end: CDI stays on in the container runtime, because {POD}."
FIX = (
    f"CDI stays on in the container runtime, and the node keeps its command, because {UNKNOWN}. Fix this, then run "
    "uninstall.yml again."
)
HELD = "Run uninstall.yml again when no pod holds these devices: a.io/lamp=l."


@pytest.mark.parametrize(
    ("lingering", "kept", "cdi", "says"),
    [
        (["a.io/x", "a.io/y"], [], [], [FIVE]),
        ([], [{"device": "a.io/lamp=l", "reason": "held by default/a"}] * 2, [], [HELD]),
        (["a.io/x", "a.io/y"], [{"device": "a.io/lamp=l", "reason": "held"}, {"path": "/x"}], [], [FIVE, HELD]),
        ([], [], [POD, UNKNOWN], [ENDED, FIX]),
        ([], [], [UNKNOWN], [FIX]),
        ([], [], [], None),
        (None, None, None, None),
    ],
)
def test_the_end_says_that_another_run_is_needed(tmp_path, lingering, kept, cdi, says):
    known = {} if lingering is None else {"extended_resources_result": {"lingering": lingering}}
    known.update({} if kept is None else {"cdi_specs_result": {"kept": kept}})
    known.update({} if cdi is None else {"cdi_runtime_result": {"kept": cdi}})
    task = {"ansible.builtin.import_tasks": str(CHECKOUT / "playbooks" / "tasks" / "left.yml")}
    play = {"hosts": "all", "gather_facts": False, "vars": known, "tasks": [task]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    program = pathlib.Path(sys.executable).parent / "ansible-playbook"
    command = [program, "-i", "worker1,", "play.yml"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (AGAIN in done.stdout) is bool(says)
    for line in says or ():
        assert line in done.stdout
    # Waiting for pods does not help where nobody knows which pods.
    assert ("after these pods end" in done.stdout) is (ENDED in (says or ()))
    assert "\\n" not in done.stdout, "it is one line"


def test_the_uninstall_ends_with_it():
    (play,) = yaml.safe_load((CHECKOUT / "playbooks" / "uninstall.yml").read_text())
    assert json.dumps(play["tasks"][0]["block"][-2:]).count("tasks/left.yml") == 1
