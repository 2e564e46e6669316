"""What a release is called: one semantic version, wherever it has to stand."""

from __future__ import annotations

import re
import tomllib

import pytest
import the_project as project
import yaml
from documented_blocks import PAGES, ROOT, text_of

# https://semver.org, with what Galaxy takes of it.
SEMANTIC = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
# A file of a release, or the image with its tag.
NAMED = re.compile(r"\bnode[-_]?devices?[-_\w]*[-:](\d+\.\d+\.\d+)")
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


def test_the_stand_in_has_the_plugins(version):
    project_of_it = tomllib.loads((ROOT / "lab/kubelet_stand_in/pyproject.toml").read_text())["project"]
    assert project_of_it["version"] == version
    assert project_of_it["dependencies"] == [f"node-device-plugin=={version}"]


def test_the_files_that_pages_name_have_it(version):
    named = {page: set(NAMED.findall(text_of(page))) for page in PAGES if page != "CHANGELOG.md"}
    assert {page: found for page, found in named.items() if found - {version}} == {}
    assert {"docs/helm.md", "docs/collection.md", "plugin/README.md", "examples/molecule/README.md"} <= {
        page for page, found in named.items() if found
    }
