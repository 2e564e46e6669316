"""The judge of scenario operator_day finds each way in which a workload can be hurt, and nothing else."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

JUDGE = pathlib.Path(__file__).parents[3] / "molecule/operator_day/judge.py"


def pod(name="a", **other):
    containers = other.pop("containers", [{"name": "main", "restarts": 0, "ready": True, "running": True}])
    state = {"event": "MODIFIED", "node": "n", "wants": 1, "to_end": False, "to_restart": 0, "deleting": False}
    state.update(phase="Running", reason="", message="", disruption=[], containers=containers)
    return {"kind": "pod", "name": name, "uid": f"uid of {name}", **state, **other}


def restarts(count, ready=True):
    return [{"name": "main", "restarts": count, "ready": ready, "running": True}]


def seen(name="a", devices=("day0",), restarts=0, node="n"):
    record = {"kind": "seen", "name": name, "uid": f"uid of {name}", "node": node}
    return {**record, "container": "main", "restarts": restarts, "devices": list(devices)}


@pytest.fixture
def judge(tmp_path):
    """judge(records) gives the exit code, and the lines that say what was hurt."""

    def run(*records):
        path = tmp_path / "records"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        done = subprocess.run([sys.executable, JUDGE, path], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.splitlines()

    return run


FINE = {
    "one that runs": [pod(phase="Pending", containers=[]), pod(), seen()],
    "one that its user ends": [
        *(pod(), seen(), pod(to_end=True), pod(to_end=True, deleting=True)),
        pod(to_end=True, event="DELETED", deleting=True, phase="Failed", containers=restarts(0, ready=False)),
        *(pod("b"), seen("b")),
    ],
    "a restart that was asked for": [
        *(pod(), seen(), pod(to_restart=1), pod(to_restart=1, containers=restarts(0, ready=False))),
        *(pod(to_restart=1, containers=restarts(1)), seen(restarts=1)),
    ],
    "the same name on two nodes": [pod(), seen(), pod("b", node="m"), seen("b", node="m")],
}
HURT = {
    "deletion": ([pod(deleting=True), seen(), pod(event="DELETED", deleting=True)], "a was deleted"),
    "eviction": (
        [pod(), seen(), pod(phase="Failed", reason="Evicted", message="low on disk")],
        "a is Failed (Evicted: low on disk)",
    ),
    "preemption": (
        [pod(), seen(), pod(disruption=["PreemptionByScheduler"]), pod()],
        "a was disrupted: PreemptionByScheduler",
    ),
    "refused admission": (
        [pod(phase="Failed", reason="UnexpectedAdmissionError", message="no device", containers=[])],
        "a is Failed (UnexpectedAdmissionError: no device)",
    ),
    "an end of its own": ([pod(), seen(), pod(phase="Succeeded")], "a is Succeeded"),
    "a restart": (
        [pod(), seen(), pod(containers=restarts(1)), seen(restarts=1)],
        "a was restarted 1 times, and not 0 times",
    ),
    "a restart that was to come": ([pod(), seen(), pod(to_restart=1)], "a was restarted 0 times, and not 1 times"),
    "a container that stays away": (
        [pod(), seen(), pod(containers=restarts(0, ready=False))],
        "a does not run: Running",
    ),
    "other devices after a restart": (
        [pod(), seen(), pod(to_restart=1, containers=restarts(1)), seen(devices=["day1"], restarts=1)],
        "a sees ['day1'] after restart 1, and ['day0'] after restart 0",
    ),
    "no device": ([pod(), seen(devices=[])], "a sees [], and wants 1"),
    "silence": ([pod()], "a never said what it sees after restart 0"),
    "a device of two pods": ([pod(), seen(), pod("b"), seen("b")], "b has day0, which a has"),
    "nothing that was watched": ([], "no workload was watched"),
}


@pytest.mark.parametrize("records", FINE.values(), ids=FINE)
def test_what_is_meant_to_happen_hurts_nobody(judge, records):
    assert judge(*records) == (0, [])


@pytest.mark.parametrize(("records", "said"), HURT.values(), ids=HURT)
def test_each_hurt_is_found(judge, records, said):
    assert judge(*records) == (1, [said])
