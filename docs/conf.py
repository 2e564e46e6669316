"""Sphinx's configuration: `make docs` builds a site from README.md, docs/ and the roles' READMEs.

People also read the pages in the repository, so no page contains Sphinx's own markup. The source directory is the whole
checkout, and Sphinx reads Markdown as the repository's page does: CommonMark with tables, and the same anchors. The
navigation has a part for each heading of docs/README.md, with the pages that the heading's links name. The build fails
if a page is not listed, or if a link or an anchor has no target. The build does not check links to other sites.
"""

from __future__ import annotations

import pathlib
import re

from sphinx.application import Sphinx

project = "node-devices"
author = "The node-devices authors"
extensions = ["myst_parser"]

root_doc = "docs/README"
include_patterns = ["*.md", "docs/*.md", "docs/cookbook/*.md", "plugin/README.md", "roles/*/README.md"]
include_patterns += ["lab/README.md", "lab/roles/*/README.md", "examples/*/README.md"]
# Sphinx does not walk these directories, because they are large or contain a link back to the checkout.
exclude_patterns = [".*", "bench", "build", "dist", "molecule", "playbooks", "plugin/node_device_plugin", "tests"]

myst_heading_anchors = 3

html_theme = "alabaster"
html_theme_options = {"description": "Nodes and their devices", "page_width": "75rem", "body_max_width": "none"}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
html_copy_source = False
html_show_copyright = False

LINK = re.compile(r"\]\(([^)#:]+\.md)\)")


def contents(page: str) -> str:
    """Return a table of contents for each heading of docs/README.md, with the pages that the text below it links."""
    lines = []
    for part in page.split("\n## ")[1:]:
        title, text = part.split("\n", 1)
        lines += ["", "```{toctree}", ":hidden:", f":caption: {title}", ""]
        lines += [path.removesuffix(".md") for path in LINK.findall(text)]
        lines += ["```"]
    return "\n".join(lines)


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname == root_doc:
        source[0] += contents(source[0])


def lead_to_the_first_page(app: Sphinx, exception: Exception | None) -> None:
    """Redirect the site's root to its first page, which is in docs/ so that links are the same as in the checkout."""
    if exception is None and app.builder.format == "html":
        (pathlib.Path(app.outdir) / "index.html").write_text(
            f'<!doctype html><meta charset="utf-8"><title>{project}</title>'
            f'<meta http-equiv="refresh" content="0; url={root_doc}.html"><a href="{root_doc}.html">{project}</a>\n',
            encoding="utf-8",
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_contents)
    app.connect("build-finished", lead_to_the_first_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
