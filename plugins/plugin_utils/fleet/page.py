# SPDX-License-Identifier: Apache-2.0
"""Renders the document as one HTML page, which needs no other file, no network and no JavaScript."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from . import document as documents
from . import node, resources, table

_HERE = Path(__file__).parent
#: Maps severities to signs, for readers who do not see colours.
_SIGNS = {"failed": "✕", "degraded": "!", "unknown": "?", "pending": "…", "idle": "\N{EN DASH}", "ok": "✓"}


def html(document: Mapping[str, Any]) -> str:
    """Return the HTML page. All text is escaped, because names and reasons come from nodes."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    parts = {name: each for each in document["nodes"] for name in documents.names(each)}
    environment.filters.update(
        number=table.number,
        anchor=_anchor,
        by_name=lambda rows: {row["name"]: row for row in rows},
        label=table.label,
        states=table.states,
        weight=documents.weight,
        # A finding names all nodes, but several nodes may have one part of the page.
        parts=lambda names: list({id(parts[name]): parts[name] for name in names}.values()),
    )
    style, script = _text("page.css"), _text("page.js")
    worst_first = list(node.STATES).index
    return environment.get_template("page.html.j2").render(
        document=document,
        headline=_headline(sum(document["summary"]["nodes"].values()), document["summary"]["nodes"].get("ok", 0)),
        # sorted() keeps the inventory's order of nodes with the same state.
        nodes=sorted(document["nodes"], key=lambda each: worst_first(each["state"])),
        columns=table.COLUMNS,
        severity_of_node=node.STATES,
        severity_of_resource=resources.STATES,
        signs=_SIGNS,
        style=style,
        script=script,
        # Even if a text is not escaped, the browser uses only this style and this script.
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'",
    )


def _headline(total: int, well: int) -> str:
    if well == total:
        return {0: "No nodes", 1: "The node is ok"}.get(total, f"All {total} nodes are ok")
    if total == 1:
        return "The node is not ok"
    return f"{total - well} of {total} nodes {'is' if total - well == 1 else 'are'} not ok"


def _anchor(label: str) -> str:
    """Return the HTML id of a node's part of the page. The label is quoted, because an id must not contain spaces."""
    return f"node-{quote(label, safe='')}"


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
