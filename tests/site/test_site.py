"""The site of `make docs`: what it refuses, and that its contents are the links of docs/README.md."""

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
        shutil.copy(ROOT / "docs" / "conf.py", checkout / "docs")
        for name, text in pages.items():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_text(text)
        # The recipe's own words, but that it stops at the first complaint.
        (recipe,) = re.findall(r"^\tsphinx-build (.*)$", (ROOT / "Makefile").read_text(), re.M)
        command = [sys.executable, "-m", "sphinx", *recipe.split(), "--keep-going"]
        return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False), checkout / ".site"

    return make


INDEX = "# Docs\n\n## Roles\n\n- [One](../roles/one/README.md)\n\n## Other\n\n- [Two](two.md)\n"


def test_pages_that_lead_somewhere(build):
    one = "# One\n\n[two](../../docs/two.md#a-heading), [there](https://example.invalid/)\n"
    done, site = build({"docs/README.md": INDEX, "roles/one/README.md": one, "docs/two.md": "# Two\n\n## A heading\n"})
    assert (done.returncode, done.stderr) == (0, "")
    assert 'href="../../docs/two.html#a-heading"' in (site / "roles" / "one" / "README.html").read_text()
    assert "docs/README.html" in (site / "index.html").read_text()
    # The side bar, from docs/README.md: its headings, with their pages.
    side_bar = (site / "docs" / "README.html").read_text().partition('class="sphinxsidebar"')[2]
    assert re.search(r">Roles<.*?roles/one/README\.html.*?>Other<.*?two\.html", side_bar, re.S)


def test_what_leads_nowhere(build):
    one = "# One\n\n[a](../../docs/gone.md), [b](../../docs/two.md#gone), [c](#gone-here), [d](gone/)\n"
    pages = {"docs/README.md": INDEX, "roles/one/README.md": one, "docs/two.md": "# Two\n", "docs/lost.md": "# Lost\n"}
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
