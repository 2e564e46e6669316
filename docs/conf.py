"""Sphinx's configuration: `make docs` builds a site from README.md, docs/ and the roles' READMEs.

Nothing is written for Sphinx alone: the repository shows the same pages. So the source directory is the whole checkout,
and Sphinx reads Markdown as the repository does (CommonMark with tables, and the same anchors). The site opens with
README.md. Its navigation is docs/README.md: a part for each heading, with the pages that the part links. Warnings are
errors: the build fails at a page that docs/README.md does not link, and at a link or an anchor without a target. It
does not follow links to other sites. The search works without a server: the browser loads its index as a script.
"""

from __future__ import annotations

import pathlib
import posixpath
import re
from collections.abc import Iterable
from typing import Any

from bs4 import BeautifulSoup
from sphinx.application import Sphinx

project = "node-devices"
author = "The node-devices authors"
extensions = ["myst_parser"]

root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/cookbook/*.md", "plugin/README.md", "roles/*/README.md"]
include_patterns += ["lab/README.md", "lab/roles/*/README.md", "examples/*/README.md"]
# Sphinx does not walk directories that are large or lead back to the checkout.
exclude_patterns = [".*", "bench", "build", "dist", "molecule", "playbooks", "plugin/node_device_plugin", "tests"]

myst_heading_anchors = 3
# Quotes stay as they are, because a reader searches for messages.
smartquotes = False
# A block without a language is output.
highlight_language = "none"

html_theme = "furo"
html_title = project
html_static_path = ["site.css"]
html_css_files = ["site.css"]
html_search_scorer = str(pathlib.Path(__file__).with_name("search_scorer.js"))
html_copy_source = False
html_show_copyright = False
html_use_index = False

PAGES = "docs/README"
LINK = re.compile(r"\]\(([^)#:]+)\.md\)")
#: A link that the repository shows as the name of a file, such as [status.md](status.md).
NAMED_AS_A_FILE = re.compile(r"\[`?(?:[\w./-]+/)?([\w-]+\.md)`?\](?=\((?:[^):]+/)?\1(?:#[^)]+)?\))")


def navigation(text: str) -> dict[str, dict[str, list[str]]]:
    """For each heading of docs/README.md, the linked pages. Each page has the linked pages of directories below it."""
    parts: dict[str, dict[str, list[str]]] = {}
    for part in text.split("\n## ")[1:]:
        pages = parts[part.partition("\n")[0]] = {}
        for path in LINK.findall(part):
            page = posixpath.normpath(posixpath.join(posixpath.dirname(PAGES), path))
            readmes = [each for each in pages if each.endswith("/README")]
            above = [each for each in readmes if page.startswith(each.removesuffix("README"))]
            if above:
                pages[above[0]].append(page)
            elif page != root_doc:
                pages[page] = []
    return parts


def toctree(pages: Iterable[str], *options: str) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", *options, "", *(f"/{page}" for page in pages), "```", ""])


def show_titles(app: Sphinx, docname: str, source: list[str]) -> None:
    """Sphinx gives a link without words the title of its page or section."""
    source[0] = NAMED_AS_A_FILE.sub("[]", source[0])


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    parts = navigation((pathlib.Path(app.srcdir) / f"{PAGES}.md").read_text(encoding="utf-8"))
    if docname == root_doc:
        source[0] += toctree([PAGES])
        for title, pages in parts.items():
            source[0] += toctree(pages, f":caption: {title}")
    for pages in parts.values():
        if pages.get(docname):
            source[0] += toctree(pages[docname])


def name_cells(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Give each table cell with text the name of its column, which site.css shows on narrow screens."""
    if "body" not in context:
        return
    page = BeautifulSoup(context["body"], "html.parser")
    for table in page.find_all("table"):
        columns = [cell.get_text(" ", strip=True) for cell in table.select("thead th")]
        for row in table.select("tbody tr"):
            for column, cell in zip(columns, row.find_all("td"), strict=True):
                if cell.get_text(strip=True):
                    cell["data-column"] = column
    context["body"] = str(page)


def lead_to_the_first_page(app: Sphinx, exception: Exception | None) -> None:
    """The site's own address leads to README.html, which keeps the README's name and links."""
    if exception is None and app.builder.format == "html":
        (pathlib.Path(app.outdir) / "index.html").write_text(
            f'<!doctype html><meta charset="utf-8"><title>{project}</title>'
            f'<meta http-equiv="refresh" content="0; url={root_doc}.html"><a href="{root_doc}.html">{project}</a>\n',
            encoding="utf-8",
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", show_titles)
    app.connect("source-read", add_navigation)
    app.connect("html-page-context", name_cells)
    app.connect("build-finished", lead_to_the_first_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
