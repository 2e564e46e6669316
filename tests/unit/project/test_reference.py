"""The generated pages of docs/: what the generator makes of argument specs, and what it refuses."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import pathlib
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
