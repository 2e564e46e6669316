"""The pictures of the README: how tools/record_pictures draws, and that what it recorded is still what the lab has."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
import the_project as project
from documented_blocks import ROOT, text_of

pictures = project.program("tools/record_pictures")
SVG = "{http://www.w3.org/2000/svg}"
OUTPUT = """\
ansible-playbook playbooks/lab_up.yml

TASK [nodedevices.lab.lab_node : Print the node's programs] ***
ok: [n1] =>\x20
    msg: n1 runs kubelet v1.37.2 over containerd 1.7.24~ds1 (Debian trixie)

TASK [nodedevices.kubernetes.cdi_specs : Write <CDI> specs] ***
\x1b[0;33mchanged: [n2]\x1b[0m
\x1b[0;32mok: [n1]\x1b[0m

TASK [nodedevices.kubernetes.cdi_specs : Prune] ***
ok: [n1]

TASK [Print the verification table] ***
ok: [n1] =>\x20
    msg: |-
        NODE  RESOURCE       CAPACITY  HEALTHY  CONTAINER SAW  STATE
        n1    example.com/a  1         1        a              proven

PLAY RECAP ***
n1 : ok=1
"""
SHOWN = [
    "…",
    "n1 runs kubelet v1.37.2 over containerd 1.7.24~ds1 (Debian trixie)",
    "…",
    "TASK [cdi_specs : Write <CDI> specs]",
    "  \x1b[0;32mok: [n1]\x1b[0m  \x1b[0;33mchanged: [n2]\x1b[0m",
    "…",
    "NODE  RESOURCE       CAPACITY  HEALTHY  CONTAINER SAW  STATE",
    "n1    example.com/a  1         1        a              proven",
    "…",
]


def parsed(picture):
    return ET.fromstring(picture)  # noqa: S314 - a picture of this checkout


def lines(picture):
    return ["".join(each.itertext()) for each in parsed(picture).findall(f"{SVG}text")]


def test_the_session_shows_versions_changes_and_the_table():
    assert pictures.shortened(OUTPUT) == SHOWN


def test_a_terminal_has_columns_in_every_font_and_colours():
    picture = pictures.session_svg([("make lab", SHOWN), ("true", [])])
    plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in SHOWN]
    assert lines(picture) == ["$ make lab", *plain, "$ true"]
    for text in parsed(picture).findall(f"{SVG}text"):
        assert float(text.attrib["textLength"]) == pytest.approx(
            len("".join(text.itertext())) * pictures.CHARACTER, abs=0.1
        )
    colours = [(each.text, each.attrib["fill"]) for each in parsed(picture).iter(f"{SVG}tspan")]
    assert colours == [("ok: [n1]", pictures.COLOURS["32"]), ("changed: [n2]", pictures.COLOURS["33"])]


def test_the_page_becomes_xml_without_scripts_forms_and_links():
    page = (
        "<!DOCTYPE html><html><head><meta charset=utf-8><title>Node devices: 1 &amp; 2</title>"
        "<style>a > b { color: red } @media print { a { } }</style></head><body><h1 id=x>1 &lt; 2<wbr></h1>"
        '<details class="node a" open><summary><a href="#x">w1</a></summary></details>'
        "<form><input id=find></form><script>if (1 < 2) {}</script><p>end</p></body></html>"
    )
    picture = pictures.fleet_svg(page)
    assert '<h1>1 &lt; 2<wbr /></h1><details class="node a" open="open"><summary><span>w1</span></summary>' in picture
    assert "</details><p>end</p></div>" in picture
    assert "a &gt; b { color: red }" in picture
    assert "media print" not in picture
    assert parsed(picture).find(f"{SVG}title").text == "The page of status.yml: Node devices: 1 & 2"


@pytest.mark.parametrize("name", ["docs/session.svg", "docs/fleet.svg", "docs/chain.svg"])
def test_pictures_are_small_and_load_nothing(name):
    text = text_of(name)
    root = parsed(text)
    assert len(text) < 60_000
    assert root.find(f"{SVG}title").text
    assert {each.split("}")[0] for each in (element.tag for element in root.iter())} <= {
        "{http://www.w3.org/2000/svg",
        "{http://www.w3.org/1999/xhtml",
    }
    assert not re.search(r"<script|href=|url\((?!#)|@import|@font-face", text)


def test_the_session_is_what_the_lab_declares():
    """If this fails: make pictures."""
    recorded = lines(text_of("docs/session.svg"))
    assert tuple(line.removeprefix("$ ") for line in recorded if line.startswith("$ ")) == pictures.SESSION
    declared = [line for line in (ROOT / pictures.DECLARATION).read_text().splitlines() if not line.startswith("#")]
    begin = recorded.index(declared[0])
    assert recorded[begin : begin + len(declared)] == declared
    resources = [line.split()[1] for line in recorded if re.match(r"lab-node1 +\S+/", line)]
    assert resources == [line.split()[1] for line in recorded if re.match(r"lab-node2 +\S+/", line)]
    assert recorded[-1].endswith(" /dev/kvm")


def test_the_page_has_the_problem_that_the_tutorial_makes():
    """If this fails: make pictures."""
    assert "/dev/dice" in text_of("docs/fleet.svg")
    assert "prefers-color-scheme: dark" in text_of("docs/fleet.svg")
