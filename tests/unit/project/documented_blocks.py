"""The code in the pages that people read: fenced blocks with the text about them, and what is between backticks."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = pathlib.Path(__file__).resolve().parents[3]
_PATTERNS = ("*.md", "docs/*.md", "docs/cookbook/*.md", "plugin/README.md", "roles/*/README.md")
_PATTERNS += ("lab/README.md", "lab/roles/*/README.md", "examples/*/README.md")
PAGES = sorted(str(path.relative_to(ROOT)) for pattern in _PATTERNS for path in ROOT.glob(pattern))

_NEEDS = re.compile(r"<!-- needs: (.*?) -->\s*$")
_FILE = re.compile(r"# (\S+\.\w+)\n")


class Block(NamedTuple):
    """A fenced block.

    line: of its page, from 1. needs: what the mark before it says that it needs, None without one. file: the name that
    its first line gives it, as in ``# shell.yaml``, where it is one.
    """

    line: int
    language: str
    text: str
    needs: str | None
    file: str | None


def blocks(markdown: str) -> Iterator[Block]:
    """Every fenced block, also those in lists."""
    before = None
    for token in MarkdownIt("commonmark").parse(markdown):
        if token.type == "fence":
            assert token.map
            needs = _NEEDS.search(before.content) if before is not None and before.type == "html_block" else None
            file = _FILE.match(token.content) if token.info in ("yaml", "json") else None
            yield Block(
                token.map[0] + 1,
                token.info,
                token.content,
                needs.group(1) if needs else None,
                file.group(1) if file else None,
            )
        before = token


def spans(markdown: str) -> Iterator[str]:
    """Everything between single backticks."""
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        yield from (child.content for child in token.children or () if child.type == "code_inline")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")
