"""The generated pages of docs/: what the generator makes of argument specs, and what it refuses."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import runpy
import subprocess
import sys

import pytest
import the_project as project
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
GENERATOR = ROOT / "tools" / "generate_reference"


@pytest.fixture
def generator():
    loader = importlib.machinery.SourceFileLoader("generate_reference", str(GENERATOR))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture
def with_roles(generator, monkeypatch, tmp_path):
    """The generator in a tree that has two roles, with the options that are given."""

    def make(one, two):
        for role, options in (("one", one), ("two", two)):
            meta = tmp_path / "roles" / role / "meta"
            meta.mkdir(parents=True, exist_ok=True)
            main = {"short_description": f"Role {role}", "description": ["What it does."], "options": options}
            (meta / "argument_specs.yml").write_text(yaml.safe_dump({"argument_specs": {"main": main}}))
        monkeypatch.setattr(generator, "ROOT", tmp_path)
        monkeypatch.setattr(generator, "ROLES", ("one", "two"))
        return generator.roles()

    return make


def test_the_pages_are_what_is_generated():
    done = subprocess.run([sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_stale_page_is_named_and_left_as_it_is(generator, monkeypatch, tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "declaration-reference.md"
    page.write_text("edited by hand")
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    monkeypatch.setattr(generator, "PAGES", {"declaration-reference.md": generator.declaration})
    assert generator.main(["--check"]) == 1
    assert "docs/declaration-reference.md: is out of date: run tools/generate_reference" in capsys.readouterr().out
    assert page.read_text() == "edited by hand"
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0


@pytest.mark.parametrize("role", project.roles(), ids=lambda role: role.name)
def test_a_role_leads_to_its_variables_and_back(generator, role):
    docs = os.path.relpath(ROOT / "docs", role)
    assert (role / "README.md").read_text().count(f"]({docs}/roles-reference.md#{role.name})") == 1
    page = generator.roles()
    assert f"\n## {role.name}\n" in page
    assert page.count(f"](../{role.relative_to(ROOT)}/README.md)") == 1


def test_every_variable_stands_once_with_type_and_default(with_roles):
    own = {"description": "A number.", "type": "int", "default": 3}
    shared = {"description": "A file.", "type": "path"}
    page = with_roles({"one_number": own, "node_devices_file": shared}, {"node_devices_file": shared})
    assert page.count("| `one_number` | int | `3` | A number. |") == 1
    assert page.count("| `node_devices_file` | path |  | A file. |") == 1
    assert page.index("node_devices_file") > page.index("## Variables of several roles")


def test_keys_of_a_variable_have_a_table_of_their_own(with_roles):
    keys = {"path": {"description": "Where.", "type": "str", "required": True}}
    listed = {"description": "Nodes.", "type": "list", "elements": "dict", "options": keys}
    page = with_roles({"one_nodes": listed}, {})
    assert "| `one_nodes` | list of dict |  | Nodes. |" in page
    assert page.index("Of each element of `one_nodes`:") < page.index("| `path` | str | **required** | Where. |")


def test_what_the_schema_says_is_not_said_again(generator):
    page = generator.roles()
    assert "(declaration-reference.md#a-resource)" in page
    assert "container_limit" not in page


def test_markup_becomes_markdown(generator):
    written = ["V(absent) of O(state\\(s\\))", "and E(HOME), C(a | b)."]
    assert generator.markdown(written) == "`absent` of `state(s)` and `HOME`, `a \\| b`."


def test_a_default_with_a_bar_keeps_its_cell(with_roles):
    page = with_roles({"one_host": {"description": "A host.", "type": "str", "default": "{{ all | first }}"}}, {})
    assert "| `one_host` | str | `{{ all \\| first }}` | A host. |" in page


def test_an_angle_bracket_is_shown_as_it_is(with_roles):
    page = with_roles({"one_path": {"description": "C(/etc/<kind>.json) for the <kind>.", "type": "str"}}, {})
    assert "| `one_path` | str |  | `/etc/<kind>.json` for the &lt;kind>. |" in page


def test_other_markup_is_refused(generator):
    with pytest.raises(generator.Unusable, match=r"L\(there,https"):
        generator.markdown("See L(there,https://example.com).")


def test_a_variable_that_two_roles_describe_differently_is_refused(with_roles, generator):
    with pytest.raises(generator.Unusable, match=r"node_devices_file: the roles two and one must describe it equally"):
        with_roles(
            {"node_devices_file": {"description": "A file.", "type": "path"}},
            {"node_devices_file": {"description": "Another.", "type": "path"}},
        )


def test_a_role_that_no_page_would_have_is_refused(with_roles, generator, tmp_path):
    with_roles({}, {})
    forgotten = tmp_path / "roles" / "three" / "meta"
    forgotten.mkdir(parents=True)
    (forgotten / "argument_specs.yml").write_text("")
    with pytest.raises(generator.Unusable, match="three"):
        generator.roles()


def test_every_option_of_every_command_is_in_its_row(generator):
    rows = [line.split(" | ") for line in generator.options().splitlines() if line.startswith("| `")]
    parsers = dict(generator.commands(generator.command_line.parser()))
    assert {"run", "cdi render", "verify"} < parsers.keys()
    for name, parser in parsers.items():
        for action in parser._actions:
            for option in [each for each in action.option_strings if each not in ("-h", "--help")]:
                of_this = [row for row in rows if f"`{option}" in row[0] and f"`{name}`" in row[1]]
                assert len(of_this) == 1, (name, option)


def test_a_page_without_its_marks_is_refused(generator, monkeypatch, tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "commands.md").write_text("# No marks\n")
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    monkeypatch.setattr(generator, "PAGES", {"commands.md": generator.options})
    assert generator.main([]) == 1
    assert "docs/commands.md: the marks" in capsys.readouterr().err
    assert (tmp_path / "docs" / "commands.md").read_text() == "# No marks\n"


def test_other_entries_of_a_role_add_what_they_alone_take(with_roles, generator, tmp_path):
    shared = {"description": "A file.", "type": "path"}
    with_roles({"one_file": shared}, {})
    path = tmp_path / "roles" / "one" / "meta" / "argument_specs.yml"
    spec = yaml.safe_load(path.read_text())
    spec["argument_specs"]["pods"] = {
        "short_description": "Some pods",
        "options": {"one_file": shared, "one_image": {"description": "An image.", "type": "str"}},
    }
    path.write_text(yaml.safe_dump(spec))
    page = generator.roles()
    assert "With `tasks_from: pods`: some pods. Also:" in page
    assert page.index("tasks_from: pods") < page.index("| `one_image` | str |  | An image. |")
    assert page.count("| `one_file` |") == 1


CELL = {
    "kubelet": "1.36.3",
    "containerd": "debian",
    "containerd_seen": "2.1.9",
    "date": "2026-01-02",
    "result": "passed",
}
#: A row for each mark, and its table row.
MARKED = (
    ({"steps": ["lint"], "facts": {"a": "text"}, "note": "quick"}, "tested in CI | `lint`: quick"),
    (
        {"matrix": {"kubelet": "{kubernetes-1.36}"}},
        "tested by hand (2026-01-02) | 1 cells of [the matrix](#each-kubelet-with-each-containerd)",
    ),
    (
        {"matrix": {"kubelet": "1.34.4"}},
        "tested by hand (2026-01-02 to 2026-01-09) | 2 cells of [the matrix](#each-kubelet-with-each-containerd)",
    ),
    ({"by_hand": "2026-01-01"}, "tested by hand (2026-01-01) | "),
    ({"source": "https://x"}, "by documentation | [source](https://x)"),
    ({"no": "too old"}, "no | too old"),
)
#: A row that is not true, and a part of the reason.
UNTRUE = (
    ({"steps": ["nightly"]}, "make test-all has no step nightly"),
    ({"steps": ["lint"], "facts": {"a": "other"}}, "a does not contain 'other' any more"),
    ({"matrix": {"kubelet": "1.30.0"}}, "docs/matrix.json has no cell"),
    ({"matrix": {"kubelet": "1.35.0"}}, "no route"),
    ({"steps": ["lint"], "no": "too old"}, "exactly one of"),
    ({}, "exactly one of"),
    ({"what": "Python {python}", "no": "", "seen": {"containerd": "debian"}}, "no version is known for python"),
)


@pytest.fixture
def version_row(generator, monkeypatch, tmp_path):
    (tmp_path / "a").write_text("some text")
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    cells = [
        CELL,
        {**CELL, "containerd": "2.3.7", "kubelet": "1.34.4"},
        {**CELL, "containerd": "2.2.9", "kubelet": "1.34.4", "date": "2026-01-09"},
        {**CELL, "containerd": "2.2.9", "kubelet": "1.35.0", "result": "no route"},
    ]
    return lambda row: generator.version_row({"what": "it", **row}, {"kubernetes-1.36": "1.36.3"}, {"lint"}, cells)


@pytest.mark.parametrize(("row", "shown"), MARKED)
def test_the_mark_of_a_version_follows_from_its_evidence(version_row, row, shown):
    assert version_row(row) == f"| it | {shown} |"


@pytest.mark.parametrize(("row", "reason"), UNTRUE)
def test_a_version_without_its_evidence_is_refused(generator, version_row, row, reason):
    with pytest.raises(generator.Unusable, match=reason):
        version_row(row)


def test_versions_are_those_that_are_pinned_or_seen(version_row):
    row = {"what": "{kubernetes-1.36} with {seen}", "seen": {"containerd": "debian"}, "by_hand": "2026-01-01"}
    assert version_row(row).startswith("| 1.36.3 with 2.1.9 |")


def test_the_steps_of_ci_are_those_of_test_all(generator):
    steps = project.targets()["test-all"].leads_to - {"system", "dev"}
    assert steps <= generator.steps_of_ci()
    assert not {"matrix", "oldest-python", "runtimes-all"} & generator.steps_of_ci()


def test_each_version_that_tests_use_has_a_row(generator):
    """A program, a release of a node, a controller or an architecture that is new fails here until a row names it."""
    tables = yaml.safe_load((ROOT / "docs/compatibility.yml").read_text())
    said = yaml.safe_dump(tables)
    programs = {f"{{{name}}}" for name in generator.pinned() if name.startswith(("kubernetes-", "containerd-"))}
    locks = {f"{{{path.name}}}" for path in (ROOT / "requirements").glob("controller*.txt")}
    inventories = [path.read_text() for path in ROOT.glob("molecule/*/inventory/hosts.yml")]
    releases = {name for text in inventories for name in re.findall(r"lab_node_release: (\w+)", text)}
    assert len(programs) > 7
    assert len(releases) > 2
    assert len(locks) == len(runpy.run_path(str(ROOT / "tests/matrix/run"))["CONTROLLERS"])
    assert not [name for name in {*programs, *locks, *releases} if name not in said]
    machines = {name.partition("-")[2] for name in json.loads((ROOT / "requirements/node-wheels.json").read_text())}
    of_images = runpy.run_path(str(ROOT / "packaging/image/engine_calls.py"))["MACHINES"]
    assert set(of_images.values()) == machines
    assert of_images.keys() < {row["what"] for row in tables["Architecture"]}
