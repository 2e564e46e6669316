"""What a release is called: one semantic version, wherever it has to stand."""

from __future__ import annotations

import re

import pytest
import the_project as project
import yaml
from documented_blocks import ROOT

# https://semver.org, with what Galaxy takes of it.
SEMANTIC = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
HEADING = re.compile(r"^## (\S+) \((not released|\d{4}-\d{2}-\d{2})\)$", re.M)


@pytest.fixture(scope="module")
def version():
    return project.version()


@pytest.fixture(scope="module")
def changelog():
    return (ROOT / "CHANGELOG.md").read_text()


def test_it_is_a_semantic_version(version):
    assert SEMANTIC.fullmatch(version)


def test_the_collections_have_the_plugins(version):
    main, lab = (yaml.safe_load((ROOT / name).read_text()) for name in ("galaxy.yml", "lab/galaxy.yml"))
    assert main["version"] == lab["version"] == version
    assert lab["dependencies"] == {f"{main['namespace']}.{main['name']}": version}


def test_the_changelog_begins_with_it(version, changelog):
    headings = HEADING.findall(changelog)
    assert headings[0][0] == version
    assert re.findall(r"^## (\S+)", changelog, re.M) == [name for name, _ in headings], "a heading of another form"


def test_the_changelog_goes_back_in_time_and_says_something_each(changelog):
    headings = HEADING.findall(changelog)
    numbers = [tuple(map(int, SEMANTIC.match(name).groups()[:3])) for name, _ in headings]
    assert numbers == sorted(set(numbers), reverse=True)
    assert [when for _, when in headings[1:]].count("not released") == 0
    parts = re.split(r"^## .*$", changelog, flags=re.M)
    assert parts[0].strip() == "# Changelog"
    assert all(re.search(r"^- \S", part, re.M) for part in parts[1:])
