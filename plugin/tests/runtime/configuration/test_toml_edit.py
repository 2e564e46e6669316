"""The TOML edit, for any valid document: the result parses, holds the wanted keys, and differs in nothing else."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from node_device_plugin.runtime.configuration import toml_edit, toml_text
from node_device_plugin.runtime.configuration.cdi import UnsupportedConfig
from node_device_plugin.support.toml import tomllib

CRI = "io.containerd.grpc.v1.cri"
KEYS = {"enable_cdi": True, "cdi_spec_dirs": ["/etc/cdi", "/var/run/cdi"]}

blanks = st.sampled_from(["", "", " ", "\t", "   "])
comments = st.sampled_from(
    ["", "", "", " # why", "#", '\t# [plugins."io.containerd.grpc.v1.cri"]', " # enable_cdi = true"]
)
quotes = st.sampled_from(['"', "'"])
plain = st.sampled_from(["true", "-1", "0x1F", "1e3", "nan", "-inf", '""', '"a # b"', "'c\\d'", '"""x"""""'])
dates = st.sampled_from(["1979-05-27T07:32:00Z", "1979-05-27 07:32:00", "07:32:00"])
nested = st.sampled_from(["[]", "[1, 2]", '[\n  "a", # b\n  "c",\n]', "{}", "{ a = 1, b.c = 2 }", '[{ x = "y" }, {}]'])
texts = st.sampled_from(['"""\n[plugins."io.containerd.grpc.v1.cri"]\nenable_cdi = false\n"""', "'''\nx = 1\n'''"])
values = st.one_of(plain, dates, nested, texts)
between = st.sampled_from(["", "", "\n", "  # by itself\n"])
lists = st.sampled_from(
    ["[]", '["/opt/cdi"]', "['/run/cdi', '/opt/cdi']", '[\n  # first\n  "/opt/cdi", # last\n]', '[ "/etc/cdi" ,]']
)


@st.composite
def lines(draw, names, prefix=""):
    """Some keys, each once, with comments and blank lines between them."""
    text = ""
    for name in draw(st.lists(st.sampled_from(names), unique=True, max_size=4)):
        value = {"enable_cdi": "false", "cdi_spec_dirs": draw(lists)}.get(name) or draw(values)
        indent, equals = draw(blanks), draw(st.sampled_from(["=", " = ", "\t= "]))
        text += f"{indent}{prefix}{name}{equals}{value}{draw(comments)}\n{draw(between)}"
    return text


@st.composite
def headers(draw, *names):
    """A table's header in one of its spellings."""
    dot, edge = draw(st.sampled_from([".", " . "])), draw(st.sampled_from(["", " "]))
    return f"{draw(blanks)}[{edge}{dot.join(names)}{edge}]{draw(comments)}\n"


@st.composite
def documents(draw):
    """A configuration: top-level keys, the CRI table in any form there is, and other tables in any order."""
    quote = draw(quotes)
    cri = f"{quote}{CRI}{quote}"
    own = ["sandbox_image", "enable_cdi", "cdi_spec_dirs", "max_concurrent", "'quoted key'"]
    below = ["bin_dir", "conf_dir"]
    form = draw(
        st.sampled_from(
            ["none", "header", "subtable", "both", "after", "dotted", "below plugins", "inline", "implicit"]
        )
    )
    head = draw(lines(["root", "state", "oom_score", "version", "required_plugins"]))
    tables = []
    if form in ("header", "both", "after"):
        tables.append(draw(headers("plugins", cri)) + draw(lines(own)))
    if form in ("subtable", "both", "after"):
        tables.append(draw(headers("plugins", cri, "cni")) + draw(lines(below)))
    if form == "after":
        tables.reverse()
    if form == "dotted":
        head += draw(lines(own, f"plugins.{cri}."))
    if form == "below plugins":
        tables.append(draw(headers("plugins")) + draw(lines(own, f"{cri}.")))
    if form == "inline":
        head += f'plugins = {{ {cri} = {{ sandbox_image = "x", enable_cdi = false }}, other = {{}} }}\n'
    if form == "implicit":
        tables.append(draw(headers("plugins")) + draw(lines(["'io.containerd.internal.v1.opt'"])))
    others = [draw(headers("debug")) + draw(lines(["level", "address"]))]
    if form != "inline":
        others.append(draw(headers("plugins", f"{quote}io.containerd.nri.v1.nri{quote}")) + draw(lines(["disable"])))
    others.append("[[streams]]\n" + draw(lines(["a", "b"])))
    at = draw(st.lists(st.sampled_from(others), unique=True))
    cut = draw(st.integers(0, len(at)))
    # What lies between two of the CRI plugin's tables puts them out of order.
    middle = at[:cut]
    text = head + (tables[0] if tables else "") + "".join(middle) + "".join(tables[1:]) + "".join(at[cut:])
    text = text if draw(st.booleans()) else text.rstrip("\n")
    return text.replace("\n", "\r\n") if draw(st.integers(0, 4)) == 0 else text


