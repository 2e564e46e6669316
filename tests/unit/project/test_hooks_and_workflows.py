"""Hooks and workflows call what everybody calls: make targets that are there."""

from __future__ import annotations

import the_project as project
import yaml
from command_lines import commands, problems
from documented_blocks import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
#: What a machine for tests is given before, and no make target is for.
BEFORE = {"sudo sysctl --write fs.inotify.max_user_instances=1024"}


def made(commands_text):
    """The make targets of a script; it may do nothing else."""
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


def test_workflows_make_what_ci_makes():
    targets = []
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}, path
        for job in workflow["jobs"].values():
            assert job["timeout-minutes"] <= 120
            for step in job["steps"]:
                assert set(step) in ({"uses"}, {"run"}), step
                if "run" in step and step["run"] not in BEFORE:
                    targets += made(step["run"])
    assert sorted(targets) == ["check", "test-all"]
    # The same as .ci/run: all that it makes, and nothing beside it.
    assert {name for target in targets for name in project.reached_from(target, project.targets())} == project.in_ci()


def test_neither_is_part_of_the_collection():
    ignored = yaml.safe_load((ROOT / "galaxy.yml").read_text())["build_ignore"]
    assert {".git*", ".pre-commit*"} <= set(ignored)
