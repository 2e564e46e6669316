"""The page: what a browser makes of it, by its elements."""

from __future__ import annotations

import base64
import datetime
import hashlib
import html.parser
import itertools
import json
import re

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import document, node, page, resources
from fleet_nodes import declared, device, fleet, held, serving, status, well

CAMERA = "example.com/camera"
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&amp;"
_VOID = {"meta", "input", "wbr", "br", "link", "img"}


class Element:
    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.children = []

    def all(self, tag=None, **attributes):
        """Every element below, in the page's order; ``class_`` is one of its classes."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if tag in (None, child.tag) and all(child.has(key, value) for key, value in attributes.items()):
                    found.append(child)
                found += child.all(tag, **attributes)
        return found

    def one(self, tag=None, **attributes):
        (found,) = self.all(tag, **attributes)
        return found

    def has(self, key, value):
        if key == "class_":
            return value in (self.attributes.get("class") or "").split()
        return self.attributes.get(key) == value

    @property
    def text(self):
        """As it is read, without what is for the eye alone."""
        return " ".join(self._raw().split())

    def _raw(self):
        heard = [child for child in self.children if isinstance(child, str) or not child.has("aria-hidden", "true")]
        return "".join(child if isinstance(child, str) else child._raw() for child in heard)


class Parser(html.parser.HTMLParser):
    """Holds the page to elements that are closed in the order in which they were opened."""

    def __init__(self, text):
        super().__init__()
        self.root = self.here = Element("", {}, None)
        self.feed(text)
        self.close()
        assert self.here is self.root, f"{self.here.tag} is not closed"

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), f"{tag} has an attribute twice"
        element = Element(tag, dict(attrs), self.here)
        self.here.children.append(element)
        if tag not in _VOID:
            self.here = element

    def handle_endtag(self, tag):
        assert tag == self.here.tag, f"{self.here.tag} is closed by {tag}"
        self.here = self.here.parent

    def handle_data(self, data):
        self.here.children.append(data)


def made(*nodes):
    data = document.document(nodes, "0.1.0", datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC))
    # As a program has it that reads the JSON.
    return page.html(json.loads(json.dumps(data)))


def parsed(*nodes):
    return Parser(made(*nodes)).root


@pytest.fixture(scope="module")
def whole():
    """The page of a fleet in which everything that can be wrong is."""
    return Parser(made(*fleet(44, 4))).root


def cells(table):
    """Rows of the body, each as the texts of its cells."""
    return [[cell.text for cell in row.children if isinstance(cell, Element)] for row in table.one("tbody").all("tr")]


def test_the_matrix_says_health_in_words_and_numbers():
    camera = serving(CAMERA, device("a"), device("b", "unhealthy", "gone"))
    root = parsed(
        node.entry("w1", well(serving(CAMERA, device("a")))),
        node.entry("w2", well(camera, serving("example.com/none"))),
        node.entry("w3", node.Read(unreachable="no route", declaration=declared(CAMERA))),
    )
    matrix = root.one("table", class_="matrix")
    assert [each.text for each in matrix.one("thead").all("th")] == ["Node", CAMERA, "example.com/none"]
    # The worst is first.
    assert cells(matrix) == [
        ["w2 wrong", "1/2 degraded", "0/0 empty"],
        ["w3 unreachable", "unknown", "not declared"],
        ["w1", "1/1 healthy", "not declared"],
    ]
    signs = [each.all("span", class_="sign")[0].children[0] for each in matrix.all("td") if each.all(class_="sign")]
    assert signs == ["!", "\N{EN DASH}", "?", "✓"]


def test_each_node_has_a_part_that_the_matrix_leads_to():
    camera = serving(CAMERA, device("a", shares=2), device("b", "unhealthy", "gone"))
    read = well(camera, status=status(camera, holds=[held(CAMERA, "a::0", "p"), held(CAMERA, "a::1", "p")]))
    root = parsed(node.entry("w 1", read), node.entry("w2", well()))
    part = root.one("details", id="node-w%201")
    assert part.one("h3").text == "w 1"
    assert {each.one("dt").text: each.one("dd").text for each in part.one("dl").all("div")} == {
        "Runtime": "containerd 1.7.24",
        "CDI": "on",
        "Plugin": "0.1.0",
        "Configuration": "5a55b299645f",
        "Kubelet": "1.36.2",
    }
    assert cells(part.one("table")) == [[CAMERA, "3", "2", "2", "degraded b: gone", "default/p"]]
    # Open is what one has to read.
    assert "open" in part.attributes
    assert "open" not in root.one("details", id="node-w2").attributes
    assert root.one("h1").text == "1 of 2 nodes is not ok"
    assert root.one("time").attributes["datetime"] == "2026-01-02T03:04:05Z"


def test_every_link_leads_somewhere_on_the_page_and_ids_are_there_once(whole):
    ids = [each.attributes["id"] for each in whole.all() if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    targets = {each.attributes["href"] for each in whole.all("a")}
    assert len(targets) > 44
    assert {target.removeprefix("#") for target in targets} <= set(ids)
    for each in whole.all():
        assert each.attributes.get("aria-labelledby", ids[0]) in ids


def test_tables_can_be_read_without_seeing_them(whole):
    tables = whole.all("table")
    assert len(tables) > 40
    for table in tables:
        assert table.one("caption").text
        heads = table.all("th")
        assert {head.attributes["scope"] for head in heads} <= {"col", "row"}
        columns = table.one("thead").all("th")
        assert {len(row) for row in cells(table)} == {len(columns)}
    assert whole.one("html").attributes["lang"] == "en"
    order = [int(each.tag[1]) for each in whole.all() if re.fullmatch("h[1-6]", each.tag)]
    assert order[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(order))


def test_colour_is_never_alone(whole):
    severities = {*node.STATES.values(), *resources.STATES.values()}
    coloured = [each for each in whole.all() if any(each.has("class_", severity) for severity in severities)]
    assert len(coloured) > 100
    for each in coloured:
        if not each.has("class_", "sign"):
            assert each.all("span", class_="sign"), each.attributes
            assert each.text
    assert len({page._SIGNS[severity] for severity in severities}) == len(severities)


def test_without_javascript_all_is_there_and_the_filter_is_not(whole):
    assert [each.tag for each in whole.all() if "hidden" in each.attributes] == ["form"]
    # The filter's JavaScript goes by them.
    (script,) = whole.all("script")
    for wanted in re.findall(r'getElementById\("([^"]+)"\)', script.children[0]):
        whole.one(id=wanted)
    assert len(whole.one(class_="matrix").one("tbody").all("tr")) == len(whole.all("details", class_="node")) == 44


def test_what_nodes_say_stays_text():
    camera = serving(CAMERA, device("a"), device("b", "unhealthy", HOSTILE), refused={HOSTILE: "x"})
    read = well(camera, status=status(camera, holds=[held(CAMERA, "a", HOSTILE)]), problems=(HOSTILE,))
    runtime = {**read.facts, "runtime": {**read.facts["runtime"], "version": HOSTILE}}
    root = parsed(node.entry(HOSTILE, read._replace(facts=runtime)), node.entry("w2", well(serving(HOSTILE))))
    assert len(root.all("script")) == 1
    assert root.all("img") == []
    assert not [each for each in root.all() for name in each.attributes if name.startswith("on")]
    assert HOSTILE in root.one("ul", class_="problems").text
    assert [each.text for each in root.all("h3")] == [HOSTILE, "w2"]
    assert any(f"b: {HOSTILE}" in each.attributes["title"] for each in root.all("td") if "title" in each.attributes)


def test_the_page_needs_nothing_else_and_may_load_nothing(whole):
    assert not [each for each in whole.all() if {"src", "srcset", "style"} & set(each.attributes)]
    assert whole.all("link") == []
    style, script = whole.one("style").children[0], whole.one("script").children[0]
    assert not re.search(r"url\(|@import|fetch\(|import\(", style + script)
    policy = whole.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    directives = dict(each.strip().split(" ", 1) for each in policy.split(";"))
    assert directives["default-src"] == "'none'"
    for directive, text in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert directives[directive] == f"'sha256-{digest}'"


def test_a_fleet_without_anything():
    root = parsed(node.entry("w1", well()))
    assert root.one("h1").text == "The node is ok"
    assert len(root.all("table")) == 1
    assert [each.text for each in root.one("main").all("p")][:2] == [
        "No problem was found.",
        "No resource is declared or served.",
    ]
    assert parsed().one("h1").text == "No nodes"


def test_five_hundred_nodes_stay_a_page_of_a_few_megabytes():
    text = made(*fleet(500, 10))
    assert len(Parser(text).root.one("table", class_="matrix").all("td")) == 500 * 11
    assert len(text.encode()) < 4_000_000
