"""tests/release: the ways of new users name parts of pages that exist, and say the pages' commands."""

from __future__ import annotations

import subprocess

import pytest
import the_project as project
from documented_blocks import ROOT, blocks, text_of

PLACE = ROOT / "tests/release"
WAYS = sorted((PLACE / "ways").glob("*.sh"))


container = project.program("tests/release/clean_container.py")


@pytest.mark.parametrize("script", [PLACE / "prepare.sh", *WAYS], ids=lambda path: path.stem)
def test_a_script_is_one_for_bash_once_it_has_the_commands_of_the_pages(script):
    expanded = container.expanded(script.read_text())
    left = [line for line in expanded.splitlines() if line.startswith(("#sh ", "#yaml ", "#text ", "#file "))]
    assert left == []
    assert subprocess.run(["bash", "-n"], input=expanded, capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize(
    "line",
    [
        "#sh docs/collection.md | No such heading",
        "#sh docs/collection.md | Install a release | 1",
        "#yaml docs/collection.md | Install a release",
    ],
)
def test_what_a_page_does_not_have_is_an_error(line):
    with pytest.raises(ValueError, match=r"docs/collection.md has no such blocks: #"):
        container.expanded(line)


def test_commands_of_a_checkout_become_those_that_the_page_gives_as_examples():
    """docs/collection.md tells its readers by which words; its own examples must be what the tests make of pages."""
    examples = [block.text for block in blocks(text_of("docs/collection.md")) if "--check --diff" in block.text]
    made = [
        line.partition("  ")[0]
        for line in container.expanded("#sh docs/bare-metal.md | | 1:\n#sh docs/remove.md | | 0").splitlines()
    ]
    assert examples
    assert set("".join(examples).splitlines()) <= set(made)
