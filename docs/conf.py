"""How `make docs` makes a site of README.md, docs/ and the roles' READMEs.

Nothing is written for Sphinx alone: the pages are read where the repository is shown, too. So the source directory is
the whole checkout, Markdown is read as there (CommonMark with tables, anchors as there), and the site's contents are
the links of docs/README.md, a part for each of its headings. Warnings are errors: a page that is not listed, and a link
or an anchor that leads nowhere, fail. Links to other sites are not followed.
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
# Folders that are large, or lead back to the checkout, are not walked at all.
exclude_patterns = [".*", "bench", "build", "dist", "molecule", "playbooks", "plugin/node_device_plugin", "tests"]

myst_heading_anchors = 3

html_theme = "alabaster"
html_theme_options = {"description": "Nodes and their devices", "page_width": "75rem", "body_max_width": "none"}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}
html_copy_source = False
html_show_copyright = False

LINK = re.compile(r"\]\(([^)#:]+\.md)\)")


def contents(page: str) -> str:
    """A table of contents for each heading of docs/README.md, of the pages that are linked below it."""
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
    """The site's own address: its first page lies in docs/, so that links are the same as in the checkout."""
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
