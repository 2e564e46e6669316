"""Hooks and workflows call what everybody calls: make targets that are there."""

from __future__ import annotations

import re

import pytest
import the_project as project
import yaml
from command_lines import commands, problems
from documented_blocks import ROOT

CI, NIGHTLY, RELEASE = WORKFLOWS = [ROOT / ".github/workflows" / f"{name}.yml" for name in ("ci", "nightly", "release")]
STEP = "${{ matrix.step }}"


def made(commands_text):
    """The make targets of a script, and what it sets; it may do nothing else."""
    targets = []
    for command in commands(commands_text):
        assert command[0] == "make", command
        assert list(problems(command)) == []
        targets += command[1:]
    return targets


def test_every_hook_is_local_and_makes_something():
    configuration = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = []
    for repository in configuration["repos"]:
        assert repository["repo"] == "local"
        hooks += repository["hooks"]
    assert [made(hook["entry"]) for hook in hooks] == [["check"]]
    for hook in hooks:
        # make takes no names of files, and the tools come with make, not with pre-commit.
        assert (hook["language"], hook["pass_filenames"]) == ("system", False)


def test_the_workflow_makes_what_ci_makes():
    targets = []
    workflow = yaml.safe_load(CI.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 120
        assert "permissions" not in job
        for step in job["steps"]:
            assert set(step) in ({"run"}, {"uses", "with"}, {"uses", "if", "with"}), step
            if "run" in step:
                targets += made(step["run"].replace(STEP, "scenario-default"))
    assert sorted(targets) == ["ONLY=scenario-default", "check", "programs", "test-all"]
    # The same as .ci/run: all that it makes, and nothing beside it.
    assert {name for target in targets for name in project.reached_from(target, project.targets())} == project.in_ci()


JOBS = pytest.mark.parametrize(("workflow", "command"), [(CI, "test-all"), (NIGHTLY, "nightly")])


@JOBS
def test_each_step_is_a_job_of_its_own(workflow, command):
    job = yaml.safe_load(workflow.read_text())["jobs"][command]
    steps = project.targets()[command].leads_to - {"system", "dev", "packages", "programs"}
    assert sorted(job["strategy"]["matrix"]["step"]) == sorted(steps)
    assert [step["run"] for step in job["steps"] if "run" in step] == [f"make {command} ONLY={STEP}"]


@JOBS
def test_a_workflow_keeps_the_evidence_of_a_failure(workflow, command):
    """Without include-hidden-files the action leaves out all of a directory whose name begins with a dot."""
    steps = yaml.safe_load(workflow.read_text())["jobs"][command]["steps"]
    assert (steps[-1]["uses"].split("@")[0], steps[-1]["if"]) == ("actions/upload-artifact", "${{ !success() }}")
    assert steps[-1]["with"]["path"] == ".evidence/"
    assert steps[-1]["with"]["include-hidden-files"] is True
    assert "/.evidence/" in (ROOT / ".gitignore").read_text().splitlines()
    assert ".evidence" in yaml.safe_load((ROOT / "galaxy.yml").read_text())["build_ignore"]


def test_every_scenario_keeps_the_evidence_of_a_failure():
    """molecule runs its cleanup after a failure if no sequence has it."""
    for path in (ROOT / "molecule").glob("*/molecule.yml"):
        scenario = yaml.safe_load(path.read_text())
        playbooks = scenario["ansible"]["playbooks"]
        assert playbooks["cleanup"] == "../shared/evidence.yml", path
        create = (path.parent / playbooks["create"]).read_text()
        assert "shared/create" in create or "evidence_absent.yml" in create, path
        for sequence in scenario["scenario"].values():
            assert "cleanup" not in sequence, path


def test_neither_is_part_of_the_collection():
    ignored = yaml.safe_load((ROOT / "galaxy.yml").read_text())["build_ignore"]
    assert {".git*", ".pre-commit*"} <= set(ignored)


def test_workflows_run_actions_by_commit_and_leave_no_token_in_the_checkout():
    assert set(WORKFLOWS) == set((ROOT / ".github/workflows").iterdir())
    jobs = [job for path in WORKFLOWS for job in yaml.safe_load(path.read_text())["jobs"].values()]
    steps = [step for job in jobs for step in job["steps"] if "uses" in step]
    assert steps
    for step in steps:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"])
        if step["uses"].startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_a_release_is_built_once_from_its_tag_and_each_job_may_publish_to_one_place():
    workflow = yaml.safe_load(RELEASE.read_text())
    # PyYAML reads the key `on` as true.
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    jobs = workflow["jobs"]
    built = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert [made(each)[:2] for each in built] == [["release", "RELEASE_TAG=$GITHUB_REF_NAME"]]
    attests = {"id-token": "write", "attestations": "write"}
    assert {name: job["permissions"] for name, job in jobs.items()} == {
        "build": {"contents": "read", **attests},
        "registry": {"contents": "read", "packages": "write", **attests},
        "pypi": {"id-token": "write"},
        "galaxy": {},
        "github": {"contents": "write"},
    }
    for name, job in jobs.items():
        uses = [step["uses"].split("@")[0] for step in job["steps"] if "uses" in step]
        assert job["timeout-minutes"] <= 60
        # A job that may publish runs no code of the checkout.
        assert ("actions/checkout" in uses) is (name == "build")
        assert name == "build" or uses[0] == "actions/download-artifact"
    assert set(jobs["github"]["needs"]) == jobs.keys() - {"build", "github"}


def test_no_expression_is_part_of_a_script():
    """A name of a tag or branch could otherwise be a command."""
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text())["jobs"].values():
            assert not [step["run"] for step in job["steps"] if "${{" in step.get("run", "").replace(STEP, "")]


def test_the_forms_for_issues_ask_for_commands_that_are_there():
    texts = [path.read_text() for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")]
    asked = [command for text in texts for command in re.findall(r"`(?:[^`]* -- )?(node-device-plugin [^`]+)`", text)]
    assert sorted(asked) == [f"node-device-plugin {name}" for name in ("doctor", "scan", "status")]
    assert [list(problems(each)) for text in asked for each in commands(text)] == [[], [], []]
