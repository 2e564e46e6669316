"""The CDI specs that a process reads and keeps: those of the kinds that it needs, however they are written."""

import gc
import json
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.cdi import directories, reader
from node_device_plugin.cdi.directories import check_directories, may_have
from node_device_plugin.cdi.reader import SpecReader
from node_device_plugin.cdi.resolution import Resolution

#: Kinds that no other test has, because the tests look for them in memory.
KIND, OTHER = "kinds.example/class", "others.example/class"
FLOW = 'cdiVersion: 0.6.0\nkind: %s\ndevices: [{name: "0", containerEdits: {env: [A=B]}}]\n'


def spec(kind: str, *names: str, **edits: Any) -> dict[str, Any]:
    devices = [{"name": name, "containerEdits": {"env": ["A=B"], **edits}} for name in names or ("0",)]
    return {"cdiVersion": "0.6.0", "kind": kind, "devices": devices}


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were parsed."""
    found: list[str] = []
    check = directories.check_content

    def checked(path: str, *arguments: Any) -> Any:
        found.append(os.path.basename(path))
        return check(path, *arguments)

    monkeypatch.setattr(directories, "check_content", checked)
    return found


def kept(*kinds: str) -> int:
    """How many parsed specs of these kinds are in memory."""
    gc.collect()
    return sum(type(each) is dict and each.get("kind") in kinds and "cdiVersion" in each for each in gc.get_objects())


@pytest.mark.parametrize("kind", [KIND, OTHER, KIND + "es", KIND[:-1], "a." + KIND])
@pytest.mark.parametrize(
    "written",
    [
        "{kind}",
        "'{kind}'",
        '"{kind}"',
        "!!str {kind}",
        "&a {kind}",
        ">-\n  {kind}",
        "\n  {kind} # a comment",
        # Each of the following lacks the kind's text.
        '"{ascii}"',
        '"{hex}"',
        '"{long}"',
        '"{broken}"',
        '"{carriage}"',
        '"{next}"',
        '"{separator}"',
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_kind_is_found_however_it_is_written(tmp_path: Path, kind: str, written: str, encoding: str) -> None:
    """By comparison with every file parsed: in both names and reasons."""
    text = written.format(
        kind=kind,
        ascii="".join("\\u%04x" % ord(each) for each in kind),
        hex=kind.replace("n", "\\x6e").replace("l", "\\x6c"),
        long=kind.replace("n", "\\U0000006e").replace("l", "\\U0000006c"),
        broken=kind.replace("/", "/\\\n  "),
        carriage=kind.replace("/", "\\\r\n  /"),
        next=kind.replace("/", "/\\\x85  "),
        separator=kind.replace("/", "/\\\u2028  "),
    )
    (tmp_path / "a.yaml").write_bytes((FLOW % text).encode(encoding))
    whole = Resolution(check_directories([str(tmp_path)], None))
    assert list(whole.files) == [f"{kind}=0"]
    found = SpecReader([str(tmp_path)]).read({KIND})
    assert (list(found.files), found.broken) == (([f"{KIND}=0"], {}) if kind == KIND else ([], {}))


@pytest.mark.parametrize(
    "text",
    [
        "kind: !!binary a2luZHMuZXhhbXBsZS9jbGFzcw==",
        "kind: !<tag:yaml.org,2002:bin%61ry> a2luZHMuZXhhbXBsZS9jbGFzcw==",
        "%TAG !y! tag:yaml.org,2002:bin\n---\nkind: !y!ary a2luZHMuZXhhbXBsZS9jbGFzcw==",
    ],
)
def test_a_kind_in_base64_is_decoded_by_the_parser_alone(text: str) -> None:
    assert may_have(text.encode(), [KIND])


@pytest.mark.parametrize(
    "text", [r"args: [\d+, 'C:\dir', \\, \", !important, 100%, a!b, '! !']", OTHER, "", "kinds.example"]
)
def test_what_cannot_give_a_kind_is_not_parsed(text: str) -> None:
    assert not may_have(text.encode(), [KIND])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_a_kind_is_found_in_json_however_it_is_written(tmp_path: Path, encoding: str) -> None:
    for name, kind in (("a", KIND), ("b", KIND.replace("k", "\\u006b"))):
        (tmp_path / f"{name}.json").write_bytes(json.dumps(spec("KIND", name)).replace("KIND", kind).encode(encoding))
    # Runtimes read no UTF-32.
    names = "" if encoding == "utf-32" else "ab"
    assert list(SpecReader([str(tmp_path)]).read({KIND}).files) == [f"{KIND}={name}" for name in names]


def test_the_names_of_a_kind_are_those_of_all_specs_read_together(tmp_path: Path) -> None:
    """Also the reasons: conflicts, files that runtimes refuse, and names of ours that another file overrides."""
    ours = directories.cdi.file_name(KIND)
    files = {
        f"low/{ours}": spec(KIND, "over", "same", "ours"),
        "low/a.json": spec(KIND, "twice", "low"),
        "low/b.json": spec(KIND, "twice"),
        "low/other.json": spec(OTHER, "twice", "over"),
        "low/other-too.json": spec(OTHER, "twice"),
        "low/refused.json": {**spec(KIND, "refused"), "colour": "red"},
        "low/name.yml": spec(KIND, "named"),
        "high/a.json": spec(KIND, "over", deviceNodes=[{"path": "/dev/null", "type": "c", "major": 1, "minor": 3}]),
        "high/same.json": spec(KIND, "same"),
        "high/mentions.json": {**spec(OTHER, "mentions"), "annotations": {"a": KIND}},
        "high/cut.json": {},
    }
    for path, content in files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(json.dumps(content))
    (tmp_path / "high/cut.json").write_text('{"kind": "%s"' % KIND)
    places = [str(tmp_path / place) for place in ("low", "high")]
    whole, found = Resolution(check_directories(places, None)), SpecReader(places).read({KIND})

    def of_kind(names: Collection[str]) -> set[str]:
        return {name for name in names if name.startswith(KIND + "=")}

    assert set(found.files) == of_kind(whole.files)
    assert found.files == {name: whole.files[name] for name in found.files}
    assert found.edits == {name: whole.edits[name] for name in found.edits}
    assert found.broken == {name: whole.broken[name] for name in of_kind(whole.broken)}
    assert set(found.broken) == {f"{KIND}={name}" for name in ("twice", "refused", "named")}
    assert found.overridden == whole.overridden
    assert list(found.overridden) == [f"{KIND}=over"]
    assert found.by_number == whole.by_number
    assert list(found.by_number) == ["char/1:3"]


def test_without_kinds_nothing_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text(json.dumps(spec(KIND)))
    seen = SpecReader([str(tmp_path)])
    assert list(seen.read({KIND}).files) == [f"{KIND}=0"]
    for name in ("spec_paths", "check_file", "identity"):
        monkeypatch.setattr(reader, name, lambda *_: pytest.fail("reads"))
    for each in (seen, SpecReader([str(tmp_path)])):
        found = each.read(())
        assert (found.files, found.broken, found.kinds) == ({}, {}, frozenset())
        assert each.is_as_read()
    assert kept(KIND) == 0


def test_what_is_of_another_kind_is_neither_parsed_nor_kept(tmp_path: Path, parsed: list[str]) -> None:
    (tmp_path / "a.json").write_text(json.dumps(spec(KIND)))
    (tmp_path / "b.yaml").write_text(FLOW % OTHER + "# \\s \\\\ \\d\n")
    # Only parsing tells what this is.
    (tmp_path / "c.yaml").write_text(FLOW % OTHER + f"annotations: {{a: '{KIND}'}}\n")
    files = SpecReader([str(tmp_path)])
    for _again in range(2):
        assert list(files.read({KIND}).files) == [f"{KIND}=0"]
    assert parsed == ["a.json", "c.yaml"]
    assert (kept(KIND), kept(OTHER)) == (1, 0)


def test_a_file_is_parsed_once_for_all_that_need_it_and_kept_as_long_as_one_does(
    tmp_path: Path, parsed: list[str]
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(spec(KIND)))
    (tmp_path / "b.json").write_text(json.dumps(spec(OTHER)))
    one, two = SpecReader([str(tmp_path)]), SpecReader([str(tmp_path), "/none"])
    one.read({KIND})
    two.read({KIND, OTHER})
    assert parsed == ["a.json", "b.json"]
    one.read({OTHER})
    two.read({OTHER})
    assert (kept(KIND), kept(OTHER), len(parsed)) == (0, 1, 2)
    del two
    assert list(one.read({OTHER}).files) == [f"{OTHER}=0"]
    assert (kept(OTHER), len(parsed)) == (1, 2)
    assert list(one.read({KIND}).files) == [f"{KIND}=0"]
    assert (kept(KIND), kept(OTHER), parsed) == (1, 0, ["a.json", "b.json", "a.json"])


def test_after_a_change_only_the_changed_file_is_parsed(tmp_path: Path, parsed: list[str]) -> None:
    for name in "abc":
        (tmp_path / f"{name}.json").write_text(json.dumps(spec(KIND, name)))
    (tmp_path / "other.json").write_text(json.dumps(spec(OTHER)))
    files = SpecReader([str(tmp_path)])
    before = files.read({KIND})
    parsed.clear()
    (tmp_path / "b.json").write_text(json.dumps(spec(KIND, "b2")))
    assert not files.is_as_read()
    assert list(files.read({KIND}).files) == [f"{KIND}={name}" for name in ("a", "b2", "c")]
    (tmp_path / "c.json").unlink()
    after = files.read({KIND})
    assert list(after.files) == [f"{KIND}={name}" for name in ("a", "b2")]
    assert (parsed, list(before.files)) == (["b.json"], [f"{KIND}={name}" for name in "abc"])
    # A change of a file that nobody needs is news, because the file may have a needed kind now; here it has none.
    (tmp_path / "other.json").write_text(json.dumps(spec(OTHER, "1")))
    assert not files.is_as_read()
    assert files.read({KIND}) is after
    assert files.is_as_read()
    (tmp_path / "other.json").write_text(json.dumps(spec(KIND, "other")))
    assert f"{KIND}=other" in files.read({KIND}).files


def test_a_file_that_is_written_again_alike_is_no_news(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(spec(KIND)))
    files = SpecReader([str(tmp_path)])
    before = files.read({KIND})
    os.utime(path, (0, 0))
    assert not files.is_as_read()
    for _again in range(2):
        assert files.read({KIND}) is before
        assert files.is_as_read()


def test_of_a_directory_that_is_listed_twice_the_last_place_counts(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "spec.json").write_text(json.dumps(spec(KIND)))
    found = SpecReader([f"{tmp_path}/a", f"{tmp_path}/b", f"{tmp_path}/a/"]).read({KIND})
    assert found.files[f"{KIND}=0"].path == f"{tmp_path}/a/spec.json"


def test_what_cannot_be_opened_or_is_no_file_has_no_kind(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "b.json").symlink_to(tmp_path / "gone")
    (tmp_path / "c.json").mkdir()
    files = SpecReader([str(tmp_path), str(tmp_path / "none")])
    assert files.read({KIND}).files == {}
    assert files.is_as_read()
    (tmp_path / "b.json").unlink()
    (tmp_path / "b.json").write_text(json.dumps(spec(KIND)))
    assert stat.S_ISFIFO(os.stat(tmp_path / "a.json").st_mode)
    assert list(files.read({KIND}).files) == [f"{KIND}=0"]
