"""The site of `make docs`: what it refuses, its navigation, and what narrow windows and the search need."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def build(tmp_path):
    """Builds a checkout of some pages, as `make docs` does; what it printed and the site's folder."""

    def make(pages):
        checkout = tmp_path / "checkout"
        (checkout / "docs").mkdir(parents=True)
        for name in ("conf.py", "site.css", "search_scorer.js"):
            shutil.copy(ROOT / "docs" / name, checkout / "docs")
        for name, text in pages.items():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_text(text)
        # The recipe's own words, but that it stops at the first complaint.
        (recipe,) = re.findall(r"^\tsphinx-build (.*)$", (ROOT / "Makefile").read_text(), re.M)
        command = [sys.executable, "-m", "sphinx", *recipe.split(), "--keep-going"]
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False), checkout / ".site"

    return make


INDEX = "# Docs\n\n## Roles\n\n- [One](../roles/one/README.md)\n\n## Other\n\n[Two](two.md), [first](../README.md)\n"
FIRST = {"README.md": "# The pitch\n", "docs/README.md": INDEX}


@pytest.fixture
def built(build):
    """Builds pages without a complaint, and returns a reader of the site's files."""

    def make(pages):
        done, site = build({**FIRST, **pages})
        assert (done.returncode, done.stderr) == (0, "")
        return lambda name: (site / name).read_text()

    return make


def test_pages_that_lead_somewhere(built):
    one = "# One\n\n[two](../../docs/two.md#a-heading), [there](https://example.invalid/)\n"
    read = built({"roles/one/README.md": one, "docs/two.md": "# Two\n\n## A heading\n"})
    assert 'href="../../docs/two.html#a-heading"' in read("roles/one/README.html")
    # The site's own address leads to the README.
    assert 'content="0; url=README.html"' in read("index.html")
    navigation = read("README.html").partition('class="sidebar-tree"')[2]
    assert re.search(
        r">Docs<.*?>Roles<.*?roles/one/README\.html.*?>One<.*?>Other<.*?two\.html.*?>Two<", navigation, re.S
    )


def test_pages_of_a_directory_are_below_its_readme(built):
    index = INDEX + "- [Book](cookbook/README.md): [its page](cookbook/page.md)\n"
    pages = {"docs/two.md": "# Two\n", "docs/cookbook/README.md": "# Book\n", "docs/cookbook/page.md": "# Its page\n"}
    read = built({"docs/README.md": index, "roles/one/README.md": "# One\n", **pages})
    assert re.search(
        r'<li class="toctree-l2[^>]*><a [^>]*href="page\.html">Its page<', read("docs/cookbook/README.html")
    )


def test_a_link_named_as_a_file_shows_the_title(built):
    two = "../../docs/two.md"
    one = f"# One\n\n[two.md]({two}), [`two.md`]({two}#a-heading), [my.md]({two}), [two]({two}), [docs/two.md]({two})\n"
    read = built({"roles/one/README.md": one, "docs/two.md": "# Two\n\n## A heading\n"})
    words = re.findall(r'href="../../docs/two.html[^"]*"><span[^>]*>([^<]*)<', read("roles/one/README.html"))
    assert words == ["Two", "A heading", "my.md", "two", "Two"]


def test_narrow_windows(built):
    """What docs/site.css uses: a cell's column, which an empty cell has not, and blocks of output, which scroll."""
    output = "```\nA  B\n```\n"
    table = "| key | meaning |\n|---|---|\n| `a` | words |\n| b | |\n"
    read = built({"roles/one/README.md": "# One\n", "docs/two.md": f"# Two\n\n{table}\n{output}"})
    assert re.findall(r'<td(?: data-column="(\w+)")?>', read("docs/two.html")) == ["key", "meaning", "key", ""]
    assert 'class="highlight-none' in read("docs/two.html")
    assert all(words in read("_static/site.css") for words in ("attr(data-column)", ".highlight-none pre"))
    assert "_static/site.css" in read("docs/two.html")
    assert 'name="viewport"' in read("docs/two.html")


def test_the_site_needs_no_server(built):
    """A browser opens the files themselves: the search's index is a script, and nothing comes from elsewhere."""
    read = built({"roles/one/README.md": "# One\n", "docs/two.md": '# Two\n\n## "the message"\n'})
    search = read("search.html")
    assert 'src="searchindex.js"' in search
    assert read("searchindex.js").startswith("Search.setIndex(")
    assert '\\"the message\\"' in read("searchindex.js")
    assert "var Scorer" in read("_static/language_data.js")
    for page in (search, read("README.html")):
        assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?:https?:)?//[^>]*>", page) == []


def test_what_leads_nowhere(build):
    one = "# One\n\n[a](../../docs/gone.md), [b](../../docs/two.md#gone), [c](#gone-here), [d](gone/)\n"
    pages = {**FIRST, "roles/one/README.md": one, "docs/two.md": "# Two\n", "docs/lost.md": "# Lost\n"}
    done, _ = build(pages)
    assert done.returncode != 0
    for words in (
        "README.md:3: WARNING: 'myst' cross-reference target not found: '../../docs/gone.md'",
        "README.md:3: WARNING: local id not found in doc 'docs/two': 'gone'",
        "README.md:3: WARNING: 'myst' cross-reference target not found: 'gone-here'",
        "README.md:3: WARNING: 'myst' cross-reference target not found: 'gone/'",
        "docs/lost.md: WARNING: document isn't included in any toctree",
    ):
        assert words in done.stderr
