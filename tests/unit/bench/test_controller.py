"""The controller's CPU time: simulated hosts answer as nodes on which nothing is to do, else nothing is measured."""

from __future__ import annotations

import subprocess

import pytest
from bench import controller
from bench.plays import CHECKOUT, Run

# Two runs of site.yml.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", name="simulated")
def _simulated(tmp_path_factory):
    return controller.Simulated(CHECKOUT, tmp_path_factory.mktemp("bench") / "0", 2)


def test_a_run_executes_three_times_a_host_and_its_cpu_time_is_that_of_its_processes(simulated):
    run = simulated.run()
    modules = [line.rpartition(": ")[2] for line in run.executions if "nodedevices" in line.rpartition(": ")[2]]
    names = ("lock", "lock", "preflight", "preflight")
    assert sorted(modules) == [f"nodedevices.kubernetes.node_{name}" for name in names]
    assert len(run.executions) == 6
    # One host's task alone takes this long.
    assert run.cpu > 1


def test_a_run_that_executes_other_modules_is_no_measurement(simulated, monkeypatch):
    run = Run(1.0, [], ["Task: a module"] * 7, 0, 1.0)
    monkeypatch.setattr(controller, "play", lambda *_arguments, **_options: run)
    with pytest.raises(RuntimeError, match=r"executed: Task: a module$"):
        simulated.run()
    # Nothing holds the run before the measurement to it.
    assert simulated.run(may_change=True) == run


def test_commits_are_measured_in_turn(monkeypatch, tmp_path):
    seconds = {"ours": iter((3.0, 1.0, 2.0)), "theirs": iter((0, 5.0, 7.0, 6.0))}
    ran = []

    class Simulated:
        def __init__(self, checkout, scratch, count):
            self.name, self.count = checkout, count

        def run(self, may_change=False):
            ran.append((self.name, may_change))
            return type("Run", (), {"cpu": next(seconds[self.name]), "pss": 90e6})

    monkeypatch.setattr(controller, "Simulated", Simulated)
    figure, memory = controller.measured(["ours", "theirs"], tmp_path, 40, 3)
    assert (figure.ours, figure.floor, figure.unit) == (2.0, 6.0, "s")
    assert figure.name == "no change, 40 simulated hosts: the controller's CPU time, median of 3"
    assert (memory.ours, memory.unit, memory.most) == (90, "MB", 1200)
    assert ran == [("theirs", True), *[("ours", False), ("theirs", False)] * 3]


def test_a_commit_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("BENCH_AGAINST", "none-such")
    with pytest.raises(RuntimeError, match=r"^BENCH_AGAINST=none-such: .*none-such"):
        controller.measure()


def test_the_other_commits_checkout_goes_afterwards(tmp_path):
    directory = tmp_path / "commit"
    with controller._checkout_of("HEAD", directory) as checkout:
        assert (checkout / "playbooks" / "site.yml").exists()
    assert not directory.exists()
    assert str(directory) not in subprocess.check_output(["git", "worktree", "list"], cwd=CHECKOUT, text=True)
