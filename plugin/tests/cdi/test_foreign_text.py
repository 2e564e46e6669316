"""Text without quotes, and what JSON and YAML have not in common, in other programs' specs."""

import json
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.cdi import parsing
from node_device_plugin.cdi.directories import check_content, check_directories
from node_device_plugin.cdi.resolution import Resolution
from node_device_plugin.devices.health.cdi_names import CdiNames
from node_device_plugin.support import documents

NPU = """\
cdiVersion: "0.6.0"
kind: acme.example/npu
devices:
  - name: 0000:03:00.0
    containerEdits:
      deviceNodes: [{path: /dev/null}]
  - name: 010
    containerEdits:
      deviceNodes: [{path: /dev/zero}]
"""
UNCLEAR = (
    "is not quoted: the CDI library up to 1.1.0 (containerd 1.7 to 2.3) reads %r, and from 1.1.1 on (containerd 2.4) "
    "%r: quote the %s"
)


@pytest.fixture(autouse=True, params=["libyaml", "Python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every build of PyYAML has libyaml."""
    import yaml

    if request.param == "Python":
        monkeypatch.delattr(yaml, "CSafeLoader")


def names(*directories: Path) -> Resolution:
    return Resolution(check_directories([str(directory) for directory in directories], None))


def spec(name: str, edits: str = "env: [A=b]", kind: str = "acme.example/npu") -> str:
    return f"cdiVersion: 0.7.0\nkind: {kind}\ndevices:\n- name: {name}\n  containerEdits: {{{edits}}}\n"


def said(text: str, name: str = "a.yaml") -> list[str]:
    return [str(problem) for problem in check_content(name, text.encode("utf-8", "surrogatepass"), None).problems]


def test_a_name_that_runtimes_read_alike_is_kept_and_another_is_reported(tmp_path: Path) -> None:
    (tmp_path / "npu.yaml").write_text(NPU)
    (file,) = check_directories([str(tmp_path)], None)
    assert file.devices == ("0000:03:00.0", "010")
    assert [str(problem) for problem in file.problems] == ["devices[1].name: " + UNCLEAR % ("8", "010", "name")]
    found = names(tmp_path)
    assert list(found.files) == list(found.edits) == ["acme.example/npu=0000:03:00.0"]
    assert found.nodes("acme.example/npu=0000:03:00.0") == {"/dev/null"}
    health = CdiNames([str(tmp_path)])
    health.read(["acme.example/npu=0000:03:00.0"])
    assert health.problem("acme.example/npu=0000:03:00.0") is None
    for name in ("acme.example/npu=010", "acme.example/npu=8"):
        assert str(health.problem(name)).endswith("devices[1].name: " + UNCLEAR % ("8", "010", "name"))


@pytest.mark.parametrize(
    "edits",
    [
        # No YAML.
        'env: ["TOKEN=CANARY]',
        "env: [TOKEN=CANARY}",
        'env: ["A=b" TOKEN=CANARY]',
        'env: ["TOKEN=\\qCANARY"]',
        # No spec.
        "env: [{TOKEN: CANARY}]",
        "env: [{name: TOKEN, value: CANARY}]",
        "env: [[CANARY]]",
        "env: ['TOKEN: CANARY']",
        "env: [=CANARY]",
        "hooks: [TOKEN=CANARY]",
        "hooks: [{hookName: prestart, path: /x, env: [CANARY]}]",
        "additionalGids: [{TOKEN: CANARY}]",
    ],
)
def test_no_value_of_a_variable_is_in_a_message(edits: str) -> None:
    (problem,) = said(spec("d", edits))
    assert "CANARY" not in problem


@pytest.mark.parametrize("name", ['"010"', "'010'", "!!str 010", "|-\n    010"])
def test_a_name_in_quotes_is_its_text(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.yaml").write_text(spec(name))
    assert list(names(tmp_path).files) == ["acme.example/npu=010"]


def test_an_unclear_name_and_other_files(tmp_path: Path) -> None:
    """The runtime may read the name as one of another file: what it resolves to then nobody knows."""
    low, high = tmp_path / "low", tmp_path / "high"
    for directory in (low, high):
        directory.mkdir()
    (low / "unclear.yaml").write_text(spec("010"))
    (low / "clear.yaml").write_text(spec('"8"'))
    assert not names(low).files
    assert "and another file in its directory both define" in names(low).broken["acme.example/npu=8"]
    (low / "clear.yaml").unlink()
    (high / "clear.yaml").write_text(spec('"8"'))
    # A directory of higher precedence has the name for every runtime.
    assert list(names(low, high).files) == ["acme.example/npu=8"]
    assert not names(high, low).files
    assert not names(high, low).edits
    # Runtimes ignore a file with another ending.
    (low / "unclear.yaml").rename(low / "unclear.yml")
    assert list(names(high, low).files) == ["acme.example/npu=8"]
    (low / "unclear.yml").rename(low / "unclear.yaml")
    assert "quote the name" in names(high, low).broken["acme.example/npu=8"]


def test_ours_and_an_unclear_name_of_another_program(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory in (ours, theirs):
        directory.mkdir()
    (ours / "node-device-plugin_acme.example_npu.json").write_text(
        json.dumps(
            {
                "cdiVersion": "0.7.0",
                "kind": "acme.example/npu",
                "devices": [{"name": "8", "containerEdits": {"env": ["OURS=1"]}}],
            }
        )
    )
    (theirs / "a.yaml").write_text(spec("010"))
    specs = names(ours, theirs)
    *_, file = specs.every.values()
    assert [problem.where for problem in specs.harm(file)] == ["device acme.example/npu=8"]


def test_text_that_differs_beside_a_clear_name(tmp_path: Path) -> None:
    """The device is there for every runtime; its program gets another argument."""
    hook = "hooks: [{hookName: prestart, path: /x, args: [x, 0660, 1.10, on, 5, true]}]"
    (tmp_path / "a.yaml").write_text("annotations: {n: 1_0}\n" + spec("d", hook))
    found = names(tmp_path)
    assert list(found.files) == ["acme.example/npu=d"]
    args = found.edits["acme.example/npu=d"]["hooks"][0]["args"]
    assert args == ["x", "0660", "1.10", "on", "5", "true"]
    where = "devices[0].containerEdits.hooks[0].args[%d]: "
    assert said((tmp_path / "a.yaml").read_text()) == [
        "annotations.n (the key): " + UNCLEAR % ("false", "n", "text"),
        "annotations.n: " + UNCLEAR % ("10", "1_0", "text"),
        where % 1 + UNCLEAR % ("432", "0660", "text"),
        where % 2 + UNCLEAR % ("1.1", "1.10", "text"),
        where % 3 + UNCLEAR % ("true", "on", "text"),
    ]


def test_numbers_and_booleans(tmp_path: Path) -> None:
    node = "{path: /dev/x, type: c, major: 0x10, minor: 1e1, fileMode: 0660, uid: 08}"
    (tmp_path / "a.yaml").write_text(spec("d", f"deviceNodes: [{node}], intelRdt: {{enableCMT: yes}}"))
    edits = names(tmp_path).edits["acme.example/npu=d"]
    assert edits["deviceNodes"] == [
        {"path": "/dev/x", "type": "c", "major": 16, "minor": 10, "fileMode": 0o660, "uid": 8}
    ]
    assert edits["intelRdt"] == {"enableCMT": True}
    assert said(spec("d", "deviceNodes: [{path: /dev/x, minor: 1.5}]")) == [
        "devices[0].containerEdits.deviceNodes[0].minor: must be a number, 0 or more, not 1.5"
    ]


@pytest.mark.parametrize("name", ["-0", ".5", "+1"])
def test_a_name_that_some_runtimes_refuse(name: str) -> None:
    """Such a runtime loads nothing of the file."""
    first, second = said(spec(name))
    assert "quote the name" in first
    assert second.startswith(f"devices[0] ({name}).name: {name!r} is not a valid CDI device name")


def test_names_that_are_one_for_some_runtimes() -> None:
    twice = spec("8") + "- {name: 010, containerEdits: {env: [A=c]}}\n"
    assert "devices[1] (8).name: is already the name of devices[0]: rename one" in said(twice)
    keys = "annotations: {010: a, 8: b}\n" + spec("d")
    assert said(keys) == ["annotations: must contain only text: write each key and value in quotes"]
    assert said("annotations: {9223372036854775808: a}\n" + spec("d"))
    assert not said("annotations: {a: ~, 5: true}\n" + spec("d"))


def test_one_scalar_by_an_alias(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(spec("&n 010", "deviceNodes: [{path: /dev/x, type: c, major: *n}]"))
    (file,) = check_directories([str(tmp_path)], None)
    assert len(file.problems) == 1
    assert "acme.example/npu=010" in file.unclear


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("%YAML 1.2\n---\n" + spec("d"), "has the directive %YAML 1.2, but runtimes read only 1.1: remove it"),
        (
            spec("d") + "---\n" + spec("e"),
            "a second document begins at line 6, column 1, and runtimes ignore it: remove it",
        ),
        (spec("d", 'env: ["A=\\/b"]'), "the escape \\/ at line 5, column 26: "),
        (spec("d", 'env: ["A=\\ud83d\\ude00"]'), " at line 5, column "),
        (spec("d", "env: [A=b?c]"), " line 5, column "),
        (
            spec("d", "env: [A=b, !x ]"),
            "a '?' or a tag inside of brackets or braces at line 5, column 31: runtimes refuse",
        ),
        (spec("d", "env: [A=\ufeffb]"), "contains a byte order mark after its start"),
        (spec("!!int x"), "'x' is no int, as its tag says at line 4, column 9"),
        (spec("!!bool yes"), "'yes' is no bool, as its tag says"),
        (spec("!!int true"), "'true' is no int, as its tag says"),
        (spec("!!binary '*'"), "a !!binary value is not the base64 of a text at line 4, column 9"),
        (spec("*n"), "the alias *n has no anchor before it at line 4, column 9"),
        ("annotations: {[a]: b}\n" + spec("d"), "a key is no text at line 1, column 15"),
        ("annotations: {&k a: b, *k : c}\n" + spec("d"), "the key 'a' is set twice, again at line 1, column 24"),
    ],
)
def test_what_runtimes_refuse(text: str, says: str) -> None:
    (problem,) = said(text)
    assert problem.startswith("the file: cannot be parsed: ")
    assert says in problem


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + spec("d"),
        "--- # a comment\n" + spec("d"),
        spec("!!binary ZA=="),
        spec("!foo d"),
        spec("d", 'env: [\'A=\\/b\', "B=\\\\/b", "C=b?"]'),
        spec("&n d") + "- {name: e, containerEdits: &e {env: [A=c]}}\n- name: f\n  containerEdits: *e\n",
        spec("d").replace("\n", "\r\n"),
        spec("!!null") + "- {name: f}\n",
    ],
)
def test_what_runtimes_read(text: str) -> None:
    assert [problem for problem in said(text) if "is missing" not in problem] == []


SMALL: dict[str, Any] = {
    "cdiVersion": "0.7.0",
    "kind": "acme.example/npu",
    "devices": [{"name": "d", "containerEdits": {"env": ["A=b"]}}],
}


def test_json_is_yaml(tmp_path: Path) -> None:
    text = json.dumps(SMALL)
    assert said(text, "a.json") == []
    for part in ("\\/", "\\ud83d\\ude00", "\x7f", "\x85\x80"):
        (problem,) = said(text.replace("A=b", "A=" + part), "a.json")
        assert problem.endswith(" (runtimes read JSON files as YAML)"), part
    # A line break of YAML becomes a space.
    (tmp_path / "a.json").write_text(text.replace("A=b", "A=\x85b"))
    assert names(tmp_path).edits["acme.example/npu=d"] == {"env": ["A= b"]}
    assert said(text.replace('"kind":', '"kind"\n:'), "a.json")
    assert said(text.replace('"d"', "1.10"), "a.json") == ["devices[0].name: " + UNCLEAR % ("1.1", "1.10", "name")]
    (tmp_path / "a.json").write_text(text.replace('"d"', "NaN"))
    assert list(names(tmp_path).files) == ["acme.example/npu=NaN"]


def test_most_json_files_need_no_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "yaml_events", None)
    text = json.dumps(SMALL, indent=1, ensure_ascii=False).replace("A=b", 'A=\\"\\\\ü\\u00fc\\n😀')
    assert said(text, "a.json") == []


def test_our_own_documents_are_yaml_as_before() -> None:
    """Ansible reads a declaration by YAML 1.1 of PyYAML."""
    assert documents.read_yaml(b"a: 010\nb: on\nc: &c {d: 1:30}\ne: {<<: *c}\n") == {
        "a": 8,
        "b": True,
        "c": {"d": 90},
        "e": {"d": 90},
    }