def data(text):
    return tomllib.loads(text, parse_float=str)


def without(document):
    """A document without our keys, and without what only they would need."""
    plugins = document.get("plugins", {})
    for key in KEYS:
        plugins.get(CRI, {}).pop(key, None)
    if plugins.get(CRI) == {}:
        del plugins[CRI]
    return {key: value for key, value in document.items() if (key, value) != ("plugins", {})}


def edited(text, wanted):
    return toml_edit.edited(text, CRI, wanted)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(documents(), st.sampled_from([["enable_cdi"], ["cdi_spec_dirs"], ["enable_cdi", "cdi_spec_dirs"]]))
@example(f'[plugins."{CRI}".cni]\nx = 1\n[debug]\n[plugins."{CRI}"]\nenable_cdi = false\n', ["enable_cdi"])
def test_any_document(text, names):
    before = data(text)
    wanted = {name: KEYS[name] for name in names}
    was = before.get("plugins", {}).get(CRI, {})
    result = edited(text, wanted)
    after = data(result)
    assert {name: after["plugins"][CRI][name] for name in names} == wanted
    untouched = set(KEYS) - set(names)
    assert all(after["plugins"][CRI].get(name) == was.get(name) for name in untouched)
    was = dict(was)
    assert without(after) == without(before)
    # Every comment is still there, and the line ends are what they were.
    assert [word for word in text.split() if word.startswith("#") and word not in result] == []
    if "\r\n" in text:
        assert "\n" not in result.replace("\r\n", "")
    # Back by the keys, as when somebody else has changed the file in the meantime.
    undone = data(edited(result, {name: was.get(name) for name in KEYS}))
    assert undone.get("plugins", {}).get(CRI, {}) == was
    assert without(undone) == without(data(text))


@pytest.mark.parametrize("text", ["plugins = 1\n", f'[plugins]\n"{CRI}" = []\n'])
def test_what_is_no_table_is_refused(text):
    with pytest.raises(UnsupportedConfig, match="is not a table: fix the file first"):
        edited(text, KEYS)


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("version = 2\n", "version = 2\n"),
        (f'version = 2\nplugins."{CRI}".enable_cdi = true\n', "version = 2\n"),
        (f'[plugins]\n"{CRI}".enable_cdi = true\n"{CRI}".cdi_spec_dirs = []\n', "[plugins]\n"),
        (
            f'[plugins]\n"{CRI}".enable_cdi = true\n"io.containerd.internal.v1.opt".path = "/opt"\n',
            '[plugins]\n"io.containerd.internal.v1.opt".path = "/opt"\n',
        ),
        (f'[plugins."{CRI}"]\nenable_cdi = true\n', f'[plugins."{CRI}"]\n'),
    ],
)
def test_keys_go_though_their_table_goes_with_them(text, rest):
    """A table that only our keys made is not there without them."""
    assert edited(text, dict.fromkeys(KEYS)) == rest


class Copied(str):
    """A text that counts the characters of its copied parts."""

    copied = 0

    def __getitem__(self, key):
        part = super().__getitem__(key)
        Copied.copied += len(part)
        return part


def test_the_time_of_a_search_grows_with_the_text_alone(monkeypatch):
    monkeypatch.setattr(Copied, "copied", 0)
    text = Copied("".join(f"k{number} = true # x\nl{number} = [ 'a' ]\n" for number in range(200)))
    assert len(list(toml_text.statements(text))) == 400
    assert Copied.copied < len(text)
